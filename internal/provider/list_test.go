package provider_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const query = `
list "gpuplan_node_pool" "all" {
  provider = gpuplan
}
list "gpuplan_training_job" "all" {
  provider = gpuplan
}
list "gpuplan_training_job" "none" {
  provider = gpuplan
  config {
    namespace = "other"
  }
}
`

// What there is is listed, and imported by the configuration that Terraform writes of it, with nothing left to do.
func TestQuery(t *testing.T) {
	if !acctest.Since(t, 14) {
		t.Skip("list blocks are HashiCorp's, and came with Terraform 1.14")
	}
	cloud := acctest.StartCloud(t)
	serve(t, cloud)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	cli := acctest.StartCLI(t)
	job := func(name, framework string) string {
		return "resource \"gpuplan_training_job\" \"" + framework + "\" {\n  name = \"" + name + "\"\n  framework = \"" + framework + `"
  image = "train:1"
  wait_for = "none"
  roles = { worker = { replicas = 2, gpus = 1 } }
}
`
	}
	cli.Write(t, pool+job("a", "batch")+job("b", "mpi")+job("c", "pytorch"))
	cli.Apply(t, 4, 0, 0)

	other := *cli
	other.Dir = t.TempDir()
	other.Write(t, "provider \"gpuplan\" {}\n")
	require.NoError(t, os.WriteFile(filepath.Join(other.Dir, "all.tfquery.hcl"), []byte(query), 0o600))
	output := other.Must(t, "query", "-generate-config-out=found.tf")
	assert.Regexp(t, `list\.gpuplan_node_pool\.all +cluster_id=`+acctest.ClusterID+`,nodepool_id=\S+ +v100`, output)
	for _, line := range []string{"framework=batch,name=a,namespace=default +default/a", "framework=mpi,name=b,namespace=default +default/b", "framework=pytorch,name=c,namespace=default +default/c"} {
		assert.Regexp(t, `list\.gpuplan_training_job\.all +`+line, output)
	}
	assert.NotContains(t, output, "gpuplan_training_job.none  ")
	assert.Contains(t, other.Must(t, "plan"), "4 to import, 0 to add, 0 to change, 0 to destroy.")
}

// A namespace that none can be is refused: the API server would find nothing there, or speak of paths.
func TestQueryOfNoNamespace(t *testing.T) {
	if !acctest.Since(t, 14) {
		t.Skip("list blocks are HashiCorp's, and came with Terraform 1.14")
	}
	serve(t, acctest.StartCloud(t))
	cli := acctest.StartCLI(t)
	cli.Write(t, "provider \"gpuplan\" {}\n")
	for _, namespace := range []string{"Team_A", "a/b"} {
		list := "list \"gpuplan_training_job\" \"x\" {\n  provider = gpuplan\n  config {\n    namespace = \"" + namespace + "\"\n  }\n}\n"
		require.NoError(t, os.WriteFile(filepath.Join(cli.Dir, "x.tfquery.hcl"), []byte(list), 0o600))
		output, err := cli.Run("query")
		require.Error(t, err, output)
		assert.Regexp(t, acctest.Saying(`namespace: "`+namespace+`" cannot be the name of a namespace`), output)
	}
}
