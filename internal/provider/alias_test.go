package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Terraform runs a process for each provider configuration, and one knows nothing of the other: a second
// one for a cluster is refused, unless it has an owner of its own.
func TestAliases(t *testing.T) {
	cloud := acctest.StartCloud(t)
	other := filepath.Join(t.TempDir(), "kubeconfig")
	acctest.WriteKubeconfig(t, other, kubetest.Start(t).Config().Host)
	address, behindProxy := cloud.API.Config().Host, filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(cloud.Kubeconfig)
	require.NoError(t, err)
	text = []byte(strings.Replace(string(text), "server: ", "proxy-url: "+address+"\n    server: ", 1)) // it serves what it is asked for as a proxy, too
	require.NoError(t, os.WriteFile(behindProxy, text, 0o600))
	locks := t.TempDir()
	t.Setenv("TMPDIR", locks)
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, binary)
	write := func(settings string) {
		const job = `
resource "gpuplan_training_job" %q {
  provider        = %s
  name            = "same"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  suspend         = true
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 1 } }
}
`
		cli.Write(t, "provider \"gpuplan\" {\n  alias = \"b\"\n"+settings+"}\n"+fmt.Sprintf(job, "a", "gpuplan")+fmt.Sprintf(job, "b", "gpuplan.b"))
	}
	for name, test := range map[string]struct {
		settings string
		refused  bool
	}{
		"the same cluster":                {"", true},
		"with another check":              {"placement_check = \"warn\"\n", true},
		"the cluster is not said":         {"cluster_id = \"\"\n", true},
		"an owner of its own":             {"owner = \"team-b\"\n", false},
		"another address of the cluster":  {fmt.Sprintf("kubeconfig = %q\n", other), true},
		"another cluster":                 {fmt.Sprintf("kubeconfig = %q\ncluster_id = \"c-other\"\n", other), false},
		"another ID alone":                {"cluster_id = \"c-other\"\n", true},
		"another cluster of one address":  {fmt.Sprintf("kubeconfig = %q\ncluster_id = \"\"\n", behindProxy), false},
		"another cluster, without its ID": {fmt.Sprintf("kubeconfig = %q\ncluster_id = \"\"\n", other), false},
	} {
		t.Run(name, func(t *testing.T) {
			write(test.settings)
			said, err := cli.Run("plan")
			if !test.refused {
				require.NoError(t, err, said)
				return
			}
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "Two provider configurations for one cluster")
			if id := os.Getenv("GPUPLAN_CLUSTER_ID"); !strings.Contains(test.settings, "cluster_id") {
				assert.Contains(t, acctest.Unwrapped(said), ", cluster_id "+id+". Terraform runs a process for each")
			}
			assert.Contains(t, acctest.Unwrapped(said), "use one provider configuration for a cluster")
		})
	}
	left, err := filepath.Glob(filepath.Join(locks, "gpuplan-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The process that plans and the one that applies, of one command, are no two configurations.
func TestOneConfigurationPlansAndApplies(t *testing.T) {
	acctest.StartCloud(t)
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, binary)
	cli.Write(t, `
resource "gpuplan_node_pool" "a" {
  name          = "a"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 0
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`)
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "destroy", "-auto-approve")
}

// A saved plan was looked at when it was made; one that destroys has to be applied.
func TestSavedDestroyWithTwoConfigurations(t *testing.T) {
	acctest.StartCloud(t)
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, binary)
	pool := func(name, provider string) string {
		return fmt.Sprintf(`
resource "gpuplan_node_pool" %[1]q {
  provider      = %[2]s
  name          = %[1]q
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 0
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, name, provider)
	}
	second := "provider \"gpuplan\" {\n  alias = \"b\"\n%s}\n"
	cli.Write(t, fmt.Sprintf(second, "  owner = \"b\"\n")+pool("a", "gpuplan")+pool("b", "gpuplan.b"))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, fmt.Sprintf(second, "")+pool("a", "gpuplan")+pool("b", "gpuplan.b"))
	cli.Must(t, "plan", "-destroy", "-out=plan")
	cli.Must(t, "apply", "plan")
}
