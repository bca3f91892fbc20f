package fleet

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

// jobsText and bindingsText are the CRDs of PyTorchJobs and of bindings.
const (
	jobsText = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: pytorchjobs.kubeflow.org},
  spec: {group: kubeflow.org, scope: Namespaced, names: {kind: PyTorchJob, plural: pytorchjobs}, versions: [{name: v1, served: true, storage: true}]}}`
	bindingsText = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: resourcebindings.work.karmada.io},
  spec: {group: work.karmada.io, scope: Namespaced, names: {kind: ResourceBinding, plural: resourcebindings}, versions: [{name: v1alpha2, served: true, storage: true}]}}`
)

const evictedText = "placement: {}, gracefulEvictionTasks: [{fromCluster: m}]"

// memberWorld is a hubWorld whose member serves PyTorchJobs, reservations and pods.
type memberWorld struct {
	*hubWorld
	job *unstructured.Unstructured
}

func newMemberWorld(t *testing.T) *memberWorld {
	t.Helper()
	return &memberWorld{newHubWorld(t, "{}"), object(t, jobText)}
}

// jobs are those of the member.
func (w *memberWorld) jobs() dynamic.ResourceInterface {
	return w.m.client.Dynamic.Resource(schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: "pytorchjobs"}).Namespace("default")
}

// bring makes the job in the member, as Karmada does where managed is "true".
func (w *memberWorld) bring(t *testing.T, managed string) {
	t.Helper()
	there := w.job.DeepCopy()
	there.SetLabels(map[string]string{contract.KarmadaManagedLabel: managed})
	_, err := w.jobs().Create(t.Context(), there, metav1.CreateOptions{})
	require.NoError(t, err)
}

// take deletes the job in the member.
func (w *memberWorld) take(t *testing.T) {
	t.Helper()
	require.NoError(t, w.jobs().Delete(t.Context(), "a", metav1.DeleteOptions{}))
}

// leaves has it asked whether a job of a binding may run somewhere still, once the member shows what it was asked.
func (w *memberWorld) leaves(t *testing.T, spec string) string {
	t.Helper()
	if r := w.reservation(t); r != nil {
		w.m.setReservation(r)
	}
	b, err := bindingOf(object(t, bindingText(spec)))
	require.NoError(t, err)
	return w.controller.leaves(t.Context(), b, w.job, newToCome(gang(t, "a", 2, 1)))
}

// reservation is that of the job in the member, nil for none.
func (w *memberWorld) reservation(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	r, err := w.m.client.Dynamic.Resource(gangreservation.Resource).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return r
}

// answer has the scheduler of the member answer what it was asked last.
func (w *memberWorld) answer(t *testing.T, phase contract.GangReservationPhase) {
	t.Helper()
	r := w.reservation(t)
	require.NotNil(t, r)
	epoch, _, err := unstructured.NestedInt64(r.Object, "spec", "epoch")
	require.NoError(t, err)
	r.Object["status"] = map[string]any{"epoch": epoch, "phase": string(phase)}
	_, err = w.m.client.Dynamic.Resource(gangreservation.Resource).Namespace("default").Update(t.Context(), r, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// A job goes on only once the scheduler of the cluster that it has left says that nothing of it starts there, whoever creates it.
func TestAJobThatIsFencedOff(t *testing.T) {
	w := newMemberWorld(t)
	assert.Empty(t, w.leaves(t, "placement: {}"), "it was nowhere")
	assert.Nil(t, w.reservation(t))

	const silent = "its scheduler has not said yet that nothing of it starts there any more"
	assert.Contains(t, w.leaves(t, evictedText), silent)
	asked := w.reservation(t)
	require.NotNil(t, asked)
	spec := asked.Object["spec"].(map[string]any) //nolint:forcetypeassert // what was just written
	assert.Equal(t, true, spec["fenced"])
	assert.EqualValues(t, 3600, spec["seconds"])
	assert.Contains(t, w.leaves(t, evictedText), silent, "it is not asked again")
	assert.Equal(t, asked.GetResourceVersion(), w.reservation(t).GetResourceVersion())
	w.answer(t, contract.PhaseFenced)
	assert.Empty(t, w.leaves(t, evictedText))
	assert.Empty(t, w.leaves(t, "placement: {}"), "that was seen")
	w.drop(t.Context(), "default/a", "")
	assert.NotNil(t, w.reservation(t), "it stays fenced when its places are given back")

	// It comes back, and is fenced off again when that fails.
	_, _, err := w.m.reserve(t.Context(), "default/a", w.id, w.job, false)
	require.NoError(t, err)
	delete(w.fences["default/a"], "m")
	w.answer(t, contract.PhaseRefused)
	assert.Contains(t, w.leaves(t, "placement: {}"), silent)
	w.answer(t, contract.PhaseFenced)
	assert.Empty(t, w.leaves(t, "placement: {}"))
	require.EqualValues(t, 3, w.fences["default/a"]["m"].epoch)

	w.removeBinding(object(t, `{metadata: {name: a, namespace: default}}`))
	require.NoError(t, w.reconcile(t.Context(), "default/a"))
	assert.Nil(t, w.reservation(t), "it goes with the binding")
}

// What is there of a job counts, whatever its scheduler says, and whatever the picture of the cluster shows.
func TestWhatIsThereOfAFencedJob(t *testing.T) {
	w := newMemberWorld(t)
	w.leaves(t, evictedText)
	w.answer(t, contract.PhaseFenced)
	pods := w.m.client.Typed.CoreV1().Pods("default")
	for _, owner := range []string{"a", "other"} {
		_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: owner + "-worker-7", OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: contract.PyTorchJobKind, Name: owner, Controller: ptr.To(true)}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	assert.Contains(t, w.leaves(t, evictedText), "1 of its pods are there still")
	require.NoError(t, pods.Delete(t.Context(), "a-worker-7", metav1.DeleteOptions{}))
	assert.Empty(t, w.leaves(t, evictedText))
}

// Nobody waits for ever for a scheduler that says nothing, nor for one that is not ours.
func TestSchedulersThatDoNotFence(t *testing.T) {
	t.Run("it says nothing", func(t *testing.T) {
		w := newMemberWorld(t)
		assert.NotEmpty(t, w.leaves(t, evictedText))
		asked := w.fences["default/a"]["m"]
		asked.last = time.Now().Add(-silence)
		w.fences["default/a"]["m"] = asked
		assert.Empty(t, w.leaves(t, evictedText), "the next one that leads fences before it places anything")
	})
	t.Run("it knows no reservations", func(t *testing.T) {
		w := newMemberWorld(t)
		w.m.client.Dynamic.(*fake.FakeDynamicClient).PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) { //nolint:forcetypeassert // newHubWorld has made it
			return true, nil, apierrors.NewNotFound(gangreservation.Resource.GroupResource(), "")
		})
		assert.Empty(t, w.leaves(t, evictedText))
	})
	t.Run("it is of before there were fences", func(t *testing.T) {
		w := newMemberWorld(t)
		drops := func(action clienttesting.Action) (bool, runtime.Object, error) {
			r := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured) //nolint:forcetypeassert // what is created
			unstructured.RemoveNestedField(r.Object, "spec", "fenced")
			return false, nil, nil
		}
		w.m.client.Dynamic.(*fake.FakeDynamicClient).PrependReactor("create", "*", drops) //nolint:forcetypeassert // newHubWorld has made it
		assert.Empty(t, w.leaves(t, evictedText))
		assert.Nil(t, w.reservation(t), "it would keep a place for nobody")
	})
	t.Run("it is older than what its API server knows of fences", func(t *testing.T) {
		w := newMemberWorld(t)
		w.leaves(t, evictedText)
		w.answer(t, contract.PhaseReserved)
		assert.Empty(t, w.leaves(t, evictedText))
		assert.Nil(t, w.reservation(t), "it would keep a place for nobody")
	})
	t.Run("it cannot read the job", func(t *testing.T) {
		w := newMemberWorld(t)
		w.leaves(t, evictedText)
		w.answer(t, contract.PhaseRefused)
		assert.Empty(t, w.leaves(t, evictedText))
	})
	t.Run("someone has deleted it", func(t *testing.T) {
		w := newMemberWorld(t)
		w.leaves(t, evictedText)
		require.NoError(t, w.m.unreserve(t.Context(), "default/a", w.reservation(t)))
		delete(w.m.reservations, "default/a")
		asked := w.fences["default/a"]["m"]
		asked.last = time.Now().Add(-answerWithin)
		w.fences["default/a"]["m"] = asked
		assert.NotEmpty(t, w.leaves(t, evictedText))
		assert.NotNil(t, w.reservation(t), "it is asked again")
	})
}

// A program that starts knows by the fences where proof is missing still, keeps the others, and opens the one of the cluster where the job is.
func TestFencesOfAPredecessor(t *testing.T) {
	w := newMemberWorld(t)
	_, _, err := w.m.reserve(t.Context(), "default/a", w.id, w.job, true)
	require.NoError(t, err)
	assert.NotEmpty(t, w.leaves(t, "placement: {}"), "the hub has forgotten where it was")
	w.answer(t, contract.PhaseFenced)
	assert.Empty(t, w.leaves(t, "placement: {}"))

	w.setCluster(t.Context(), object(t, strings.Replace(clusterText, "name: m", "name: other", 1)))
	b, err := bindingOf(object(t, bindingText("placement: {}, clusters: [{name: other}]")))
	require.NoError(t, err)
	delete(w.fences, "default/a")
	w.refence(t.Context(), b, w.job)
	assert.EqualValues(t, 3, w.epoch(t), "it is asked to stand for longer")
	w.m.setReservation(w.reservation(t))

	b, err = bindingOf(object(t, bindingText("placement: {}, clusters: [{name: m}]")))
	require.NoError(t, err)
	w.tend(t.Context(), b, w.job, newToCome(gang(t, "a", 2, 1)), false)
	assert.Nil(t, w.reservation(t))
}

// epoch is that of the last request of the member.
func (w *memberWorld) epoch(t *testing.T) int64 {
	t.Helper()
	r := w.reservation(t)
	require.NotNil(t, r)
	epoch, _, err := unstructured.NestedInt64(r.Object, "spec", "epoch")
	require.NoError(t, err)
	return epoch
}

// onHub has a hub with the job, and a binding of it.
func (w *memberWorld) onHub(t *testing.T, spec string) {
	t.Helper()
	server := kubetest.Start(t)
	server.Put(object(t, jobsText))
	server.Put(w.job.DeepCopy())
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	w.controller.hub = client
	w.setBinding(t.Context(), object(t, bindingText(spec)))
	w.told["default/a"] = time.Now() // it is not told of anything here
}

// A fence stands also while the job waits, for a cluster or for the queue.
func TestAFenceOfAJobThatWaits(t *testing.T) {
	const nowhere = "placement: {clusterAffinity: {clusterNames: [other]}}"
	for name, spec := range map[string]string{"for a cluster": nowhere, "for the queue": nowhere + ", suspension: {scheduling: true}"} {
		t.Run(name, func(t *testing.T) {
			w := newMemberWorld(t)
			w.leaves(t, evictedText)
			w.answer(t, contract.PhaseFenced)
			require.Empty(t, w.leaves(t, evictedText))
			w.onHub(t, spec)
			require.NoError(t, w.reconcile(t.Context(), "default/a"))
			assert.EqualValues(t, 1, w.epoch(t))
			w.fences["default/a"]["m"] = request{cluster: "m", epoch: 1, last: time.Now().Add(-refenceAfter)}
			require.NoError(t, w.reconcile(t.Context(), "default/a"))
			assert.EqualValues(t, 2, w.epoch(t))
		})
	}
}

// A fence that a person deletes goes up again.
func TestAFenceThatIsDeleted(t *testing.T) {
	w := newMemberWorld(t)
	w.leaves(t, evictedText)
	w.answer(t, contract.PhaseFenced)
	require.Empty(t, w.leaves(t, evictedText))
	w.onHub(t, "placement: {clusterAffinity: {clusterNames: [other]}}")
	require.NoError(t, w.m.unreserve(t.Context(), "default/a", w.reservation(t)))
	w.m.removeReservation(object(t, `{metadata: {name: a, namespace: default}}`))
	require.NoError(t, w.reconcile(t.Context(), "default/a"))
	assert.Nil(t, w.reservation(t), "it may not be shown yet")
	w.fences["default/a"]["m"] = request{cluster: "m", epoch: 1, last: time.Now().Add(-answerWithin)}
	require.NoError(t, w.reconcile(t.Context(), "default/a"))
	assert.EqualValues(t, 1, w.epoch(t))
}

// Someone else's job of the name of one that has left does not wait until that ends elsewhere.
func TestAFenceOfSomeoneElsesJob(t *testing.T) {
	for whose, stands := range map[string]bool{"its own": true, "someone's": false, "another fleet's": false} {
		w := newMemberWorld(t)
		w.leaves(t, evictedText)
		w.answer(t, contract.PhaseFenced)
		require.Empty(t, w.leaves(t, evictedText))
		switch whose {
		case "its own":
			w.bringFrom(t, "first")
		case "someone's":
			w.bring(t, "")
		default:
			w.bringFrom(t, "elsewhere")
		}
		b, err := bindingOf(object(t, bindingText("placement: {}, clusters: [{name: other}]")))
		require.NoError(t, err)
		b.Spec.Resource.UID = w.job.GetUID()
		w.refence(t.Context(), b, w.job)
		assert.NotNil(t, w.reservation(t), "it is not looked at each time")
		w.fences["default/a"]["m"] = request{cluster: "m", epoch: 1, last: time.Now().Add(-refenceAfter)}
		w.refence(t.Context(), b, w.job)
		assert.Equal(t, stands, w.reservation(t) != nil, whose)
	}
}

// A cluster that was asked for the place of a job that had left it is fenced again before the job goes to another one, also to one where
// nobody is asked.
func TestAJobThatIsNotToComeBack(t *testing.T) {
	w := newMemberWorld(t)
	w.leaves(t, evictedText)
	w.answer(t, contract.PhaseFenced)
	require.Empty(t, w.leaves(t, evictedText))
	require.NoError(t, w.decide(t, w.job))
	require.Equal(t, "m", w.asked["default/a"].cluster)
	w.m.setReservation(w.reservation(t))

	other := newMember(t)
	other.name, other.client = "other", newMemberWorld(t).m.client
	other.client.Dynamic.(*fake.FakeDynamicClient).PrependReactor("*", contract.GangReservationResource, func(clienttesting.Action) (bool, runtime.Object, error) { //nolint:forcetypeassert // just made
		return true, nil, apierrors.NewNotFound(gangreservation.Resource.GroupResource(), "")
	})
	other.synced.Store(true)
	w.members["other"] = other
	w.setCluster(t.Context(), object(t, strings.Replace(clusterText, "name: m", "name: other", 1)))
	w.setBinding(t.Context(), object(t, bindingText("placement: {clusterAffinity: {clusterNames: [other]}}")))
	w.told["default/a"] = time.Now() // it is not told of anything here
	for range 2 {
		require.NoError(t, w.decide(t, w.job))
		assert.Empty(t, w.sentTo(t), "m has not said again that nothing of it starts")
	}
	w.m.setReservation(w.reservation(t))
	w.answer(t, contract.PhaseFenced)
	w.m.setReservation(w.reservation(t))
	require.NoError(t, w.decide(t, w.job))
	assert.Equal(t, "other", w.sentTo(t))
}

// A fence that was opened to ask for the job's place goes up again when that is not followed by the job, also by a scheduler that knows
// only what it reads: whoever has read that the job was to be there may make it there late.
func TestAFenceThatWasOpenedInVain(t *testing.T) {
	fenced := func(w *memberWorld) bool {
		r := w.reservation(t)
		require.NotNil(t, r)
		there, _, err := unstructured.NestedBool(r.Object, "spec", "fenced")
		require.NoError(t, err)
		return there
	}
	for name, vain := range map[string]func(w *memberWorld){
		"nobody answers": func(w *memberWorld) {
			asked := w.asked["default/a"]
			asked.last = time.Now().Add(-answerWithin)
			w.asked["default/a"] = asked
			require.NoError(t, w.decide(t, w.job))
		},
		"it is held for the queue": func(w *memberWorld) { w.yield(t.Context(), "default/a") },
		"it is refused": func(w *memberWorld) {
			w.answer(t, contract.PhaseRefused)
			w.m.setReservation(w.reservation(t))
			for range 2 {
				require.NoError(t, w.decide(t, w.job))
			}
		},
		"another scheduler leads": func(w *memberWorld) {
			w.asked, w.left = map[string]request{}, map[string]map[string]bool{}
			require.NoError(t, w.decide(t, w.job))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMemberWorld(t)
			w.leaves(t, evictedText)
			w.answer(t, contract.PhaseFenced)
			require.Empty(t, w.leaves(t, evictedText))
			w.left, w.fences = map[string]map[string]bool{}, map[string]map[string]request{} // another one leads
			w.told["default/a"] = time.Now()                                                 // it is not told of anything here
			require.NoError(t, w.decide(t, w.job))
			require.Equal(t, "m", w.asked["default/a"].cluster)
			require.False(t, fenced(w))
			w.m.setReservation(w.reservation(t))
			vain(w)
			assert.True(t, fenced(w))
		})
	}
}

// A fence that a scheduler of the fleet which had hung has put up late does not outlast that the job runs there.
func TestAFenceWhereAJobRuns(t *testing.T) {
	w := newMemberWorld(t)
	_, _, err := w.m.reserve(t.Context(), "default/a", w.id, w.job, true)
	require.NoError(t, err)
	w.m.setReservation(w.reservation(t))
	pods := gang(t, "a", 2, 1)
	for i, pod := range pods {
		pod.UID, pod.Spec.NodeName = types.UID(strconv.Itoa(i)), "n"
		w.m.state.SetPod(pod)
	}
	require.True(t, w.m.whole(newToCome(pods)))
	b, err := bindingOf(object(t, bindingText("placement: {}, clusters: [{name: m}]")))
	require.NoError(t, err)
	w.tend(t.Context(), b, w.job, newToCome(pods), false)
	assert.Nil(t, w.reservation(t))
}

// What is deleted is what was seen: another scheduler of the fleet may lead by now, and have asked for a fence.
func TestAReservationIsDeletedAsItWasSeen(t *testing.T) {
	w := newMemberWorld(t)
	w.kept(t, w.job, 1, time.Now().Add(time.Minute))
	w.m.reservations["default/a"].UID, w.m.reservations["default/a"].ResourceVersion = "u", "7"
	w.drop(t.Context(), "default/a", "")
	actions := w.m.client.Dynamic.(*fake.FakeDynamicClient).Actions() //nolint:forcetypeassert // newHubWorld has made it
	deleted, ok := actions[len(actions)-1].(clienttesting.DeleteActionImpl)
	require.True(t, ok)
	assert.Equal(t, metav1.NewRVDeletionPrecondition("7").Preconditions.ResourceVersion, deleted.DeleteOptions.Preconditions.ResourceVersion)
	assert.EqualValues(t, "u", *deleted.DeleteOptions.Preconditions.UID)
}

// A cluster that the hub reaches and this program does not costs one time-out for all jobs, for a while: else they would hold up the others.
func TestAClusterThatDoesNotAnswer(t *testing.T) {
	w := newMemberWorld(t)
	w.leaves(t, evictedText)
	w.answer(t, contract.PhaseFenced)
	require.Empty(t, w.leaves(t, evictedText))
	delete(w.fences, "default/a")                          // by a program that has started since
	client := w.m.client.Dynamic.(*fake.FakeDynamicClient) //nolint:forcetypeassert // newHubWorld has made it
	asked := 0
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, nil, errors.New("no answer")
	})
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	b, err := bindingOf(object(t, bindingText("placement: {}, clusters: [{name: other}]")))
	require.NoError(t, err)
	w.refence(t.Context(), b, w.job)
	w.refence(t.Context(), b, w.job)
	require.Equal(t, 2, asked, "it answers, and refuses")
	w.refence(late, b, w.job)
	require.Equal(t, 3, asked)

	w.refence(t.Context(), b, w.job)
	w.giveBack(t.Context(), "default/a", func(string, *contract.GangReservation) bool { return true })
	evicted, err := bindingOf(object(t, bindingText(evictedText)))
	require.NoError(t, err)
	gangs := newToCome(gang(t, "a", 2, 1))
	assert.Equal(t, "m: the job was there, and the cluster does not answer whether it is there still", w.controller.leaves(t.Context(), evicted, w.job, gangs))
	offers, reasons, _ := w.offers(w.bindings["default/a"], gangs)
	assert.Empty(t, offers)
	assert.Equal(t, []string{"m: it does not answer"}, reasons)
	assert.Equal(t, 3, asked)
	assert.NotContains(t, w.fences, "default/a", "nobody was asked for it")
	w.m.unheard = time.Now().Add(-quiet)
	assert.Contains(t, w.controller.leaves(t.Context(), evicted, w.job, gangs), "no answer")
	assert.Equal(t, 4, asked)
}

// What a policy has left running in a cluster is the job's, also when the policy does not ask for that any more.
func TestAJobThatWasLeftInACluster(t *testing.T) {
	w := newMemberWorld(t)
	w.bring(t, "")
	said := w.leaves(t, evictedText+", preserveResourcesOnDeletion: true")
	require.Contains(t, said, leftThere)
	o := object(t, bindingText(evictedText))
	gangs := newToCome(gang(t, "a", 2, 1))
	leaves := func() string {
		b, err := bindingOf(o)
		require.NoError(t, err)
		return w.controller.leaves(t.Context(), b, w.job, gangs)
	}
	o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": contract.BindingScheduled, "status": "False", "message": said}}}
	assert.Contains(t, leaves(), leftThere)
	unstructured.RemoveNestedField(o.Object, "status")
	assert.Empty(t, leaves(), "someone else's")
}
