package trainingjob_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// labelled is a pod with labels, and who it is of, "" for nobody.
func labelled(name string, labels map[string]string, kind, owner string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{
		"schedulerName": contract.SchedulerName,
		"containers":    []any{map[string]any{"name": "c", "resources": map[string]any{"requests": map[string]any{contract.ResourceTopologyGPU: "1"}}}},
	}}}
	obj.SetNamespace("default")
	obj.SetName(name)
	obj.SetLabels(labels)
	if kind != "" {
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: owner, UID: "1", Controller: new(true)}})
	}
	for _, f := range change {
		f(obj)
	}
	return obj
}

// podGroup is a PodGroup j, and the kind for it.
func podGroup(minMember int64, owner string) []*unstructured.Unstructured {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": contract.PodGroupResource + "." + contract.PodGroupGroup},
		"spec": map[string]any{
			"group": contract.PodGroupGroup, "scope": "Namespaced", "names": map[string]any{"kind": contract.PodGroupKind, "plural": contract.PodGroupResource},
			"versions": []any{map[string]any{"name": contract.PodGroupVersion, "served": true}},
		},
	}}
	group := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.PodGroupAPIVersion, "kind": contract.PodGroupKind, "spec": map[string]any{"minMember": minMember},
	}}
	group.SetNamespace("default")
	group.SetName("j")
	if owner != "" {
		group.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: owner, Name: "j", UID: "1", Controller: new(true)}})
	}
	return []*unstructured.Unstructured{crd, group}
}

// What the scheduler would take for a part of the job's gang is refused at plan, or announced.
func TestWhoIsInTheGangOfAJob(t *testing.T) {
	topology := map[string]string{contract.TopologyGroupLabel: "j", contract.TopologyReplicasLabel: "8"}
	ended := func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"phase": "Succeeded"} }
	leaving := func(o *unstructured.Unstructured) {
		o.SetDeletionTimestamp(new(metav1.Now()))
		o.SetFinalizers([]string{"x/y"})
	}
	elsewhere := func(o *unstructured.Unstructured) { o.SetNamespace("other") }
	one := func(o *unstructured.Unstructured) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{o}
	}
	var many []*unstructured.Unstructured
	for i := range 10 {
		many = append(many, labelled(fmt.Sprintf("web-%d", i), topology, "ReplicaSet", "web"))
	}
	const inGang = "The gang of job default/j is called default/j, and a label puts 1 pod into it, not of the job"
	for name, test := range map[string]struct {
		framework, body string
		live            []*unstructured.Unstructured
		refused, warned string // both "": the plan says nothing
	}{
		"nobody":                  {"pytorch", "", nil, "", ""},
		"the label gpu-topology":  {"pytorch", "", one(labelled("web-0", topology, "ReplicaSet", "web")), inGang + " but of the ReplicaSet web: web-0.", ""},
		"the label of a PodGroup": {"mpi", "", one(labelled("web-0", map[string]string{contract.PodGroupLabel: "j"}, "", "")), inGang + ": web-0.", ""},
		"the label of ACK gangs":  {"pytorch", "", one(labelled("web-0", map[string]string{contract.LightGangLabel: "j"}, "", "")), inGang, ""},
		"many": {"pytorch", "", many, "a label puts 10 pods into it, not of the job but of the ReplicaSet web: " +
			"web-0, web-1, web-2, web-3, web-4, web-5, web-6, web-7, 2 more.", ""},
		"a warning alone":             {"pytorch", `placement_check = "warn"`, one(labelled("web-0", topology, "", "")), "", inGang},
		"not checked":                 {"pytorch", `placement_check = "off"`, one(labelled("web-0", topology, "", "")), "", ""},
		"the job's own":               {"pytorch", "", one(labelled("old-0", topology, "PyTorchJob", "j")), "", ""},
		"of one of the other kind":    {"pytorch", "", one(labelled("old-0", topology, "MPIJob", "j")), "", ""},
		"of a role that it had":       {"pytorch", "", one(labelled("j-actor-0-0-x", map[string]string{contract.TopologyGroupLabel: "j", contract.JobSetNameLabel: "j"}, "Job", "j-actor-0")), "", ""},
		"one that has ended":          {"pytorch", "", one(labelled("web-0", topology, "", "", ended)), "", ""},
		"one that is being deleted":   {"pytorch", "", one(labelled("web-0", topology, "", "", leaving)), "", ""},
		"one of another namespace":    {"pytorch", "", one(labelled("web-0", topology, "", "", elsewhere)), "", ""},
		"one of another gang":         {"pytorch", "", one(labelled("web-0", map[string]string{contract.TopologyGroupLabel: "k"}, "", "")), "", ""},
		"a job that is no gang":       {"pytorch", "mode = \"default\"\n  gang = { enabled = false }\n  placement_check = \"warn\"", one(labelled("web-0", topology, "", "")), "", ""},
		"a PodGroup of more members":  {"pytorch", "", podGroup(9, ""), "PodGroup default/j, which no job of this name owns, says that its gang needs 9 members (minMember), and job default/j has 4: the job waits for ever.", ""},
		"a PodGroup of fewer members": {"mpi", "", podGroup(2, ""), "", "needs 2 members (minMember), and job default/j needs 4. The scheduler goes by the PodGroup, so the job may start in part, with 2 of its 4 members."},
		"a PodGroup of more than are needed": {"pytorch", "gang = { minimum = 2 }", podGroup(3, ""), "",
			"needs 3 members (minMember), and job default/j needs 2. The scheduler goes by the PodGroup, so the job waits until there is room for as many."},
		"a PodGroup that says the same":  {"mpi", "", podGroup(4, ""), "", ""},
		"a PodGroup without a minMember": {"mpi", "", podGroup(0, ""), "", ""},
		"the PodGroup of a job":          {"pytorch", "", podGroup(9, "PyTorchJob"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			for _, object := range test.live {
				cloud.API.Put(object)
			}
			terraform := acctest.StartCLI(t)
			terraform.Write(t, oneJob(test.framework, test.body, ""))
			output, err := terraform.Run("plan")
			text := acctest.Unwrapped(output)
			if test.refused != "" {
				require.Error(t, err, output)
				assert.Contains(t, text, test.refused)
				return
			}
			require.NoError(t, err, output)
			if test.warned != "" {
				assert.Contains(t, text, test.warned)
				return
			}
			assert.NotContains(t, text, "Other pods are in")
			assert.NotContains(t, text, "PodGroup")
		})
	}
}

// Who has come into the gang since the plan is seen before a job starts, and when one is resumed.
func TestWhoComesIntoTheGangLater(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	stranger := labelled("web-0", map[string]string{contract.LightGangLabel: "j"}, "", "")
	refused := func(args ...string) {
		t.Helper()
		said, err := cli.Run(args...)
		require.Error(t, err)
		assert.Contains(t, acctest.Unwrapped(said), "a label puts 1 pod into it, not of the job: web-0.")
	}
	remove := func() {
		t.Helper()
		require.NoError(t, cloud.Kube.Delete(t.Context(), stranger.GroupVersionKind(), "default", "web-0"))
	}
	cli.Write(t, oneJob("pytorch", "", ""))
	cli.Must(t, "plan", "-out=tfplan")
	cloud.API.Put(stranger.DeepCopy())
	refused("apply", "tfplan")
	_, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.Error(t, err, "nothing was created")
	remove()

	cli.Write(t, oneJob("pytorch", "suspend = true", ""))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, oneJob("pytorch", "", ""))
	cli.Must(t, "plan", "-out=tfplan")
	cloud.API.Put(stranger.DeepCopy())
	refused("apply", "tfplan")
	refused("plan")
	remove()
	cli.Must(t, "apply", "-auto-approve")
}

// The end of a wait says what the scheduler waits for, not that there is none.
func TestWaitForMembersThatNeverAppear(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"namespace": contract.SystemNamespace, "name": contract.SchedulerName},
		"spec":     map[string]any{"holderIdentity": "host", "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")},
	}})
	for _, object := range podGroup(9, "") {
		cloud.API.Put(object)
	}
	for i := range 4 {
		cloud.API.Put(labelled(fmt.Sprintf("j-worker-%d", i), map[string]string{
			contract.TopologyGroupLabel: "j", contract.JobNameLabel: "j", contract.JobOperatorNameLabel: job.PyTorch.Operators()[0],
		}, "PyTorchJob", "j"))
	}
	cli := acctest.StartCLI(t)
	cli.Write(t, `
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  roles           = { worker = { replicas = 4, gpus = 1 } }
  timeouts        = { create = "8s" }
}
`)
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "the scheduler waits: 5 more pods of gang default/j must appear before it can start")
	assert.NotContains(t, said, "no scheduler has looked")
}

// Where no pod was made and no event says why, the end of a wait says where to look.
func TestWaitForPodsThatNobodyMakes(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	cli.Write(t, `
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "mpi"
  image           = "train:1"
  placement_check = "off"
  roles           = { worker = { replicas = 2, gpus = 1 } }
  timeouts        = { create = "3s" }
}
`)
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")),
		"no pod of it was made, and its operator does not say why: does that run, and what does its log say?")
}
