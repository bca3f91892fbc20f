package placementdata

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Without a leaf that of the gang's namespace is charged.
func TestWhoIsCharged(t *testing.T) {
	tree, err := quota.New(quota.Spec{Name: quota.RootName, Children: []quota.Spec{
		{Name: "vision", Namespaces: []string{"default"}}, {Name: "speech", Namespaces: []string{"speech-prod"}},
	}})
	require.NoError(t, err)
	for name, test := range map[string]struct{ namespace, quota, leaf string }{
		"neither":   {"", "", "vision"},
		"namespace": {"speech-prod", "", "speech"},
		"leaf":      {"", "speech", "speech"},
		"nobody's":  {"other", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := model{NodeSelector: types.MapNull(types.StringType), Roles: map[string]roleModel{"worker": {GPUs: types.Int64Value(1)}}}
			if test.namespace != "" {
				m.Namespace = types.StringValue(test.namespace)
			}
			if test.quota != "" {
				m.Quota = types.StringValue(test.quota)
			}
			spec, diags := m.spec(t.Context())
			require.Empty(t, diags)
			gang, err := spec.PlannerGang(tree)
			require.NoError(t, err)
			assert.Equal(t, test.leaf, gang.Leaf)
		})
	}
}

// The data source has no framework, so it blames none.
func TestRolesOfAnotherFramework(t *testing.T) {
	m := model{NodeSelector: types.MapNull(types.StringType), Roles: map[string]roleModel{"worker": {GPUs: types.Int64Value(1)}, "launcher": {}}}
	_, diags := m.spec(t.Context())
	require.Len(t, diags, 1)
	assert.Contains(t, diags[0].Detail(), `roles["launcher"]: the roles are master and worker; leave out others, such as a launcher`)
}
