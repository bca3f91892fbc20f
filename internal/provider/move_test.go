package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const successors = pool + `
resource "gpuplan_addon" "queue" {
  name = "ack-kube-queue"
}
moved {
  from = alicloud_cs_kubernetes_node_pool.v100
  to   = gpuplan_node_pool.v100
}
moved {
  from = alicloud_cs_kubernetes_addon.queue
  to   = gpuplan_addon.queue
}
`

// of is a resource in a state, as the alicloud provider writes it. id is JSON.
func of(kind, name, id, more string) string {
	return fmt.Sprintf(`{"mode":"managed","type":"alicloud_cs_kubernetes_%s","name":%q,"provider":"provider[\"registry.terraform.io/aliyun/alicloud\"]",
"instances":[{"schema_version":0,"attributes":{"id":%s%s}}]}`, kind, name, id, more)
}

// succeeding starts a cloud with a pool and an add-on, and returns its terraform, and what writes a state of the alicloud provider.
func succeeding(t *testing.T) (cli *acctest.CLI, poolID string, write func(resources ...string)) {
	t.Helper()
	if !acctest.Since(t, 12) {
		t.Skip("the test reads identities, which came with Terraform 1.12")
	}
	acctest.StartCloud(t)
	cli = acctest.StartCLI(t)
	cli.Env[0] = strings.Replace(cli.Env[0], "registry.terraform.io/gpuplan/gpuplan", "registry.terraform.io/aliyun/alicloud", 1)
	cli.Write(t, successors)
	cli.Apply(t, 2, 0, 0)
	poolID, _ = identitiesOf(t, cli)["gpuplan_node_pool.v100"]["nodepool_id"].(string)
	require.NotEmpty(t, poolID)
	return cli, poolID, func(resources ...string) {
		state := `{"version":4,"terraform_version":"1.11.0","serial":1,"lineage":"x","outputs":{},"resources":[` + strings.Join(resources, ",") + "]}"
		require.NoError(t, os.WriteFile(filepath.Join(cli.Dir, "terraform.tfstate"), []byte(state), 0o600))
	}
}

// A moved block takes over what the alicloud provider has in the state, whatever else its version wrote there: nothing is left to do.
func TestMovedFromTheAlicloudProvider(t *testing.T) {
	cli, poolID, write := succeeding(t)
	write(of("node_pool", "v100", fmt.Sprintf(`"%s:%s"`, acctest.ClusterID, poolID), `,"name":7,"labels":[null,{"key":"a"}],"gone":{}`),
		of("addon", "queue", `"`+acctest.ClusterID+`:ack-kube-queue"`, `,"config":null`))
	output, err := cli.Run("plan", "-refresh=false")
	require.Error(t, err, "a pool of which nothing is known would be replaced")
	assert.Regexp(t, acctest.Saying("plan without -refresh=false."), output)
	cli.Apply(t, 0, 0, 0)
	assert.Contains(t, cli.Must(t, "state", "show", "gpuplan_node_pool.v100"), acctest.ClusterID+"/"+poolID)
	cli.Unchanged(t)
}

// An ID that names nothing is refused with what to do instead.
func TestMovedWithAnIDOfNothing(t *testing.T) {
	cli, poolID, write := succeeding(t)
	for _, id := range []string{"null", "3", `""`, `"` + poolID + `"`, `"` + acctest.ClusterID + `:"`, `"` + acctest.ClusterID + "/" + poolID + `"`, `"a:b:c"`} {
		write(of("node_pool", "v100", id, ""))
		output, err := cli.Run("plan")
		require.Error(t, err, id)
		assert.Regexp(t, acctest.Saying("CLUSTER_ID:NAME. Take it out of the state with `terraform state rm`, and import it here"), output)
	}
	write(of("addon", "queue", `"`+acctest.ClusterID+`:A B"`, ""))
	output, err := cli.Run("plan")
	require.Error(t, err)
	assert.Regexp(t, acctest.Saying("Add-on cannot be taken over"), output)
}
