package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// warning is what an operator says of an object, at a time.
func warning(kind, name string, uid types.UID, at int64, text string) corev1.Event {
	return corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: named(name + "." + text), Type: corev1.EventTypeWarning, Reason: "FailedCreate", Message: text,
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "ns", Name: name, UID: uid}, LastTimestamp: metav1.NewTime(time.Unix(at, 0)),
	}
}

// jobObject is a job of two workers with so many GPUs each, as its operator finds it.
func jobObject(t *testing.T, framework trainingjob.Framework, gpus int64) *unstructured.Unstructured {
	t.Helper()
	object, err := trainingjob.Spec{
		Namespace: "ns", Name: "train", Framework: framework, Mode: trainingjob.Topology,
		Roles: map[string]trainingjob.Role{"worker": {Replicas: 2, GPUs: gpus, Image: "i"}},
	}.Complete().Render()
	require.NoError(t, err)
	object.SetUID("job")
	return object
}

func answersTo(t *testing.T, around Around, name string) string {
	t.Helper()
	var text strings.Builder
	for _, a := range Find(clustercache.New().Snapshot(), around, "ns", name) {
		assert.Equal(t, Incomplete, a.State)
		require.NoError(t, a.WriteFixes(&text))
	}
	return text.String()
}

// A job whose pods are refused is there all the same, and the last warning says why it has none.
func TestJobsWithoutPods(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	read := func() Around {
		around, err := ReadAround(t.Context(), client, "ns")
		require.NoError(t, err)
		return around
	}
	put := func(event corev1.Event) {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&event)
		require.NoError(t, err)
		server.Put(&unstructured.Unstructured{Object: object})
	}
	server.Put(jobObject(t, trainingjob.Batch, 1))
	job, err := client.Typed.BatchV1().Jobs("ns").Get(t.Context(), "train", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "Job ns/train has no pods that ask for GPUs: nothing says why, neither its conditions nor an event. After an eviction that is so until its controller makes them again, which may wait a while (back-off).\n", answersTo(t, read(), "train"))

	put(warning("Job", "train", job.UID, 1, "first"))
	put(warning("Job", "train", job.UID, 3, "exceeded quota"))
	put(warning("Job", "train", job.UID, 2, "second"))
	put(warning("Job", "train", "an earlier job", 4, "third"))
	put(warning("Pod", "train", job.UID, 4, "fourth"))
	put(warning("Job", "train", job.UID, 4, "Created worker pod: ")) // as the training operator says of MPIJobs
	assert.Equal(t, "Job ns/train has no pods that ask for GPUs: FailedCreate of Job train: exceeded quota.\n", answersTo(t, read(), "train"))
	assert.Empty(t, answersTo(t, read(), "other"))

	ignorant := read()
	ignorant.warnings, ignorant.warned = nil, false
	assert.Contains(t, answersTo(t, ignorant, "train"), "why could not be looked at: you may not list events.")

	// With pods, the answer is about them.
	cache := clustercache.New()
	pod := &corev1.Pod{ObjectMeta: named("train-0"), Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName}}
	pod.UID, pod.Labels = "pod", map[string]string{contract.JobNameLabel: "train", contract.LightGangLabel: "train", contract.LightGangMinLabel: "2"}
	cache.SetPod(pod)
	answers := Find(cache.Snapshot(), read(), "ns", "train")
	require.Len(t, answers, 1)
	assert.Empty(t, answers[0].Job)

	server.Put(jobObject(t, trainingjob.Batch, 0))
	assert.Empty(t, answersTo(t, read(), "train"), "it asks for none")
}

// What makes the pods may be made by the operator of the job.
func TestWhoMakesPods(t *testing.T) {
	part := unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
	part.SetUID("part")
	yes := true
	part.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: contract.JobSetGroup + "/v1alpha2", Kind: contract.JobSetKind, Name: "train", UID: "job", Controller: &yes}})
	other := *part.DeepCopy()
	other.SetUID("other")
	other.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: contract.JobSetGroup + "/v1alpha2", Kind: contract.JobSetKind, Name: "else", UID: "else", Controller: &yes}})
	job, ok := openJobOf(jobObject(t, trainingjob.JobSet, 1), []unstructured.Unstructured{part, other})
	require.True(t, ok)
	for name, test := range map[string]struct {
		event corev1.Event
		want  bool
	}{
		"itself":            {warning("JobSet", "train", "job", 1, "x"), true},
		"its part":          {warning("Job", "train-worker-0", "part", 1, "x"), true},
		"another's part":    {warning("Job", "else-worker-0", "other", 1, "x"), false},
		"one of its name":   {warning("JobSet", "train", "earlier", 1, "x"), false},
		"no set of workers": {warning("StatefulSet", "train-worker", "set", 1, "x"), false},
	} {
		assert.Equal(t, test.want, job.concerns(&test.event), name)
	}
	job.set, job.made = trainingjob.WorkerSet("train"), time.Unix(5, 0)
	for at, want := range map[int64]bool{4: false, 5: true} {
		event := warning("StatefulSet", "train-worker", "set", at, "x")
		assert.Equal(t, want, job.concerns(&event), "a set at %d", at)
	}
}

// A queued job is told what would make it fit, as the plan of it is: the queue's word says only what stops it. Its
// queue has the name under which users know it.
func TestQueuedJob(t *testing.T) {
	cache := clustercache.New()
	offers := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80"), corev1.ResourcePods: resource.MustParse("10"), contract.ResourceTopologyGPU: resource.MustParse("8")}
	_, err := cache.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge", corev1.LabelHostname: "a"}},
		Status:     corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	})
	require.NoError(t, err)
	_, err = cache.SetQuotaTree(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{"name": "root", "children": []any{
		map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": map[string]any{contract.ResourceTopologyGPU: int64(1), contract.MaxJobsKey: "8"}},
	}}}}})
	require.NoError(t, err)

	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	job := jobObject(t, trainingjob.Batch, 1)
	require.NoError(t, unstructured.SetNestedField(job.Object, true, "spec", "suspend"))
	server.Put(job)
	for kind, plural := range map[string]string{contract.QueueKind: "queues", contract.QueueUnitKind: "queueunits"} {
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + contract.QueueGroup},
			"spec": map[string]any{
				"group": contract.QueueGroup, "scope": "Namespaced", "names": map[string]any{"kind": kind, "plural": plural},
				"versions": []any{map[string]any{"name": contract.QueueVersion, "served": true, "storage": true}},
			},
		}})
	}
	version := contract.QueueGroup + "/" + contract.QueueVersion
	server.Put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": contract.QueueKind, "metadata": map[string]any{
		"namespace": contract.QueueNamespace, "name": "root-team-x1", "annotations": map[string]any{contract.QueuePathAnnotation: "root/team"},
	}}})
	server.Put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": contract.QueueUnitKind, "metadata": map[string]any{"namespace": "ns", "name": "train"},
		"spec":   map[string]any{"queue": "root-team-x1", "consumerRef": map[string]any{"kind": "Job", "name": "train"}},
		"status": map[string]any{"phase": string(contract.UnitEnqueued), "position": int64(1), "message": "it is full"},
	}})
	says := func() string {
		around, err := ReadAround(t.Context(), client, "ns")
		require.NoError(t, err)
		answers := Find(cache.Snapshot(), around, "ns", "train")
		require.Len(t, answers, 1)
		var text strings.Builder
		require.NoError(t, answers[0].WriteFixes(&text))
		return text.String()
	}
	assert.Contains(t, says(), "\n  2. a minimum of 1 member (now 2)\n")
	unstructured.RemoveNestedField(job.Object, "spec", "template", "metadata", "labels") // now it is no gang
	server.Put(job)
	assert.Equal(t, `Job ns/train is held by the job queue: position 1 in queue root/team: it is full.

It would fit with any one of these, each of them planned
  1. quota max 2 (now 1) of aliyun.com/gpu for root/team
`, says())
}

// What a TrainJob's pods are its JobSet says.
func TestTrainJobByItsJobSet(t *testing.T) {
	_, bare := trainingjob.Split(jobObject(t, trainingjob.TrainJob, 1))
	bare.SetUID("job")
	set := jobObject(t, trainingjob.JobSet, 1)
	set.SetUID("set")
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(bare, bare.GroupVersionKind())})
	parts := []unstructured.Unstructured{*set}
	assert.Same(t, &parts[0], setOf(bare, parts))
	_, ok := openJobOf(setOf(bare, parts), parts)
	assert.True(t, ok)
	other := bare.DeepCopy()
	other.SetUID("other")
	assert.Same(t, other, setOf(other, parts))
}

// A TrainJob whose JobSet is refused is there all the same, and Kubeflow Trainer says why it has none.
func TestTrainJobWithoutAJobSet(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	server.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": contract.TrainJobResource + "." + contract.TrainerGroup},
		"spec": map[string]any{
			"group": contract.TrainerGroup, "scope": "Namespaced", "names": map[string]any{"kind": contract.TrainJobKind, "plural": contract.TrainJobResource},
			"versions": []any{map[string]any{"name": contract.TrainerVersion, "served": true, "storage": true}},
		},
	}})
	_, bare := trainingjob.Split(jobObject(t, trainingjob.TrainJob, 1))
	server.Put(bare)
	live, err := client.Get(t.Context(), trainingjob.TrainJob.GVK(), "ns", "train")
	require.NoError(t, err)
	event := warning(contract.TrainJobKind, "train", live.GetUID(), 1, "TrainJob resources reconciliation failed: exceeded quota")
	event.Reason = "TrainJobResourcesCreationFailed"
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&event)
	require.NoError(t, err)
	server.Put(&unstructured.Unstructured{Object: object})
	around, err := ReadAround(t.Context(), client, "ns")
	require.NoError(t, err)
	assert.Equal(t, "TrainJob ns/train has no pods that ask for GPUs: TrainJobResourcesCreationFailed of TrainJob train: TrainJob resources reconciliation failed: exceeded quota.\n",
		answersTo(t, around, "train"))
}
