package nodepool

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

func TestLater(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"before":             {"2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", false},
		"later":              {"2026-01-01T00:00:02.5+08:00", "2026-01-01T00:00:02+08:00", true},
		"in the same second": {"2026-01-01T00:00:02Z", "2026-01-01T00:00:02Z", false},
		"not known":          {"2026-01-01T00:00:02Z", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			pool := func(created string) acs.NodePool {
				return acs.NodePool{NodePoolSpec: acs.NodePoolSpec{Info: acs.NodePoolInfo{Created: created}}}
			}
			assert.Equal(t, test.want, later(pool(test.a), pool(test.b)))
		})
	}
}
