package gangreservation

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// world is a controller with a cluster of one node with eight V100.
type world struct {
	*testing.T
	*Controller
	version int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := clustercache.New()
	list := corev1.ResourceList{
		contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("80"),
		corev1.ResourceMemory: resource.MustParse("300Gi"), corev1.ResourcePods: resource.MustParse("100"),
	}
	_, err := c.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
			contract.NodePoolNameLabel: "v100", contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge",
		}},
		Status: corev1.NodeStatus{Capacity: list, Allocatable: list, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	require.NoError(t, err)
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{Resource: "GangReservationList"})
	return &world{T: t, Controller: newController(c, client)}
}

func (w *world) client() *fake.FakeDynamicClient {
	return w.Controller.client.(*fake.FakeDynamicClient)
}

// jobOf is a job of a gang of that name, of one pod that asks for so many GPUs.
func jobOf(name string, gpus int) map[string]any {
	return map[string]any{
		"apiVersion": contract.KubeflowGroup + "/" + contract.KubeflowVersion, "kind": contract.PyTorchJobKind,
		"metadata": map[string]any{"name": name, "namespace": "ns"},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{
			"replicas": int64(1),
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{contract.TopologyGroupLabel: name, contract.TopologyReplicasLabel: "1"}},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": contract.PyTorchContainerName, "resources": map[string]any{"limits": map[string]any{string(contract.ResourceTopologyGPU): strconv.Itoa(gpus)}},
				}}},
			},
		}}},
	}
}

// ask makes a reservation, or changes it, and has it told; the status is what was written last, unless the reservation is new.
func (w *world) ask(name, uid string, epoch int64, job map[string]any) *unstructured.Unstructured {
	w.Helper()
	return w.request(name, uid, map[string]any{"job": job, "epoch": epoch, "seconds": int64(600)})
}

// fence is ask of a reservation that is fenced.
func (w *world) fence(name, uid string, epoch int64, job map[string]any) *unstructured.Unstructured {
	w.Helper()
	return w.request(name, uid, map[string]any{"job": job, "epoch": epoch, "seconds": int64(600), "fenced": true})
}

func (w *world) request(name, uid string, spec map[string]any) *unstructured.Unstructured {
	w.Helper()
	w.version++
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Resource.GroupVersion().String(), "kind": contract.GangReservationKind,
		"metadata": map[string]any{"name": name, "namespace": "ns", "uid": uid, "resourceVersion": strconv.Itoa(w.version), "creationTimestamp": "2026-11-01T11:00:00Z"},
		"spec":     spec,
	}}
	client := w.client().Resource(Resource).Namespace("ns")
	before, err := client.Get(w.Context(), name, metav1.GetOptions{})
	switch {
	case err != nil:
		_, err = client.Create(w.Context(), object, metav1.CreateOptions{})
	case string(before.GetUID()) == uid:
		object.Object["status"] = before.Object["status"]
		fallthrough
	default:
		_, err = client.Update(w.Context(), object, metav1.UpdateOptions{})
	}
	require.NoError(w, err)
	w.set(object)
	return object
}

// arrive has the cluster show the pods of a gang.
func (w *world) arrive(name string) (pods []*corev1.Pod) {
	w.Helper()
	pods, err := job.Expected(&unstructured.Unstructured{Object: jobOf(name, 8)})
	require.NoError(w, err)
	for _, pod := range pods {
		pod.UID = types.UID(pod.Name)
		w.cache.SetPod(pod)
	}
	return pods
}

// place has a gang decided about, and counts its members that get a node.
func (w *world) place(name string) int {
	w.Helper()
	d, _, err := w.cache.Decide("ns/"+name, clustercache.Limits{}, func(*clustercache.Decision) bool { return true })
	require.NoError(w, err)
	return len(d.Assumed)
}

func (w *world) tell(name string) {
	w.Helper()
	object, err := w.client().Resource(Resource).Namespace("ns").Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	w.set(object)
}

// decide has a reservation answered, and returns the answer, which the controller is told of.
func (w *world) decide(name string) contract.GangReservationStatus {
	w.Helper()
	require.NoError(w, w.reconcile(w.Context(), types.NamespacedName{Namespace: "ns", Name: name}))
	w.tell(name)
	return w.objects[types.NamespacedName{Namespace: "ns", Name: name}].Status
}

// A reservation that becomes one for another job does not keep the places of the job that it was for.
func TestReservationForAnotherJob(t *testing.T) {
	for name, uid := range map[string]string{"edited": "one", "made again": "two"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ask("r", "one", 1, jobOf("first", 8))
			require.Equal(t, contract.PhaseReserved, w.decide("r").Phase)
			w.ask("r", uid, 2, jobOf("second", 8))
			assert.Equal(t, contract.PhaseReserved, w.decide("r").Phase)
			assert.False(t, w.cache.Granted("ns/first"))
			w.remove(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r", "namespace": "ns"}}})
			require.NoError(t, w.reconcile(t.Context(), types.NamespacedName{Namespace: "ns", Name: "r"}))
			assert.False(t, w.cache.Granted("ns/second"))
		})
	}
}

// A gang has one reservation: what becomes of another one of it does not end the promise of the first.
func TestTwoReservationsOfAGang(t *testing.T) {
	w := newWorld(t)
	w.ask("a", "a", 1, jobOf("gang", 8))
	require.Equal(t, contract.PhaseReserved, w.decide("a").Phase)
	w.ask("b", "b", 1, jobOf("gang", 8))
	second := w.decide("b")
	assert.Equal(t, contract.PhaseRefused, second.Phase)
	assert.Contains(t, second.Message, "ns/a")
	w.ask("c", "c", 1, jobOf("gang", 9))
	assert.Equal(t, contract.PhaseRefused, w.decide("c").Phase)
	assert.True(t, w.cache.Granted("ns/gang"))
}

// What was promised stays so while the watch does not show it yet.
func TestReservationThatIsShownLate(t *testing.T) {
	w := newWorld(t)
	stale := w.ask("r", "one", 1, jobOf("gang", 8))
	key, writes := types.NamespacedName{Namespace: "ns", Name: "r"}, 0
	w.client().PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if writes++; writes > 1 {
			return true, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", Resource.GroupResource(), "r", "", 0, false)
		}
		object := stale.DeepCopy()
		object.SetResourceVersion("100")
		object.Object["status"] = map[string]any{"epoch": int64(1), "phase": "Reserved", "expires": "2999-01-01T00:00:00Z"}
		return true, object, nil
	})
	require.NoError(t, w.reconcile(t.Context(), key))
	stale.SetLabels(map[string]string{"edited": "before"})
	w.set(stale)
	require.NoError(t, w.reconcile(t.Context(), key))
	assert.True(t, w.cache.Granted("ns/gang"))
	w.remove(stale)
	require.NoError(t, w.reconcile(t.Context(), key))
	assert.False(t, w.cache.Granted("ns/gang"))
}

// An answer stays for a while, however old the object is that asks.
func TestAnswerToAnOldReservation(t *testing.T) {
	w := newWorld(t)
	w.ask("r", "one", 1, jobOf("gang", 9))
	require.Equal(t, contract.PhaseRefused, w.decide("r").Phase)
	w.decide("r") // it is there still
	w.now = func() time.Time { return time.Now().Add(keptFor + time.Minute) }
	key := types.NamespacedName{Namespace: "ns", Name: "r"}
	require.NoError(t, w.reconcile(t.Context(), key))
	_, err := w.client().Resource(Resource).Namespace("ns").Get(t.Context(), "r", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	w.remove(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r", "namespace": "ns"}}})
	require.NoError(t, w.reconcile(t.Context(), key))
	assert.Empty(t, w.ended)
}

// What a predecessor has promised is held before a watch shows it.
func TestPromiseOfAPredecessor(t *testing.T) {
	w := newWorld(t)
	before := w.ask("r", "one", 1, jobOf("gang", 8))
	require.Equal(t, contract.PhaseReserved, w.decide("r").Phase)

	next := newWorld(t)
	next.Controller.client = w.client()
	next.synced = func() bool { return true }
	next.set(before)
	require.NoError(t, next.Restore(t.Context()))
	assert.True(t, next.cache.Granted("ns/gang"))
	assert.Equal(t, contract.PhaseReserved, next.decide("r").Phase)
}

// The pods of a gang may come while no scheduler runs: the next one keeps what they were promised from those before them.
func TestPromiseToAGangThatCameMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.ask("r", "one", 1, jobOf("gang", 8))
	require.Equal(t, contract.PhaseReserved, w.decide("r").Phase)

	next := newWorld(t)
	next.Controller.client = w.client()
	next.synced = func() bool { return true }
	next.arrive("gang")
	next.arrive("other")
	require.NoError(t, next.Restore(t.Context()))
	assert.Zero(t, next.place("other"))
	assert.Equal(t, 1, next.place("gang"))
	assert.False(t, next.cache.Granted("ns/gang"))
}

// A scheduler that starts lists the reservations until it has them.
func TestRestoreWithoutAnswer(t *testing.T) {
	w := newWorld(t)
	w.ask("r", "one", 1, jobOf("gang", 8))
	require.Equal(t, contract.PhaseReserved, w.decide("r").Phase)
	next := newWorld(t)
	next.Controller.client = w.client()
	next.synced = func() bool { return true }
	tries := 0
	w.client().PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		tries++
		return tries < 3, nil, apierrors.NewServiceUnavailable("starting")
	})
	require.NoError(t, next.Restore(t.Context()))
	assert.True(t, next.cache.Granted("ns/gang"))
}
