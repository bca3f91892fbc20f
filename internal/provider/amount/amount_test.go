package amount_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
)

func TestParse(t *testing.T) {
	for _, text := range []string{"0", "8", "500m", "0.5", ".5", "5.", "64Gi", "1e3", "1E3", "12E-1", "100k", "1Ei", "1e18"} {
		q, err := amount.Parse(text)
		assert.NoError(t, err, text)
		assert.Zero(t, q.Cmp(resource.MustParse(text)), text)
	}
	for _, text := range []string{
		"", " ", "-1", "+1", "8 cores", "64GB", "NaN", "0x10", "1e999", "1e-99999999", "2Ei", "1e19", "99999999999999999999Gi",
		"1\n", "１", strings.Repeat("9", 1<<20), "." + strings.Repeat("0", 1<<20),
	} {
		_, err := amount.Parse(text)
		if assert.Error(t, err, text) {
			assert.Less(t, len(err.Error()), 300)
		}
	}
}

// Bytes have no unit B in Kubernetes, and a person who writes one may mean either power: the text
// of an error names both.
func TestBytes(t *testing.T) {
	for text, want := range map[string]string{
		"8GB": `write "8G" or "8Gi"`, "8 GB": `write "8G" or "8Gi"`, "1.5TB": `write "1.5T" or "1.5Ti"`, "512KB": `write "512k" or "512Ki"`,
		"64GiB": `write "64Gi"`, "8gb": "write a number with an optional unit", "8B": "write a number with an optional unit",
	} {
		_, err := amount.Parse(text)
		assert.ErrorContains(t, err, want, text)
		if err == nil {
			continue
		}
		assert.Contains(t, err.Error(), text+"\" is not an amount")
	}
}
