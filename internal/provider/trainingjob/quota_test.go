package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job whose quota is unknown until apply is held against it by the apply, as a plan that knew it would have done.
func TestQuotaThatIsUnknownAtPlan(t *testing.T) {
	const never = "Job default/j fits on its pools, but can never run within its quota: 4 of 8 members fit"
	for name, test := range map[string]struct {
		input, max, more string
		plan, apply      string // what an error says, "" for none
	}{
		"known":                {input: "4", max: `"4"`, plan: never},
		"unknown, too little":  {input: "4", max: "terraform_data.max.output", apply: never},
		"unknown, enough":      {input: "8", max: "terraform_data.max.output"},
		"unknown, not refused": {input: "4", max: "terraform_data.max.output", more: `placement_check = "warn"`},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": contract.QuotaTreeResource + "." + contract.QuotaTreeGroup},
				"spec": map[string]any{
					"group": contract.QuotaTreeGroup, "scope": "Namespaced", "versions": []any{map[string]any{"name": contract.QuotaTreeVersion, "served": true}},
					"names": map[string]any{"kind": contract.QuotaTreeKind, "plural": contract.QuotaTreeResource},
				},
			}})
			cli := acctest.StartCLI(t)
			cli.Write(t, fmt.Sprintf(`
resource "terraform_data" "max" {
  input = %q
}
resource "gpuplan_quota_tree" "main" {
  total  = { "aliyun.com/gpu" = "8" }
  quotas = { vision = { max = { "aliyun.com/gpu" = %s } } }
}
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "j" {
  name      = "j"
  framework = "pytorch"
  image     = "train:1"
  gang      = {}
  wait_for  = "none"
  quota     = gpuplan_quota_tree.main.leaves["vision"]
  roles     = { worker = { replicas = 8, gpus = 1 } }
  pools     = [gpuplan_node_pool.v100.capacity]
  %s
}
`, test.input, test.max, test.more))
			said, err := cli.Run("plan", "-out=saved")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.plan != "", err != nil, said)
			assert.Contains(t, said, test.plan)
			if test.plan != "" {
				return
			}
			assert.Contains(t, said, `whether job default/j can run within the quota leaf "vision" is checked then`)
			said, err = cli.Run("apply", "saved")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.apply != "", err != nil, said)
			assert.Contains(t, said, test.apply)
		})
	}
}
