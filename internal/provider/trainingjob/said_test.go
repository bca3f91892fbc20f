package trainingjob_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// counted are the warnings in Terraform's output that are the provider's, by their headlines: of several Terraform prints the first.
func counted(output string) map[string]int {
	all := map[string]int{}
	for i, section := range strings.Split(output, "Warning: ") {
		headline, body, _ := strings.Cut(section, "\n")
		if i == 0 || headline == "Provider development overrides are in effect" {
			continue
		}
		all[headline]++
		if more := regexp.MustCompile(`\(and (\w+) more similar`).FindStringSubmatch(body); more != nil {
			n, err := strconv.Atoi(more[1])
			if err != nil {
				n = 1 // "one"
			}
			all[headline] += n
		}
	}
	return all
}

// warnings are their headlines.
func warnings(output string) []string { return slices.Sorted(maps.Keys(counted(output))) }

// needs is what the pods of a job name, and absent what a plan says where the cluster has nothing of that.
const needs = `
  priority_class     = "p"
  service_account    = "a"
  image_pull_secrets = ["s"]
  volumes            = { data = { claim = "c", mount_path = "/data" } }
`

var absent = []string{"PriorityClass does not exist", "ServiceAccount does not exist", "Secret does not exist", "PersistentVolumeClaim does not exist"}

// needed are the objects that a job needs in its namespace.
func needed() (all []*unstructured.Unstructured) {
	for _, of := range []struct{ version, kind, namespace, name string }{
		{"scheduling.k8s.io/v1", "PriorityClass", "", "p"},
		{"v1", "ServiceAccount", "default", "a"},
		{"v1", "Secret", "default", "s"},
		{"v1", "PersistentVolumeClaim", "default", "c"},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": of.version, "kind": of.kind}}
		obj.SetNamespace(of.namespace)
		obj.SetName(of.name)
		all = append(all, obj)
	}
	_ = unstructured.SetNestedField(all[2].Object, "kubernetes.io/dockerconfigjson", "type")
	_ = unstructured.SetNestedField(all[3].Object, "Bound", "status", "phase")
	return all
}

func namespace() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	obj.SetName("default")
	return obj
}

// startProgram returns a Terraform that starts the provider's program for each walk, as users have it.
func startProgram(t *testing.T) *acctest.CLI {
	t.Helper()
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	return acctest.NewCLI(t, provider)
}

// An apply, in whatever order it visits the resources, repeats nothing of what the plan has said, be that plan a saved one or its
// own.
func TestWhatThePlanHasSaidIsNotSaidAgain(t *testing.T) {
	const behind = `
resource "gpuplan_training_job" "too_big" {
  name            = "too-big"
  framework       = "pytorch"
  image           = "train:1"
  wait_for        = "none"
  placement_check = "warn"
  roles           = { worker = { replicas = 9, gpus = 1 } }
  pools           = [gpuplan_node_pool.v100.capacity]
  after           = [gpuplan_training_job.j.placed]
}
`
	for name, test := range map[string]struct {
		config  string
		objects []*unstructured.Unstructured
		says    []string
	}{
		"no namespace": {oneJob("pytorch", "", behind), nil, []string{"No scheduler runs that places the job", "Namespace does not exist", "Gang does not fit"}},
		"nothing that the pods name": {oneJob("pytorch", needs, behind), []*unstructured.Unstructured{namespace()},
			append(slices.Clone(absent), "No scheduler runs that places the job", "Gang does not fit")},
	} {
		start := func(t *testing.T) *acctest.CLI {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			for _, obj := range test.objects {
				cloud.API.Put(obj)
			}
			terraform := startProgram(t)
			terraform.Write(t, test.config)
			terraform.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.v100")
			return terraform
		}
		t.Run(name+", saved plan", func(t *testing.T) {
			terraform := start(t)
			planned := warnings(terraform.Must(t, "plan", "-out=saved"))
			assert.Subset(t, planned, test.says)
			again := warnings(terraform.Must(t, "apply", "-parallelism=1", "saved"))
			assert.Empty(t, slices.DeleteFunc(again, func(w string) bool { return !slices.Contains(planned, w) }))
		})
		t.Run(name+", plan of its own", func(t *testing.T) {
			terraform := start(t)
			planned := counted(terraform.Must(t, "plan"))
			applied := counted(terraform.Must(t, "apply", "-parallelism=1", "-auto-approve"))
			for _, warning := range test.says {
				assert.Positive(t, planned[warning], warning)
				assert.Equal(t, planned[warning], applied[warning], warning)
			}
		})
	}
}

// What was there when the plan was made, and is gone by the time that the job is created, the apply says.
func TestWhatIsGoneSinceThePlanIsSaid(t *testing.T) {
	start := func(t *testing.T) (*acctest.Cloud, *acctest.CLI) {
		cloud := acctest.StartCloud(t)
		serveJobs(cloud)
		for _, obj := range append(needed(), namespace()) {
			cloud.API.Put(obj)
		}
		terraform := startProgram(t)
		terraform.Write(t, oneJob("pytorch", needs, ""))
		return cloud, terraform
	}
	remove := func(cloud *acctest.Cloud) {
		for _, obj := range needed() {
			cloud.API.Remove(obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		}
	}
	t.Run("saved plan", func(t *testing.T) {
		cloud, terraform := start(t)
		planned := warnings(terraform.Must(t, "plan", "-out=saved"))
		assert.Empty(t, slices.DeleteFunc(planned, func(w string) bool { return !slices.Contains(absent, w) }))
		remove(cloud)
		assert.ElementsMatch(t, absent, warnings(terraform.Must(t, "apply", "saved")))
	})
	t.Run("plan of its own", func(t *testing.T) {
		cloud, terraform := start(t)
		cloud.Meanwhile(t, "nodepools", func() { remove(cloud) })
		assert.Subset(t, warnings(terraform.Must(t, "apply", "-auto-approve")), absent)
	})
}
