package trainingjob_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const quotaTree = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: elasticquotatrees.scheduling.sigs.k8s.io}
spec:
  group: scheduling.sigs.k8s.io
  scope: Namespaced
  names: {kind: ElasticQuotaTree, plural: elasticquotatrees}
  versions: [{name: v1beta1, served: true, storage: true}]
---
apiVersion: scheduling.sigs.k8s.io/v1beta1
kind: ElasticQuotaTree
metadata: {name: elasticquotatree, namespace: kube-system}
spec:
  root:
    name: root
    min: {aliyun.com/gpu: 16}
    max: {aliyun.com/gpu: 16}
    children:
    - name: vision
      max: {aliyun.com/gpu: 4}
`

// The cluster's own quota tree decides when the configuration has none.
func TestPlanChecksTheLiveQuota(t *testing.T) {
	cloud := acctest.StartCloud(t)
	for _, text := range strings.Split(quotaTree, "---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
		cloud.API.Put(object)
	}
	busy := acctest.GangPod("busy", "busy-worker-0", "elsewhere", 0, 1, 2)
	busy.Labels[contract.QuotaLabel] = "vision"
	cloud.Put(t, busy)

	plan := func(variables config.Variables, want string) resource.TestStep {
		s := resource.TestStep{ConfigFile: config.StaticFile("testdata/live-quota/main.tf"), ConfigVariables: variables, PlanOnly: true, ExpectNonEmptyPlan: want == ""}
		if want != "" {
			s.ExpectError = acctest.Saying(want)
		}
		return s
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			plan(config.Variables{"workers": config.IntegerVariable(1)}, ""),
			plan(nil, ""), // it waits, which is a warning
			plan(config.Variables{"require_immediate": config.BoolVariable(true)}, "Job default/vgg16 fits on its pools, but not into its quota beside what runs now"),
			plan(config.Variables{"workers": config.IntegerVariable(5)}, "Job default/vgg16 fits on its pools, but can never run within its quota"),
			plan(config.Variables{"quota": config.StringVariable("sound")},
				`Job default/vgg16 is charged to the quota leaf "sound", which the cluster's quota tree does not have; its leaves are vision.`),
		},
	})
}

// A cluster that cannot run a job says so: at plan where the plan looks, else at apply.
func TestClustersThatCannotRunJobs(t *testing.T) {
	cloud := acctest.StartCloud(t)
	file := config.StaticFile("testdata/no-pools/main.tf")
	off := config.Variables{"placement_check": config.StringVariable("off")}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:  file,
			PlanOnly:    true,
			ExpectError: acctest.Saying("Job default/vgg16 does not fit: 0 of 4 members fit"),
		}, {
			ConfigFile:      file,
			ConfigVariables: off,
			ExpectError:     acctest.Saying("The cluster serves no MPIJob: install the Kubeflow training operator 1.9, or the MPI operator 0.5 or later."),
		}, {
			PreConfig:   func() { acctest.WriteKubeconfig(t, cloud.Kubeconfig, "http://127.0.0.1:1") },
			ConfigFile:  file,
			PlanOnly:    true,
			ExpectError: acctest.Saying("reach the Kubernetes API at http://127.0.0.1:1: connection refused"),
		}, {
			ConfigFile:      file,
			ConfigVariables: off,
			ExpectError:     acctest.Saying("reach the Kubernetes API at http://127.0.0.1:1: connection refused"),
		}},
	})
}
