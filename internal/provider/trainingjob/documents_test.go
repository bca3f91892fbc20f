package trainingjob_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

var update = flag.Bool("update", false, "write the manifests of the documents again")

var (
	// terraformBlock is a block of a guide's configuration.
	terraformBlock = regexp.MustCompile("(?ms)^```terraform\n(.*?)^```$")
	// programs are blocks about what the jobs need once they are created.
	programs = regexp.MustCompile(`(?ms)^(terraform|resource "gpuplan_(scheduler|node_agent)" "this") {\n.*?^}\n`)
)

// The documents' jobs, as their guides have them in Terraform, become the manifests in testdata/documents: every parameter
// of the documents' commands and manifests is there.
func TestManifestsOfTheDocuments(t *testing.T) {
	for guide, jobs := range map[string]map[string]job.Framework{
		"topology-mpi": {
			"pytorch-topo-4-vgg16": job.MPI, "pytorch-4-vgg16": job.MPI, "pytorch-topo-4-resnet50": job.MPI, "pytorch-4-resnet50": job.MPI,
		},
		"topology-pytorchjob": {"pytorch-dist-regular": job.PyTorch, "pytorch-dist-nccl": job.PyTorch},
		"shared-gpus":         {"cuda-sample": job.Batch},
		"erdma":               {"pytorch-mnist": job.PyTorch},
	} {
		t.Run(guide, func(t *testing.T) {
			page, err := os.ReadFile(filepath.Join("../../../docs/guides", guide+".md"))
			require.NoError(t, err)
			var config strings.Builder
			for _, block := range terraformBlock.FindAllStringSubmatch(string(page), -1) {
				config.WriteString(block[1] + "\n")
			}
			const running = "  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]\n"
			require.Equal(t, len(jobs), strings.Count(config.String(), running))
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			t.Setenv("GPUPLAN_OWNER", "documents") // else a new one each time
			cli := acctest.StartCLI(t)
			cli.Write(t, programs.ReplaceAllString(strings.ReplaceAll(config.String(), running, "  wait_for = \"none\"\n"), ""))
			cli.Must(t, "apply", "-auto-approve")
			for name, framework := range jobs {
				object, err := cloud.Kube.Get(t.Context(), framework.GVK(), "default", name)
				require.NoError(t, err)
				manifest, err := yaml.Marshal(map[string]any{
					"metadata": map[string]any{"name": object.GetName(), "labels": object.GetLabels(), "annotations": object.GetAnnotations()}, "spec": object.Object["spec"],
				})
				require.NoError(t, err)
				golden := filepath.Join("testdata", "documents", name+".yaml")
				if *update {
					require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o700))
					require.NoError(t, os.WriteFile(golden, manifest, 0o600))
				}
				want, err := os.ReadFile(golden)
				require.NoError(t, err)
				assert.Equal(t, string(want), string(manifest))
			}
		})
	}
}
