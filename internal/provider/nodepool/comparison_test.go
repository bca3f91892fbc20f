package nodepool_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	tfresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool"
)

// The page that compares the resource with another one names attributes that exist, and all that can be
// written.
func TestComparisonWithTheOtherProvider(t *testing.T) {
	page, err := os.ReadFile("../../../docs/node-pools.md")
	require.NoError(t, err)
	var resp tfresource.SchemaResponse
	nodepool.New().Schema(t.Context(), tfresource.SchemaRequest{}, &resp)
	exists := map[string]bool{}
	for name, a := range resp.Schema.Attributes {
		exists[name] = true
		if nested, ok := a.(schema.SingleNestedAttribute); ok {
			for part := range nested.Attributes {
				exists[part] = true
			}
		}
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
		assert.True(t, exists[m[1]] || m[1] == "gpuplan_node_pool", "docs/node-pools.md names %s, which is no attribute", m[1])
	}
	for name, a := range resp.Schema.Attributes {
		if a.IsRequired() || a.IsOptional() {
			assert.True(t, named[name], "docs/node-pools.md does not name %s", name)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\|.*$`).FindAllString(string(page), -1) {
		assert.Contains(t, []int{3, 4}, strings.Count(row, "|"), row)
	}
}
