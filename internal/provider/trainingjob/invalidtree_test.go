package trainingjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const heldJob = `
resource "gpuplan_training_job" %[1]q {
  name      = %[1]q
  framework = "batch"
  image     = "train:1"
  wait_for  = "none"
  timeouts  = { create = "4s" }
  %[2]s
}
`

const smallPool = `
resource "gpuplan_node_pool" "p" {
  name          = "p"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`

func serveTrees(cloud *acctest.Cloud) {
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": contract.QuotaTreeResource + "." + contract.QuotaTreeGroup},
		"spec": map[string]any{
			"group": contract.QuotaTreeGroup, "scope": "Namespaced", "versions": []any{map[string]any{"name": contract.QuotaTreeVersion, "served": true}},
			"names": map[string]any{"kind": contract.QuotaTreeKind, "plural": contract.QuotaTreeResource},
		},
	}})
}

// putInvalidTree gives a cluster a quota tree from before the admission policy: its leaf a, of a namespace, has more as
// its min than as its max.
func putInvalidTree(cloud *acctest.Cloud, namespace string) {
	serveTrees(cloud)
	amount := func(n string) map[string]any { return map[string]any{"aliyun.com/gpu": n} }
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.QuotaTreeGroup + "/" + contract.QuotaTreeVersion, "kind": contract.QuotaTreeKind,
		"metadata": map[string]any{"namespace": contract.QuotaTreeNamespace, "name": contract.QuotaTreeName},
		"spec": map[string]any{"root": map[string]any{"name": "root", "min": amount("8"), "max": amount("8"), "children": []any{
			map[string]any{"name": "a", "namespaces": []any{namespace}, "min": amount("4"), "max": amount("2")},
		}}},
	}})
}

// What an invalid quota tree governs is held back, and the plan and the apply say so alike, each once; of the rest they say nothing.
func TestInvalidQuotaTree(t *testing.T) {
	const held = "Job default/j is governed by the cluster's quota tree"
	for name, test := range map[string]struct {
		namespace   string // that of the leaf
		more        string
		later       bool // the tree comes after the plan
		plan, apply string
		fails       bool
	}{
		"by its namespace":          {namespace: "default", plan: held, fails: true},
		"by its leaf":               {namespace: "other", more: `quota = "a"`, plan: held, fails: true},
		"by the queue":              {namespace: "other", more: `queue = true`, plan: held, fails: true},
		"not governed":              {namespace: "other"},
		"warned":                    {namespace: "default", more: `placement_check = "warn"`, plan: held, apply: held},
		"warned, by its leaf":       {namespace: "other", more: `quota = "a"` + "\n" + `placement_check = "warn"`, plan: held, apply: held},
		"unchecked":                 {namespace: "default", more: `placement_check = "off"`},
		"since the plan":            {namespace: "default", later: true, apply: held, fails: true},
		"since the plan, warned":    {namespace: "default", later: true, more: `placement_check = "warn"`, apply: held},
		"since the plan, unchecked": {namespace: "default", later: true, more: `placement_check = "off"`},
		"since the plan, another's": {namespace: "default", later: true, more: `scheduler_name = "default-scheduler"`, apply: held, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, smallPool)
			cli.Must(t, "apply", "-auto-approve")
			if !test.later {
				putInvalidTree(cloud, test.namespace)
			}
			cli.Write(t, smallPool+fmt.Sprintf(heldJob, "j", "pools = [gpuplan_node_pool.p.capacity]\n  roles = { worker = { replicas = 2, gpus = 1 } }\n  "+test.more))
			says := func(want, said string) {
				t.Helper()
				assert.Contains(t, said, want)
				assert.Equal(t, want != "", strings.Contains(said, "governed"), said)
				assert.LessOrEqual(t, strings.Count(said, "uota tree is invalid: "), 1, said)
				assert.NotContains(t, said, "is not confirmed")
			}
			said, err := cli.Run("plan", "-out=saved")
			said = acctest.Unwrapped(said)
			says(test.plan, said)
			if test.plan != "" && test.fails {
				assert.Error(t, err, said)
				return
			}
			require.NoError(t, err, said)
			if test.later {
				putInvalidTree(cloud, test.namespace)
			}
			said, err = cli.Run("apply", "saved")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.fails, err != nil, said)
			says(test.apply, said)
			_, err = cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
			assert.Equal(t, test.fails, kube.IsNotFound(err), "%v", err)
		})
	}
}

// A job that an invalid quota tree does not govern starts where it finds room: under such a tree nobody takes from others.
func TestBesideAnInvalidQuotaTree(t *testing.T) {
	for name, test := range map[string]struct {
		gpus int
		says string // what an error of the plan says, "" for none
	}{
		"room":    {gpus: 1},
		"no room": {gpus: 7, says: "Job default/j does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, smallPool)
			cli.Must(t, "apply", "-auto-approve")
			cloud.Put(t, acctest.GangPod("low", "low-0", cloud.NodeNames(t)[0], 0, 1, 2, 3))
			cloud.Put(t, &schedulingv1.PriorityClass{
				TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"}, ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000,
			})
			putInvalidTree(cloud, "other")
			cli.Write(t, smallPool+fmt.Sprintf(heldJob, "j", fmt.Sprintf(`
  priority_class   = "high"
  allow_preemption = true
  roles            = { worker = { replicas = 1, gpus = %d } }
`, test.gpus)))
			said, err := cli.Run("apply", "-auto-approve")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.says != "", err != nil, said)
			assert.Contains(t, said, test.says)
			assert.NotContains(t, said, "would evict")
			assert.NotContains(t, said, "uota tree")
		})
	}
}

// A tree that the same plan repairs is as it will be, whatever Terraform visits first; what starts without it may have to wait.
func TestQuotaTreeThatThePlanRepairs(t *testing.T) {
	const tree = `
resource "gpuplan_quota_tree" "main" {
  total  = { "aliyun.com/gpu" = "8" }
  quotas = { a = { min = { "aliyun.com/gpu" = "4" }, max = { "aliyun.com/gpu" = "8" } } }
}
`
	const governed = "Job default/j is governed by the cluster's quota tree"
	for name, test := range map[string]struct {
		quota string
		args  []string
		says  string // of the plan and the apply, "?" for maybe
	}{
		"the tree first":      {quota: `gpuplan_quota_tree.main.leaves["a"]`},
		"in any order":        {quota: `"a"`, says: "?"},
		"the tree not at all": {quota: `"a"`, args: []string{"-target=gpuplan_training_job.j"}, says: governed},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveTrees(cloud)
			cli := acctest.StartCLI(t)
			cli.Write(t, smallPool+tree)
			cli.Must(t, "apply", "-auto-approve")
			kind := schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}
			object, err := cloud.Kube.Get(t.Context(), kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
			require.NoError(t, err)
			children, _, err := unstructured.NestedSlice(object.Object, "spec", "root", "children")
			require.NoError(t, err)
			children[0].(map[string]any)["max"] = map[string]any{"aliyun.com/gpu": "2"}
			require.NoError(t, unstructured.SetNestedSlice(object.Object, children, "spec", "root", "children"))
			cloud.API.Put(object)
			cli.Write(t, smallPool+tree+fmt.Sprintf(heldJob, "j", "pools = [gpuplan_node_pool.p.capacity]\n  roles = { worker = { replicas = 2, gpus = 1 } }\n  quota = "+test.quota))
			for _, args := range [][]string{append([]string{"plan", "-out=saved"}, test.args...), {"apply", "saved"}} {
				said := acctest.Unwrapped(cli.Must(t, args...))
				if test.says != "?" {
					assert.Equal(t, test.says != "", strings.Contains(said, governed), said)
				}
			}
			_, err = cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
			assert.NoError(t, err)
		})
	}
}
