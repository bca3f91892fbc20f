package nodegpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// pod is a running pod that holds two of the resource on a node.
func pod(name, node string, resource corev1.ResourceName) *corev1.Pod {
	p := acctest.GangPod(name, name+"-0", node)
	amount := corev1.ResourceList{resource: apiresource.MustParse("2")}
	p.Annotations, p.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{Requests: amount, Limits: amount}
	return p
}

// A mode is not taken away from GPUs that are in use, unless that is consented to; what runs in the mode that comes is in
// nobody's way.
func TestGPUsInUse(t *testing.T) {
	const (
		defaultGPU, topologyGPU = contract.ResourceDefaultGPU, contract.ResourceTopologyGPU
		memory                  = contract.ResourceGPUMemory
	)
	for name, test := range map[string]struct {
		before, after string // "" for none
		drifts        string // the mode that someone labels gpu-1 with in between
		pod           *corev1.Pod
		says          string // "" for a plan that passes
	}{
		"created":               {"", "topology", "", pod("train", "gpu-1", defaultGPU), "The plan switches nodes gpu-1, gpu-2 from mode default to topology, and pods there are not done with it: default/train (on gpu-1)."},
		"as it is":              {"", "default", "", pod("train", "gpu-1", defaultGPU), ""},
		"elsewhere":             {"", "topology", "", pod("train", "other", defaultGPU), ""},
		"changed":               {"topology", "share", "", pod("train", "gpu-2", topologyGPU), "The plan switches nodes gpu-1, gpu-2 from mode topology to share, and pods there are not done with it: default/train (on gpu-2)."},
		"shared otherwise":      {"share", "cgpu", "", pod("train", "gpu-2", memory), "from mode share to cgpu, and pods there are not done with it"},
		"without GPUs":          {"topology", "default", "", pod("train", "gpu-2", corev1.ResourceCPU), ""},
		"destroyed":             {"topology", "", "", pod("train", "gpu-2", topologyGPU), "The plan takes mode topology away from nodes gpu-1, gpu-2, and pods there are not done with it: default/train (on gpu-2)."},
		"destroyed, default":    {"default", "", "", pod("train", "gpu-2", defaultGPU), ""},
		"repaired":              {"topology", "topology", "default", pod("train", "gpu-1", topologyGPU), ""},
		"repaired under others": {"topology", "topology", "default", pod("train", "gpu-1", defaultGPU), "The plan switches node gpu-1 from mode default to topology, and pods there are not done with it"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			cli := acctest.StartCLI(t)
			config := func(mode, more string) string {
				if mode == "" {
					return ""
				}
				return with(fmt.Sprintf("mode = %q", mode), more)
			}
			cli.Write(t, config(test.before, ""))
			cli.Must(t, "apply", "-auto-approve")
			if test.drifts != "" {
				label(t, cloud, "gpu-1", contract.NodeModeLabel, test.drifts)
			}
			cloud.Put(t, test.pod)
			cli.Write(t, config(test.after, ""))
			said, err := cli.Run("plan", "-out=plan")
			if test.says == "" {
				require.NoError(t, err, said)
				return
			}
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)
			assert.Contains(t, acctest.Unwrapped(said), "set allow_disruption = true")

			if test.after == "" {
				cli.Write(t, config(test.before, "allow_disruption = true"))
				cli.Must(t, "apply", "-auto-approve")
			}
			cli.Write(t, config(test.after, "allow_disruption = true"))
			said = cli.Must(t, "apply", "-auto-approve")
			assert.Contains(t, acctest.Unwrapped(said), "which allow_disruption permits, and pods there are not done with it: default/train")
		})
	}
}

// A name by which pods select their nodes is not taken away either.
func TestNameInUse(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, with())
	cli.Must(t, "apply", "-auto-approve")
	selecting := pod("train", "gpu-2", contract.ResourceTopologyGPU)
	selecting.Spec.NodeSelector = map[string]string{contract.NodePoolNameLabel: "v100"}
	cloud.Put(t, selecting)
	cloud.Put(t, pod("other", "gpu-1", contract.ResourceTopologyGPU))
	for more, named := range map[string]string{`name = "a100"`: "nodes gpu-1, gpu-2", `nodes = ["gpu-1"]`: "node gpu-2"} {
		cli.Write(t, with(more))
		said, err := cli.Run("plan")
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), "The plan takes the name v100 away from "+named+", and pods there are not done with it: default/train (on gpu-2).")
	}
	cli.Write(t, with(`name = "a100"`, `allow_disruption = true`))
	cli.Must(t, "apply", "-auto-approve")
	assert.Equal(t, "a100", labelsOf(t, cloud, "gpu-2")[contract.NodePoolNameLabel])
}

// An apply looks once more.
func TestGPUsInUseByThen(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, with())
	cli.Must(t, "plan", "-out=plan")
	cloud.Put(t, pod("train", "gpu-1", contract.ResourceDefaultGPU))
	said, err := cli.Run("apply", "plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "and pods there are not done with it: default/train (on gpu-1)")
	assert.NotContains(t, labelsOf(t, cloud, "gpu-2"), contract.NodeModeLabel, "nothing is done by half")
}

// Jobs are planned on the nodes as the plan makes them, and on none that it does not know of.
func TestJobsOnNodesAsTheyWillBe(t *testing.T) {
	job := func(mode, more string) string {
		return fmt.Sprintf("resource \"gpuplan_training_job\" \"j\" {\n  name = \"j\"\n  framework = \"pytorch\"\n  image = \"x\"\n  mode = %q\n  wait_for = \"none\"\n  roles = { worker = { replicas = 2, gpus = 8 } }\n  %s\n}\n", mode, more)
	}
	const after, pools = "depends_on = [gpuplan_node_gpu.x]", "pools = [gpuplan_node_gpu.x.capacity]"
	for name, test := range map[string]struct {
		labelled bool // before the plan
		config   string
		says     string // "" for nothing
		fails    bool
	}{
		"in the mode to come":     {false, with() + job("topology", after), "", false},
		"in the mode that was":    {false, with() + job("default", after), "Gang does not fit", true},
		"without the resource":    {false, job("topology", ""), "Gang does not fit", true},
		"more than there is":      {false, with(`nodes = ["gpu-1"]`) + job("topology", after), "Gang does not fit", true},
		"on the capacity to come": {false, with() + job("topology", pools), "Whether the job fits is not checked: pools is unknown until apply.", false},
		"on the capacity":         {true, with() + job("topology", pools), "", false},
		"on that of fewer nodes":  {true, with(`nodes = ["gpu-1"]`) + job("topology", after), "Gang does not fit", true},
		"after the destroy":       {true, job("topology", ""), "oes not fit", true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			crd := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec: {group: kubeflow.org, scope: Namespaced, names: {kind: PyTorchJob, plural: pytorchjobs}, versions: [{name: v1, served: true, storage: true}]}
`), &crd.Object))
			cloud.API.Put(crd)
			cli := acctest.StartCLI(t)
			if test.labelled {
				cli.Write(t, with())
				cli.Must(t, "apply", "-auto-approve")
			}
			cli.Write(t, test.config)
			said, err := cli.Run("plan")
			assert.Equal(t, test.fails, err != nil, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)
			if test.says == "" {
				assert.NotContains(t, said, "is not checked")
				assert.Equal(t, test.labelled, strings.Contains(said, `"gpu-2" = "worker-1 GPU 0-7`), said)
			}
		})
	}
}

// Jobs of the same configuration may leave by the time of the apply, which looks once more.
func TestJobsOfThisConfiguration(t *testing.T) {
	cloud := start(t)
	ours := pod("train", "gpu-1", contract.ResourceDefaultGPU)
	ours.Labels[contract.ManagedByLabel], ours.Labels[contract.OwnerLabel] = contract.ManagedByValue, "us"
	cloud.Put(t, ours)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("us")+with())
	cli.Must(t, "plan", "-out=plan")
	said, err := cli.Run("apply", "plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "and pods there are not done with it: default/train (on gpu-1)")
	cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Pod"), "default", "train-0")
	cli.Must(t, "apply", "-auto-approve")
}

// Nodes without GPUs are warned of at plan, and those whose device plugin does not follow the label at apply.
func TestNodesThatOfferNothing(t *testing.T) {
	cloud := acctest.StartCloud(t)
	put(t, cloud, "gpu-1", nil)
	cloud.Put(t, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "cpu-1"}})
	cli := acctest.StartCLI(t)
	cli.Write(t, with(`nodes = ["cpu-1", "gpu-1"]`, `timeouts = { create = "10s" }`))
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "Nobody knows of GPUs on node cpu-1:")
	assert.Contains(t, said, "The labels are written, and no GPUs are offered in mode topology on nodes cpu-1, gpu-1.")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.", "the labels are there")
}
