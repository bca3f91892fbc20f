package natural_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

func TestCompare(t *testing.T) {
	ordered := []string{"", "a", "a1", "a2", "a10", "a10b", "b", "b0.9", "b0.10", "b00.10", "mlx5_2", "mlx5_10"}
	for i, x := range ordered {
		for j, y := range ordered {
			switch c := natural.Compare(x, y); {
			case i < j:
				assert.Negative(t, c, "%q %q", x, y)
			case i > j:
				assert.Positive(t, c, "%q %q", x, y)
			default:
				assert.Zero(t, c)
			}
		}
	}
}
