package provider_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	fwresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// identified is a resource of each type but the GPU mode of nodes, whose identity its own tests have.
const identified = pool + tree + `
resource "gpuplan_scheduler" "x" {
  image = "x"
}
resource "gpuplan_node_agent" "x" {
  image = "x"
}
resource "gpuplan_training_job" "x" {
  name      = "j"
  framework = "batch"
  image     = "train:1"
  wait_for  = "none"
  roles     = { worker = { replicas = 2, gpus = 1 } }
}
resource "gpuplan_addon" "x" {
  name = "csi-plugin"
}
resource "gpuplan_scheduler_config" "x" {}
resource "gpuplan_propagation_policy" "x" {
  name               = "p"
  resource_selectors = [{ api_version = "kubeflow.org/v1", kind = "PyTorchJob" }]
}
`

// identities starts a cloud, applies [identified], and returns its terraform.
func identities(t *testing.T) *acctest.CLI {
	t.Helper()
	if !acctest.Since(t, 12) {
		t.Skip("resource identity is HashiCorp's, and came with Terraform 1.12")
	}
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	serve(t, cloud)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	cli := acctest.StartCLI(t)
	cli.Write(t, identified)
	cli.Apply(t, 8, 0, 0)
	return cli
}

// identitiesOf are the identities in the state by the address of their resource.
func identitiesOf(t *testing.T, cli *acctest.CLI) map[string]map[string]any {
	t.Helper()
	var state struct {
		Values struct {
			Root struct {
				Resources []struct {
					Address  string
					Identity map[string]any
				}
			} `json:"root_module"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(cli.Must(t, "show", "-json")), &state))
	found := map[string]map[string]any{}
	for _, r := range state.Values.Root.Resources {
		found[r.Address] = r.Identity
	}
	return found
}

// What an import need not say of an identity is the provider's to know: all that the state has lost is
// imported, and nothing is left to do.
func TestImportByIdentity(t *testing.T) {
	cli := identities(t)
	was := identitiesOf(t, cli)
	poolID, ok := was["gpuplan_node_pool.v100"]["nodepool_id"].(string)
	require.True(t, ok)
	assert.Equal(t, map[string]map[string]any{
		"gpuplan_node_pool.v100":       {"cluster_id": acctest.ClusterID, "nodepool_id": poolID},
		"gpuplan_quota_tree.main":      {"namespace": "kube-system", "name": "elasticquotatree"},
		"gpuplan_scheduler.x":          {"namespace": "gpuplan-system", "name": "gpuplan-scheduler"},
		"gpuplan_node_agent.x":         {"namespace": "gpuplan-system", "name": "gpuplan-node-agent"},
		"gpuplan_training_job.x":       {"namespace": "default", "name": "j", "framework": "batch"},
		"gpuplan_addon.x":              {"cluster_id": acctest.ClusterID, "name": "csi-plugin"},
		"gpuplan_scheduler_config.x":   {"cluster_id": acctest.ClusterID, "name": "kube-scheduler"},
		"gpuplan_propagation_policy.x": {"namespace": "default", "name": "p"},
	}, was)

	imports := ""
	for address, by := range map[string]string{
		"gpuplan_node_pool.v100":       "nodepool_id = \"" + poolID + "\"",
		"gpuplan_quota_tree.main":      `name = "elasticquotatree"`,
		"gpuplan_scheduler.x":          `name = "gpuplan-scheduler"`,
		"gpuplan_node_agent.x":         `name = "gpuplan-node-agent"`,
		"gpuplan_training_job.x":       "namespace = \"default\"\n    name = \"j\"",
		"gpuplan_addon.x":              `name = "csi-plugin"`,
		"gpuplan_scheduler_config.x":   `name = "kube-scheduler"`,
		"gpuplan_propagation_policy.x": `name = "p"`,
	} {
		cli.Must(t, "state", "rm", address)
		imports += "import {\n  to = " + address + "\n  identity = {\n    " + by + "\n  }\n}\n"
	}
	cli.Write(t, identified+imports)
	output := cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, output, "Resources: 8 imported, 0 added, 0 changed, 0 destroyed.")
	assert.Equal(t, was, identitiesOf(t, cli))
	cli.Unchanged(t)
}

// Identities that name nothing are refused in plain words.
func TestImportByWrongIdentity(t *testing.T) {
	cli := identities(t)
	for name, test := range map[string]struct{ address, identity, says string }{
		"no such pool":     {"gpuplan_node_pool.v100", `nodepool_id = "np-none"`, "np-none"},
		"another cluster":  {"gpuplan_node_pool.v100", `cluster_id = "c-other", nodepool_id = "np-none"`, "the import names cluster c-other"},
		"no such job":      {"gpuplan_training_job.x", `namespace = "default", name = "none"`, "The cluster has no PyTorchJob, MPIJob, TrainJob, JobSet or Job default/none. Write NAMESPACE/NAME of one that it has."},
		"other framework":  {"gpuplan_training_job.x", `namespace = "default", name = "j", framework = "mpi"`, "The cluster has no PyTorchJob, MPIJob, TrainJob, JobSet or Job default/j/mpi."},
		"no framework":     {"gpuplan_training_job.x", `namespace = "default", name = "j", framework = "jax"`, `"default/j/jax" does not name a job`},
		"another tree":     {"gpuplan_quota_tree.main", `namespace = "default", name = "elasticquotatree"`, "does not name a quota tree"},
		"no policy":        {"gpuplan_propagation_policy.x", `name = "a/b"`, "does not name a propagation policy"},
		"another program":  {"gpuplan_scheduler.x", `name = "kube-scheduler"`, "its import ID is gpuplan-system/gpuplan-scheduler"},
		"another add-on":   {"gpuplan_scheduler_config.x", `name = "csi-plugin"`, "does not name an add-on of cluster"},
		"a part left out":  {"gpuplan_training_job.x", `name = "j"`, "namespace"},
		"a part too many ": {"gpuplan_quota_tree.main", `name = "a/b"`, "does not name a quota tree"},
	} {
		t.Run(strings.TrimSpace(name), func(t *testing.T) {
			other := &acctest.CLI{}
			*other = *cli
			other.Dir = t.TempDir()
			other.Refuses(t, identified+"import {\n  to = "+test.address+"\n  identity = { "+test.identity+" }\n}\n", acctest.Saying(test.says))
		})
	}
}

// A state of an earlier version, or of OpenTofu, has no identities: it gets them with the first refresh, also of
// what moves in the configuration, and nothing else changes.
func TestStateWithoutIdentities(t *testing.T) {
	cli := identities(t)
	was := identitiesOf(t, cli)
	file := filepath.Join(cli.Dir, "terraform.tfstate")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var state map[string]any
	require.NoError(t, json.Unmarshal(text, &state))
	forget(state)
	text, err = json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	for address, identity := range identitiesOf(t, cli) {
		require.Empty(t, identity, address)
	}
	cli.Unchanged(t)

	moved := regexp.MustCompile(`" "(x|main|v100)" \{`).ReplaceAllString(identified, `" "moved" {`)
	expected := map[string]map[string]any{}
	for address, identity := range was {
		kind, _, _ := strings.Cut(address, ".")
		moved += "moved {\n  from = " + address + "\n  to = " + kind + ".moved\n}\n"
		expected[kind+".moved"] = identity
	}
	cli.Write(t, moved)
	cli.Apply(t, 0, 0, 0)
	assert.Equal(t, expected, identitiesOf(t, cli))
	cli.Unchanged(t)
}

// forget takes the identities out of a state.
func forget(value any) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "identity")
		delete(v, "identity_schema_version")
		for _, inner := range v {
			forget(inner)
		}
	case []any:
		for _, inner := range v {
			forget(inner)
		}
	}
}

// Every resource has an identity, all of it is described, and its example names what an import needs.
func TestIdentitySchemas(t *testing.T) {
	for _, create := range provider.New("test", provider.Command{})().Resources(t.Context()) {
		r, ok := create().(fwresource.ResourceWithIdentity)
		require.True(t, ok)
		var meta fwresource.MetadataResponse
		r.Metadata(t.Context(), fwresource.MetadataRequest{}, &meta)
		var of fwresource.IdentitySchemaResponse
		r.IdentitySchema(t.Context(), fwresource.IdentitySchemaRequest{}, &of)
		assert.Empty(t, of.IdentitySchema.ValidateImplementation(t.Context()), meta.TypeName)
		assert.NotEmpty(t, of.IdentitySchema.Attributes, meta.TypeName)
		example, err := os.ReadFile(filepath.Join("../../examples/resources", meta.TypeName, "import-by-identity.tf"))
		require.NoError(t, err)
		var named []string
		for _, match := range regexp.MustCompile(`(?m)^    (\w+) *=`).FindAllStringSubmatch(string(example), -1) {
			named = append(named, match[1])
			assert.Contains(t, of.IdentitySchema.Attributes, match[1], meta.TypeName)
		}
		for name, a := range of.IdentitySchema.Attributes {
			assert.NotEmpty(t, a.GetDescription(), "%s.%s", meta.TypeName, name)
			assert.True(t, !a.IsRequiredForImport() || slices.Contains(named, name), "%s.%s", meta.TypeName, name)
		}
	}
}
