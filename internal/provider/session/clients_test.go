package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Where the endpoint of a misspelt region does not exist, the error names the regions that may be meant.
func TestRegionWithoutAnEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		region, endpoint, want string
	}{
		"misspelt":       {"cn-hangzu", "", `region "cn-hangzu" has no endpoint, and this provider knows no such region (but cn-hangzhou, `},
		"far from all":   {"the one in the east of the country", "", "knows no such region: set region in the provider block, or the environment variable ALIBABA_CLOUD_REGION,"},
		"known":          {"cn-hangzhou", "", ""},
		"of an endpoint": {"cn-local", "http://127.0.0.1:1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			said := Settings{Region: c.region, Endpoint: c.endpoint}.noRegion()
			if c.want == "" {
				assert.Empty(t, said)
			} else {
				assert.Contains(t, said, c.want)
			}
		})
	}
}
