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

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

func bindingOf(t *testing.T, fields map[string]any) *fleet.Binding {
	t.Helper()
	binding, err := fleet.BindingOf(&unstructured.Unstructured{Object: fields})
	require.NoError(t, err)
	return binding
}

// A job on a hub that is in no cluster says whom it waits for.
func TestHubJob(t *testing.T) {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.KubeflowGroup + "/" + contract.KubeflowVersion, "kind": contract.PyTorchJobKind,
		"metadata": map[string]any{"name": "a", "namespace": "ns"},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{
			"replicas": int64(2), "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": contract.PyTorchContainerName}}}},
		}}},
	}}
	binding := func(held bool, conditions ...any) *fleet.Binding {
		return bindingOf(t, map[string]any{
			"metadata": map[string]any{"name": "a-pytorchjob", "namespace": "ns", "creationTimestamp": "2026-11-01T12:00:00Z"},
			"spec":     map[string]any{"schedulerName": contract.FleetSchedulerName, "suspension": map[string]any{"scheduling": held}},
			"status":   map[string]any{"conditions": conditions},
		})
	}
	unit := &contract.QueueUnit{}
	unit.Status.Position, unit.Status.Message = 2, "1 of 1 jobs run"
	unit.CreationTimestamp = metav1.Date(2026, 11, 1, 11, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		binding  *fleet.Binding
		unit     *contract.QueueUnit
		state    State
		headline string
		since    string
	}{
		"no policy": {nil, nil, Incomplete, "PyTorchJob ns/a has no pods that ask for GPUs: no policy of the hub sends it to a cluster.", ""},
		"no place": {
			binding(false, map[string]any{"type": contract.BindingScheduled, "status": "False", "reason": "NoClusterFit", "message": "x: no room; y: no room.", "lastTransitionTime": "2026-11-01T13:00:00Z"}),
			nil, Waiting, "PyTorchJob ns/a is in no cluster of the fleet: x: no room; y: no room.", "13:00",
		},
		"nobody has looked": {binding(false), nil, Waiting, "PyTorchJob ns/a is in no cluster of the fleet: gpuplan-fleet-scheduler has said nothing of it yet.", "12:00"},
		"in the queue":      {binding(true), unit, Queued, "PyTorchJob ns/a is held by the job queue: position 2 in queue root/x: 1 of 1 jobs run.", "11:00"},
		"in no queue": {
			binding(true), nil, Suspended,
			"PyTorchJob ns/a has no pods: its policy holds it for a queue, and it is in none: give a leaf of the hub's quota tree its namespace.", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := trainingjob.Expected(job)
			require.NoError(t, err)
			j := HubJob{heldJob: heldJob{kind: contract.PyTorchJobKind, namespace: "ns", name: "a", object: job, unit: test.unit, queue: "root/x"}, binding: test.binding, pods: pods}
			a := j.Answer()
			assert.Equal(t, test.state, a.State)
			assert.Equal(t, test.headline, a.headline())
			assert.Equal(t, 2, a.Needed)
			since := ""
			if !a.Since.IsZero() {
				since = a.Since.UTC().Format("15:04")
			}
			assert.Equal(t, test.since, since)
			assert.Empty(t, j.Clusters())
			assert.True(t, j.Is("ns", "a"))
		})
	}
}

// hubJob is a Job on a hub of one pod that asks for so many GPUs, and goes by a policy to the cluster east.
func hubJob(t *testing.T, gpus string, spec, status map[string]any) HubJob {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "a", "namespace": "ns"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "c", "resources": map[string]any{"limits": map[string]any{contract.ResourceTopologyGPU: gpus}},
		}}}}},
	}}
	pods, err := trainingjob.Expected(object)
	require.NoError(t, err)
	if spec == nil {
		spec = map[string]any{}
	}
	spec["resource"] = map[string]any{"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "a"}
	return HubJob{
		heldJob: heldJob{kind: "Job", namespace: "ns", name: "a", object: object}, pods: pods,
		binding: bindingOf(t, map[string]any{"spec": spec, "status": status}),
	}
}

// A job that the hub has sent to a cluster which says nothing of it is not a job that there is not.
func TestHubJobInACluster(t *testing.T) {
	j := hubJob(t, "1", map[string]any{"clusters": []any{map[string]any{"name": "east"}, map[string]any{"name": "west"}}}, map[string]any{"aggregatedStatus": []any{
		map[string]any{"clusterName": "west", "appliedMessage": "jobs is forbidden: no"}, map[string]any{"clusterName": "east", "applied": true},
	}})
	assert.Equal(t, []string{"east", "west"}, j.Clusters())
	for want, a := range map[string]Answer{
		"Job ns/a is not in the answer: the hub has sent it to east, which could not be read.":              j.AnswerIn("east", false),
		"Job ns/a has no pods that ask for GPUs: the hub has sent it to east, which has no pods of it yet.": j.AnswerIn("east", true),
		"Job ns/a has no pods that ask for GPUs: west does not take it: jobs is forbidden: no.":             j.AnswerIn("west", true),
	} {
		assert.Equal(t, want, a.headline())
		assert.Equal(t, 1, a.Needed)
	}
	assert.Equal(t, "west", j.AnswerIn("west", true).Cluster)
	assert.True(t, j.MissingIn("west", clustercache.New().Snapshot()))
	assert.False(t, j.MissingIn("east", clustercache.New().Snapshot()), "it was applied there")
	deleted := metav1.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	j.object.SetDeletionTimestamp(&deleted)
	assert.Equal(t, "Job ns/a has no pods that ask for GPUs: it is being deleted.", j.Answer().headline())
	list, _ := j.FixesIn(nil, oneNode(t).Snapshot())
	assert.Empty(t, list)
}

// A job that has failed in a cluster which it has left waits for another one, and has not ended.
func TestHubJobThatHasFailedElsewhere(t *testing.T) {
	failed := map[string]any{"conditions": []any{map[string]any{"type": "Failed", "status": "True"}}}
	in := func(cluster string) map[string]any {
		return map[string]any{"aggregatedStatus": []any{map[string]any{"clusterName": cluster, "status": failed}}}
	}
	east := map[string]any{"clusters": []any{map[string]any{"name": "east"}}}
	for name, test := range map[string]struct {
		spec, status map[string]any
		finished     bool
	}{
		"where it is":    {east, in("east"), true},
		"where it was":   {east, in("west"), false},
		"it waits":       {nil, in("east"), false},
		"nobody says so": {nil, nil, false},
	} {
		j := hubJob(t, "1", test.spec, test.status)
		j.object.Object["status"] = failed
		assert.Equal(t, test.finished, j.finished(), name)
		j.binding = nil
		assert.True(t, j.finished(), name)
	}
	j := hubJob(t, "1", nil, nil)
	j.object.SetUID("u")
	assert.False(t, j.finished())
	j.binding.Annotations = map[string]string{contract.SucceededAnnotation: "u"}
	assert.True(t, j.finished(), "its cluster has told so")
}

// Without the right to see the queue nobody is told that the job is in none.
func TestHubJobInAQueueThatMayNotBeListed(t *testing.T) {
	j := hubJob(t, "1", map[string]any{"suspension": map[string]any{"scheduling": true}}, nil)
	j.unlisted = true
	assert.Equal(t, "Job ns/a is held by the job queue: where it is in line could not be looked at: you may not list queueunits on the hub.", j.Answer().headline())
}

// oneNode is a cluster of a node with eight GPUs.
func oneNode(t *testing.T) *clustercache.Cache {
	t.Helper()
	cache := clustercache.New()
	offers := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80"), corev1.ResourceMemory: resource.MustParse("300Gi"), corev1.ResourcePods: resource.MustParse("110"), contract.ResourceTopologyGPU: resource.MustParse("8")}
	_, err := cache.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "v100-1", Labels: map[string]string{
			contract.NodeModeLabel: "topology", contract.NodePoolNameLabel: "v100", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge", corev1.LabelHostname: "v100-1",
		}},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	})
	require.NoError(t, err)
	return cache
}

// Only a change of a cluster that the job may go to makes it fit.
func TestFixesOfAHubJob(t *testing.T) {
	cluster := func(name string) *contract.FleetCluster {
		object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "status": map[string]any{
			"conditions":     []any{map[string]any{"type": "Ready", "status": "True"}},
			"apiEnablements": []any{map[string]any{"groupVersion": "batch/v1", "resources": []any{map[string]any{"kind": "Job"}}}},
		}}}
		c, err := contract.FleetClusterOf(object)
		require.NoError(t, err)
		return c
	}
	cache := oneNode(t)
	snapshot := cache.Snapshot()
	toEast := map[string]any{"placement": map[string]any{"clusterAffinity": map[string]any{"clusterNames": []any{"east"}}}}

	list, fits := hubJob(t, "9", toEast, nil).FixesIn(cluster("east"), snapshot)
	assert.False(t, fits)
	require.NotEmpty(t, list)
	assert.Equal(t, "east", list[0].Cluster)
	assert.Contains(t, list[0].Text, " in east")
	list, fits = hubJob(t, "9", toEast, nil).FixesIn(cluster("west"), snapshot)
	assert.Empty(t, list)
	assert.False(t, fits)
	older := hubJob(t, "9", toEast, nil)
	older.object.SetAPIVersion("batch/v2") // as the hub shows it
	list, _ = older.FixesIn(cluster("east"), snapshot)
	assert.NotEmpty(t, list)
	nobodys := hubJob(t, "9", nil, nil)
	nobodys.binding = nil
	answer := nobodys.Answer()
	answer.Fixes, _ = nobodys.FixesIn(cluster("west"), snapshot)
	var out strings.Builder
	require.NoError(t, answer.WriteFixes(&out))
	assert.Contains(t, out.String(), "Once a policy sends it, it would fit with any one of these, each of them planned")
	_, fits = hubJob(t, "1", toEast, nil).FixesIn(cluster("east"), snapshot)
	assert.True(t, fits)
	_, fits = hubJob(t, "1", toEast, nil).FixesIn(cluster("west"), snapshot)
	assert.False(t, fits, "there is room where it may not go")
}

// A job may say that it has any number of pods: whoever asks does not make them all.
func TestHubJobOfManyPods(t *testing.T) {
	j := hubJob(t, "1", nil, nil)
	require.NoError(t, unstructured.SetNestedField(j.object.Object, int64(1<<30), "spec", "parallelism"))
	list, fits := j.fixes(clustercache.New().Snapshot())
	assert.Empty(t, list)
	assert.False(t, fits)
}

// A place that is kept for a gang which is still to come is nobody else's, until the promise ends.
func TestGrantedPlaces(t *testing.T) {
	promised := hubJob(t, "4", nil, nil)
	promised.object.SetName("b")
	require.NoError(t, unstructured.SetNestedStringMap(promised.object.Object, map[string]string{contract.TopologyGroupLabel: "b", contract.TopologyReplicasLabel: "1"}, "spec", "template", "metadata", "labels"))
	expires := metav1.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	around := Around{granted: []contract.GangReservation{{Spec: contract.GangReservationSpec{Job: promised.object.Object}, Status: contract.GangReservationStatus{
		Phase: contract.PhaseReserved, Expires: &expires,
		Gangs: []contract.GrantedGang{{Name: "ns/b", Nodes: []contract.PlannedNode{{Node: "v100-1", Members: map[string][]int{"b-0": {0, 1, 2, 3}}}}}},
	}}}}
	for name, test := range map[string]struct {
		after time.Duration
		gpus  string
		fits  bool
	}{
		"beside it":       {-time.Second, "4", true},
		"in its place":    {-time.Second, "5", false},
		"once it expires": {time.Second, "5", true},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := oneNode(t).Snapshot()
			around.read = expires.Add(test.after)
			around.Reserve(snapshot, -1)
			list, fits := hubJob(t, test.gpus, nil, nil).fixes(snapshot)
			assert.Equal(t, test.fits, fits, list)
			own := hubJob(t, "8", nil, nil)
			own.binding = nil
			own.pods, _ = trainingjob.Expected(promised.object)
			_, fits = own.FixesIn(nil, snapshot)
			assert.True(t, fits)
		})
	}
}

// Where a gang of the same name is, which is someone else's, no change makes room for the job.
func TestFixesWhereTheGangIsAlready(t *testing.T) {
	j := hubJob(t, "9", nil, nil)
	j.binding = nil
	require.NoError(t, unstructured.SetNestedStringMap(j.object.Object, map[string]string{contract.TopologyGroupLabel: "b", contract.TopologyReplicasLabel: "1"}, "spec", "template", "metadata", "labels"))
	var err error
	j.pods, err = trainingjob.Expected(j.object)
	require.NoError(t, err)
	west := &contract.FleetCluster{}
	west.Name = "west"
	cache := oneNode(t)
	list, _ := j.FixesIn(west, cache.Snapshot())
	assert.NotEmpty(t, list)
	other := j.pods[0].DeepCopy()
	other.UID = "other"
	cache.SetPod(other)
	list, fits := j.FixesIn(west, cache.Snapshot())
	assert.Empty(t, list)
	assert.False(t, fits)
}
