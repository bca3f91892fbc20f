package clusterlist

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Who lists the cluster, for a plan or for an answer, sees what the scheduler places by; a
// record that cannot be read is none.
func TestListedWorkload(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	followed := func() placement.Workload {
		t.Helper()
		objects, err := Read(t.Context(), client)
		require.NoError(t, err)
		snapshot, err := objects.Snapshot()
		require.NoError(t, err)
		return snapshot.View.Workload()
	}
	assert.Nil(t, followed())
	put := func(data map[string]string) {
		fields := map[string]any{}
		for key, value := range data {
			fields[key] = value
		}
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": fields,
			"metadata": map[string]any{"namespace": contract.SystemNamespace, "name": contract.WorkloadName},
		}})
	}
	learnt := placement.Workload{{Mode: placement.ModeTopology, GPUs: 8, MilliCPU: 64_000}: 12, {Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 4}: 3}
	data, err := inventory.WorkloadRecord(learnt, time.Now())
	require.NoError(t, err)
	put(data)
	assert.Equal(t, learnt, followed())
	snapshot, err := Snapshot(t.Context(), client)
	if err == nil { // the fake server knows no metadata of pods
		assert.Equal(t, learnt, snapshot.View.Workload())
	}
	put(map[string]string{"demands": "none"})
	assert.Nil(t, followed())
}

// How long gangs wait until the scheduler reserves capacity stands on its Deployment.
func TestReserveAfter(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	after := func() time.Duration {
		t.Helper()
		d, err := ReserveAfter(t.Context(), client)
		require.NoError(t, err)
		return d
	}
	assert.Equal(t, contract.DefaultReserveAfter, after(), "there is no Deployment")
	for text, want := range map[string]time.Duration{
		"1m30s": 90 * time.Second, "-1s": -time.Second, "0s": contract.DefaultReserveAfter, "": contract.DefaultReserveAfter, "soon": contract.DefaultReserveAfter,
	} {
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": contract.SystemNamespace, "name": contract.SchedulerName, "annotations": map[string]any{contract.ReserveAfterAnnotation: text}},
		}})
		assert.Equal(t, want, after(), text)
	}
}

// A pod that should have gone long ago is waited for by nobody, and its place is still taken.
func TestListedPodsAreOverdue(t *testing.T) {
	pod := func(name string, deleted time.Time) corev1.Pod {
		p := podtest.New(name, podtest.OnNode("n1"))
		p.UID = types.UID(name)
		p.DeletionTimestamp = &metav1.Time{Time: deleted}
		return *p
	}
	objects := Objects{Pods: []corev1.Pod{pod("leaves", time.Now()), pod("stuck", time.Now().Add(-time.Hour))}}
	snapshot, err := objects.Snapshot()
	require.NoError(t, err)
	for name, want := range map[string]bool{"leaves": false, "stuck": true} {
		listed, ok := snapshot.View.Pod(name)
		require.True(t, ok, name)
		assert.Equal(t, want, listed.Overdue, name)
	}
}

// Members that have succeeded count in a plan as in the scheduler, by their pods and by their Job.
func TestListedMembersThatHaveSucceeded(t *testing.T) {
	member := func(index int, changes ...podtest.Change) corev1.Pod {
		return *podtest.Workers(index+1, append([]podtest.Change{
			podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"), podtest.OwnedBy("now"),
		}, changes...)...)[index]
	}
	done := []podtest.Change{podtest.Recorded(contract.Allocation{GPUs: []int{1}}), podtest.InPhase(corev1.PodSucceeded)}
	template := member(0)
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "now"}, Status: batchv1.JobStatus{Succeeded: 2}}
	job.Spec.Completions, job.Spec.Parallelism = new(int32(4)), new(int32(4))
	job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec}
	for name, objects := range map[string]Objects{
		"their pods are there": {Pods: []corev1.Pod{member(0, done...), member(1, done...), member(2), member(3)}},
		"their pods are gone":  {Pods: []corev1.Pod{member(2), member(3)}, Jobs: []batchv1.Job{job}},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot, err := objects.Snapshot()
			require.NoError(t, err)
			gang, ok := snapshot.Gang("ns/job")
			require.True(t, ok)
			assert.Equal(t, 2, gang.Gang.Minimum)
			assert.Empty(t, gang.MissingText)
		})
	}
}

// refused has an API server refuse requests for a path.
type refused struct {
	http.RoundTripper
	path string
}

func (r refused) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path != r.path {
		return r.RoundTripper.RoundTrip(req)
	}
	answer := httptest.NewRecorder()
	answer.WriteHeader(http.StatusForbidden)
	return answer.Result(), nil
}

// Who may not list Jobs sees the cluster all the same.
func TestJobsThatNobodyMayList(t *testing.T) {
	server := kubetest.Start(t)
	server.Put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "ns", "name": "job"}}})
	for path, listed := range map[string]int{"": 1, "/apis/batch/v1/jobs": 0} {
		config := server.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refused{next, path} })
		client, err := kube.New(config)
		require.NoError(t, err)
		objects, err := Read(t.Context(), client)
		require.NoError(t, err)
		assert.Len(t, objects.Jobs, listed)
	}
}

// An extended resource that stands for devices limits no node that has none of it itself. Who may not list their classes
// does not know that there are none.
func TestListedDeviceClasses(t *testing.T) {
	server := kubetest.Start(t)
	read := func(path string) Objects {
		t.Helper()
		config := server.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refused{next, path} })
		client, err := kube.New(config)
		require.NoError(t, err)
		objects, err := Read(t.Context(), client)
		require.NoError(t, err)
		return objects
	}
	assert.False(t, read("").DevicesUnknown, "there are none")
	server.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": map[string]any{"name": "foo"},
		"spec": map[string]any{"extendedResourceName": "example.com/foo"},
	}})
	delegates := func(objects Objects, name string) bool {
		snapshot, err := objects.Snapshot()
		require.NoError(t, err)
		gang := placement.Gang{Roles: []placement.Role{{Request: placement.Request{Resources: placement.Resources{Extended: map[string]int64{name: 1}}}}}}
		return snapshot.View.Delegates(&gang)
	}
	server.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n"},
		"status": map[string]any{"allocatable": map[string]any{"example.com/own": "1"}},
	}})
	for path, want := range map[string][]bool{"": {true, false, false, false, false}, "/apis/resource.k8s.io/v1/deviceclasses": {true, true, false, false, false}} {
		objects := read(path)
		assert.Equal(t, path != "", objects.DevicesUnknown)
		for i, name := range []string{"example.com/foo", "example.com/bar", "example.com/own", contract.ResourceERDMA, "ephemeral-storage"} {
			assert.Equal(t, want[i], delegates(objects, name), name)
		}
	}
}
