package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// A plan promises no devices that it does not count, and says so.
func TestDevicesThatAreNotCounted(t *testing.T) {
	asks := func(name string) placement.Gang {
		return placement.Gang{Roles: []placement.Role{{Request: placement.Request{Resources: placement.Resources{Extended: map[string]int64{name: 1}}}}}}
	}
	known := placement.Delegated{"example.com/foo": true}
	unknown := placement.Delegated{placement.Unknown: true, "aliyun/erdma": false}
	for name, test := range map[string]struct {
		gang      placement.Gang
		delegated placement.Delegated
		says      string // "" for nothing
	}{
		"a device":                {asks("example.com/foo"), known, "Pods of job ns/j ask for example.com/foo. A DeviceClass has the scheduler"},
		"something else":          {asks("example.com/bar"), known, ""},
		"nothing is delegated":    {asks("example.com/foo"), nil, ""},
		"it may be one":           {asks("example.com/bar"), unknown, "A DeviceClass may have the scheduler allocate devices for it when they start, which these credentials may not read"},
		"it is known to be none":  {asks("aliyun/erdma"), unknown, ""},
		"Kubernetes' own is none": {asks("ephemeral-storage"), unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			diags := uncounted("ns/j", test.gang, test.delegated)
			if test.says == "" {
				assert.Empty(t, diags)
				return
			}
			require.Len(t, diags, 1)
			assert.Contains(t, diags[0].Detail(), test.says)
		})
	}
}
