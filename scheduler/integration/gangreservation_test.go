package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func (s *testCluster) gangReservations() dynamic.ResourceInterface {
	return cluster.client.Dynamic.Resource(gvr(contract.GangReservationGroup, contract.GangReservationVersion, contract.GangReservationResource)).Namespace(s.namespace)
}

// manifest is the PyTorchJob of which the pods of a job are made.
func (s *testCluster) manifest(j job) map[string]any {
	s.t.Helper()
	one := j
	one.workers = 1
	pod := s.pods(one)[0]
	pod.Spec.Containers[0].Name = contract.PyTorchContainerName
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	require.NoError(s.t, err)
	labels := map[string]any{}
	for key, value := range j.labels {
		labels[key] = value
	}
	return map[string]any{
		"apiVersion": contract.KubeflowGroup + "/" + contract.KubeflowVersion, "kind": contract.PyTorchJobKind,
		"metadata": map[string]any{"name": j.name, "namespace": s.namespace},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{
			"replicas": int64(j.workers), "template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec},
		}}},
	}
}

// reserve asks for the places of a job.
func (s *testCluster) reserve(name string, manifest map[string]any, seconds int64) {
	s.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.GangReservationGroup + "/" + contract.GangReservationVersion, "kind": contract.GangReservationKind,
		"metadata": map[string]any{"name": name, "namespace": s.namespace},
		"spec":     map[string]any{"job": manifest, "epoch": int64(1), "seconds": seconds},
	}}
	_, err := s.gangReservations().Create(s.t.Context(), object, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// awaitReservation waits until a request is answered so, and returns the answer.
func (s *testCluster) awaitReservation(name string, epoch int64, phase contract.GangReservationPhase) (status contract.GangReservationStatus) {
	s.t.Helper()
	s.await(fmt.Sprintf("reservation %s of epoch %d to be %s", name, epoch, phase), func(ctx context.Context) (bool, string) {
		object, err := s.gangReservations().Get(ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		var reservation contract.GangReservation
		require.NoError(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &reservation))
		status = reservation.Status
		return status.Epoch == epoch && status.Phase == phase, fmt.Sprintf("%+v", status)
	})
	return status
}

// awaitKept waits until a place is kept, or was: on a busy machine the time of a short reservation may be over before someone looks.
func (s *testCluster) awaitKept(name string) {
	s.t.Helper()
	s.await("reservation "+name+" to be kept", func(ctx context.Context) (bool, string) {
		object, err := s.gangReservations().Get(ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		var reservation contract.GangReservation
		require.NoError(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &reservation))
		return len(reservation.Status.Gangs) > 0, fmt.Sprintf("%+v", reservation.Status)
	})
}

// requireAt checks that the members of a job have the GPUs that were promised to them.
func (s *testCluster) requireAt(name string, promised contract.GrantedGang) {
	s.t.Helper()
	at, want := map[string][]int{}, map[string][]int{}
	for _, node := range promised.Nodes {
		for member, gpus := range node.Members {
			want[node.Node+"/"+member] = gpus
		}
	}
	for _, pod := range s.awaitBound(name) {
		record := s.allocation(pod)
		at[record.Node+"/worker-"+pod.Labels[contract.JobReplicaIndexLabel]] = record.GPUs
	}
	assert.Equal(s.t, want, at)
}

// A place that is promised to a gang which is still to come is kept from all others, across a kill of the scheduler, and the gang gets
// exactly that.
func TestGangReservation(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	scheduler := runScheduler(t, nil)
	gang := topologyGang("gang", 2, 4)
	s.reserve("gang", s.manifest(gang), 600)
	promised := s.awaitReservation("gang", 1, contract.PhaseReserved)
	require.Len(t, promised.Gangs, 1)
	require.NotNil(t, promised.Expires)

	s.submit(topologyGang("large", 2, 8))
	s.awaitReason("large", "Held back by the reservation of gang "+s.namespace+"/gang")
	scheduler.End(syscall.SIGKILL)
	s.submit(topologyGang("other", 1, 8))
	runScheduler(t, nil)
	other := s.awaitBound("other")[0].Spec.NodeName
	for _, node := range promised.Gangs[0].Nodes {
		assert.NotEqual(t, other, node.Node)
	}
	s.submit(gang)
	s.requireAt("gang", promised.Gangs[0])
	s.requireNoSharedGPUs()

	// It is asked for longer, and there is nothing to keep any more.
	patch := []byte(`{"spec": {"epoch": 2}}`)
	_, err := s.gangReservations().Patch(t.Context(), "gang", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	s.awaitReservation("gang", 2, contract.PhaseTaken)
}

// A promise ends with its time, or with its object, and a new epoch prolongs it.
func TestGangReservationEnds(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	scheduler := runScheduler(t, nil)
	s.reserve("late", s.manifest(topologyGang("late", 1, 8)), 2)
	s.awaitKept("late")
	s.submit(topologyGang("waits", 1, 8))
	s.awaitBound("waits")
	s.awaitReservation("late", 1, contract.PhaseExpired)
	s.clear()

	patch := []byte(`{"spec": {"epoch": 2, "seconds": 600}}`)
	_, err := s.gangReservations().Patch(t.Context(), "late", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	first := s.awaitReservation("late", 2, contract.PhaseReserved)
	patch = []byte(`{"spec": {"epoch": 3, "seconds": 1200}}`)
	_, err = s.gangReservations().Patch(t.Context(), "late", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	second := s.awaitReservation("late", 3, contract.PhaseReserved)
	assert.Equal(t, first.Gangs, second.Gangs, "the place stays")
	assert.True(t, first.Expires.Before(second.Expires))
	s.submit(topologyGang("waits", 1, 8))
	s.awaitReason("waits", "Held back by the reservation")
	require.NoError(t, s.gangReservations().Delete(t.Context(), "late", metav1.DeleteOptions{}))
	s.awaitBound("waits")
	s.clear()

	// A scheduler that starts after the time is over holds nothing.
	s.reserve("missed", s.manifest(topologyGang("missed", 1, 8)), 3)
	s.awaitKept("missed")
	scheduler.End(syscall.SIGKILL)
	s.await("the time to be over", func(ctx context.Context) (bool, string) {
		object, err := s.gangReservations().Get(ctx, "missed", metav1.GetOptions{})
		require.NoError(t, err)
		expires, _, err := unstructured.NestedString(object.Object, "status", "expires")
		require.NoError(t, err)
		node, err := api().CoreV1().Nodes().Patch(ctx, s.nodes[0], types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		require.NoError(t, err)
		return metav1.Now().UTC().Format("2006-01-02T15:04:05Z") > expires, node.Name
	})
	runScheduler(t, nil)
	s.submit(topologyGang("waits", 1, 8))
	s.awaitBound("waits")
	s.awaitReservation("missed", 1, contract.PhaseExpired)
}

// What comes of a job that has left the cluster does not start, whichever scheduler leads, until the fence goes.
func TestGangThatIsFencedOff(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	scheduler := runScheduler(t, nil)
	gang := topologyGang("gang", 2, 4)
	s.reserve("gang", s.manifest(gang), 600)
	s.awaitReservation("gang", 1, contract.PhaseReserved)
	s.submit(gang)
	s.awaitBound("gang")
	patch := []byte(`{"spec": {"epoch": 2, "fenced": true}}`)
	_, err := s.gangReservations().Patch(t.Context(), "gang", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	s.clear()
	s.awaitReservation("gang", 2, contract.PhaseFenced)

	s.submit(gang)
	s.awaitReason("gang", "the job has left this cluster: its fleet lets nothing of it start here, by GangReservation "+s.namespace+"/gang")
	scheduler.End(syscall.SIGKILL)
	runScheduler(t, nil)
	s.submit(topologyGang("other", 1, 8)) // comes later, and waits for nobody
	s.awaitBound("other")
	s.remove("other")
	require.NoError(t, s.gangReservations().Delete(t.Context(), "gang", metav1.DeleteOptions{}))
	s.awaitBound("gang")
}

// What cannot be promised is refused with its reason, and holds nothing.
func TestGangReservationIsRefused(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	runScheduler(t, nil)
	alone := s.manifest(topologyGang("alone", 1, 8))
	roles, _, err := unstructured.NestedMap(alone, "spec", "pytorchReplicaSpecs", "Worker", "template", "metadata")
	require.NoError(t, err)
	roles["labels"] = map[string]any{}
	require.NoError(t, unstructured.SetNestedMap(alone, roles, "spec", "pytorchReplicaSpecs", "Worker", "template", "metadata"))
	elsewhere := s.manifest(topologyGang("elsewhere", 1, 8))
	require.NoError(t, unstructured.SetNestedField(elsewhere, "default", "metadata", "namespace"))
	huge := s.manifest(topologyGang("huge", 1, 1))
	require.NoError(t, unstructured.SetNestedField(huge, int64(20_000), "spec", "pytorchReplicaSpecs", "Worker", "replicas"))
	unknown := s.manifest(topologyGang("unknown", 1, 1))
	unknown["kind"] = "Unknown"
	for name, test := range map[string]struct {
		job map[string]any
		why string
	}{
		"large":     {s.manifest(topologyGang("large", 2, 8)), "1 of 2 members fit"},
		"alone":     {alone, "the job has no gang"},
		"elsewhere": {elsewhere, "a reservation is in the namespace of its job"},
		"huge":      {huge, "more than 10000 replicas"},
		"unknown":   {unknown, "Unknown"},
	} {
		s.reserve(name, maps.Clone(test.job), 600)
		assert.Contains(t, s.awaitReservation(name, 1, contract.PhaseRefused).Message, test.why, name)
	}
	forged, err := json.Marshal(map[string]any{"status": map[string]any{
		"epoch": 1, "phase": contract.PhaseReserved, "expires": "2100-01-01T00:00:00Z",
		"gangs": []any{map[string]any{"name": s.namespace + "/large", "nodes": []any{map[string]any{"node": s.nodes[0], "members": map[string][]int{"worker-0": {-1}}}}}},
	}})
	require.NoError(t, err)
	_, err = s.gangReservations().Patch(t.Context(), "large", types.MergePatchType, forged, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	s.awaitReservation("large", 1, contract.PhaseRefused)
	s.submit(topologyGang("whole", 1, 8))
	s.awaitBound("whole")
}
