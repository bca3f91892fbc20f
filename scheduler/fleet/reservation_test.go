package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clientfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

const (
	jobText = `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a, namespace: default, uid: first, generation: 1},
  spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, template: {metadata: {labels: {gpu-topology: a, gpu-topology-replica: "1"}}, spec: {containers: [{name: pytorch, image: i, resources: {limits: {aliyun.com/gpu: "8"}}}]}}}}}}`
	clusterText = `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "True"}], apiEnablements: [{groupVersion: kubeflow.org/v1, resources: [{kind: PyTorchJob}]}]}}`
)

func bindingText(spec string) string {
	return `{apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding, metadata: {name: a, namespace: default, resourceVersion: "1"},
  spec: {schedulerName: gpuplan-fleet-scheduler, resource: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, namespace: default, name: a}, ` + spec + `}}`
}

// hubWorld is a controller of a hub with one member cluster, m, and one binding, a.
type hubWorld struct {
	*controller
	m   *member
	hub *fake.FakeDynamicClient
}

func newHubWorld(t *testing.T, placement string) *hubWorld {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	b := object(t, bindingText("placement: "+placement))
	kinds := map[schema.GroupVersionResource]string{
		bindings: "ResourceBindingList", gangreservation.Resource: "GangReservationList",
		{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: "pytorchjobs"}: "PyTorchJobList",
	}
	hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, b)
	client.Dynamic = hub
	w := &hubWorld{controller: newController(t.Context(), client), m: newMember(t), hub: hub}
	w.controller.id = "hub"
	server := kubetest.Start(t) // for its discovery
	server.Put(object(t, jobsText))
	w.m.client, err = kube.New(server.Config())
	require.NoError(t, err)
	w.m.client.Dynamic, w.m.client.Typed = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), clientfake.NewClientset()
	w.m.synced.Store(true)
	w.members["m"] = w.m
	w.setCluster(t.Context(), object(t, clusterText))
	w.setBinding(t.Context(), b)
	return w
}

// kept has the member show that it keeps the place of a job.
func (w *hubWorld) kept(t *testing.T, job *unstructured.Unstructured, epoch int64, expires time.Time) {
	t.Helper()
	until := metav1.NewTime(expires)
	reservation := &contract.GangReservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: gangreservation.Resource.GroupVersion().String(), Kind: contract.GangReservationKind},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", Labels: map[string]string{contract.FleetLabel: w.id}},
		Spec:       contract.GangReservationSpec{Job: manifest(job, "m"), Epoch: epoch, Seconds: 60},
		Status:     contract.GangReservationStatus{Epoch: epoch, Phase: contract.PhaseReserved, Expires: &until},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(reservation)
	require.NoError(t, err)
	w.m.setReservation(&unstructured.Unstructured{Object: object})
	client := w.m.client.Dynamic.Resource(gangreservation.Resource).Namespace("default")
	_ = client.Delete(t.Context(), "a", metav1.DeleteOptions{})
	_, err = client.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// sentTo is where the job was sent, "" for nowhere.
func (w *hubWorld) sentTo(t *testing.T) string {
	t.Helper()
	o, err := w.hub.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	b, err := bindingOf(o)
	require.NoError(t, err)
	if len(b.Spec.Clusters) == 0 {
		return ""
	}
	return b.Spec.Clusters[0].Name
}

// place is one decision about the job.
func (w *hubWorld) decide(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	pods, err := job.Expected(o)
	require.NoError(t, err)
	return w.place(t.Context(), w.bindings["default/a"], o, pods)
}

func TestAJobThatIsSentWhereItsPlaceIsKept(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	require.NoError(t, w.decide(t, o))
	require.EqualValues(t, 1, w.asked["default/a"].epoch)
	assert.Empty(t, w.sentTo(t), "nothing is kept yet")
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	require.NoError(t, w.decide(t, o))
	assert.Equal(t, "m", w.sentTo(t))
}

// Between the question and the answer the policy, the cluster or the job may change.
func TestAnAnswerThatComesTooLate(t *testing.T) {
	for name, change := range map[string]func(*hubWorld, *unstructured.Unstructured){
		"policy": func(w *hubWorld, _ *unstructured.Unstructured) {
			w.setBinding(t.Context(), object(t, bindingText("placement: {clusterAffinity: {clusterNames: [other]}}")))
		},
		"cluster": func(w *hubWorld, _ *unstructured.Unstructured) {
			w.setCluster(t.Context(), object(t, `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "False"}]}}`))
		},
		"job":                          func(_ *hubWorld, o *unstructured.Unstructured) { o.SetGeneration(2) },
		"another job of the same name": func(_ *hubWorld, o *unstructured.Unstructured) { o.SetUID("second") },
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newHubWorld(t, "{}"), object(t, jobText)
			require.NoError(t, w.decide(t, o))
			w.kept(t, o, 1, time.Now().Add(time.Minute))
			change(w, o)
			w.told["default/a"] = time.Now() // it is not told of that here
			require.NoError(t, w.decide(t, o))
			assert.Empty(t, w.sentTo(t))
		})
	}
}

// drain empties the queue of work.
func (w *hubWorld) drain() {
	for w.work.Len() > 0 {
		key, _ := w.work.Get()
		w.work.Done(key)
	}
}

// A cluster that does not answer is given up when its time is over, also where the job was looked at before that for another reason, in
// whose favour the queue of work has forgotten that time.
func TestAnAnswerThatDoesNotCome(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	w.drain()
	w.work.AddAfter("default/a", 500*time.Millisecond)
	require.NoError(t, w.decide(t, o))
	require.Eventually(t, func() bool { return w.work.Len() > 0 }, time.Minute, time.Millisecond)
	w.drain()
	asked := w.asked["default/a"]
	asked.last = time.Now().Add(time.Second - answerWithin)
	w.asked["default/a"] = asked
	require.NoError(t, w.decide(t, o))
	require.Eventually(t, func() bool { return w.work.Len() > 0 }, time.Minute, time.Millisecond)
	require.NoError(t, w.decide(t, o))
	assert.NotContains(t, w.asked, "default/a")
	assert.Contains(t, w.refused("default/a", "m"), "does not answer")
}

// A request is made by a number that was not used before, or not at all.
func TestARequestThatIsNotKnownYet(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	w.kept(t, o, 3, time.Now().Add(time.Minute))
	epoch, _, err := w.m.reserve(t.Context(), "default/a", "hub", o, false)
	require.NoError(t, err)
	assert.EqualValues(t, 4, epoch)
	_, _, err = w.m.reserve(t.Context(), "default/a", "hub", o, false)
	require.Error(t, err, "the member has not told of the fourth")
}

// A place that was kept before this program started is asked for again: its time may be over, and nobody there to say so.
func TestAPlaceThatWasKeptBefore(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	w.kept(t, o, 3, time.Now().Add(-time.Hour))
	require.NoError(t, w.decide(t, o))
	assert.Empty(t, w.sentTo(t))
	require.EqualValues(t, 4, w.asked["default/a"].epoch)
	w.put("default/a", w.m, "its scheduler does not answer")
	w.told["default/a"] = time.Now()
	require.NoError(t, w.decide(t, o))
	assert.NotContains(t, w.asked, "default/a", "it is passed over")
}

// A member without our scheduler knows no reservations: the job is sent there at once. A namespace that is still to come is another matter.
func TestAMemberWithoutReservations(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		sent string
	}{
		"the kind":      {apierrors.NewNotFound(schema.GroupResource{Group: contract.GangReservationGroup, Resource: contract.GangReservationResource}, ""), "m"},
		"the namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"), ""},
		"no answer":     {errors.New("no answer"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newHubWorld(t, "{}"), object(t, jobText)
			members := w.m.client.Dynamic.(*fake.FakeDynamicClient) //nolint:forcetypeassert // newHubWorld has made it
			members.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
			require.NoError(t, w.decide(t, o))
			assert.Equal(t, test.sent, w.sentTo(t))
			if test.sent != "" {
				_, why := w.m.offer(newToCome(gang(t, "other", 0, 8)))
				assert.NotEmpty(t, why, "its place is charged until its pods have it")
			}
		})
	}
}

// A job that could not be sent the first time is charged in the picture of its cluster when it is.
func TestAJobThatIsSentAtTheSecondAttempt(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	fails := true
	w.hub.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		defer func() { fails = false }()
		return fails, nil, errors.New("no answer")
	})
	require.Error(t, w.decide(t, o))
	require.NoError(t, w.decide(t, o))
	require.Equal(t, "m", w.sentTo(t))
	_, why := w.m.offer(newToCome(gang(t, "other", 0, 8)))
	assert.NotEmpty(t, why)
}

// A reservation that loses the label of the fleet is none of the fleet any more.
func TestAReservationThatIsGivenAway(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	reservation := object(t, `{metadata: {name: a, namespace: default}}`)
	assert.Equal(t, "default/a", w.m.removeReservation(reservation))
	assert.Empty(t, w.m.removeReservation(reservation), "nobody is told of what was none")
}

// A job whose pods do not come has its place in the picture of its cluster for as long as it is kept there.
func TestAJobThatDoesNotCome(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	require.NoError(t, w.decide(t, o))
	pods, err := job.Expected(o)
	require.NoError(t, err)
	offered := func() string {
		_, why := w.m.offer(newToCome(gang(t, "other", 0, 8)))
		return why
	}
	require.Equal(t, "m", w.bindings["default/a"].Spec.Clusters[0].Name, "known before a watch shows it")
	w.tend(t.Context(), w.bindings["default/a"], o, newToCome(pods), false)
	assert.NotEmpty(t, offered())
	asked := w.asked["default/a"]
	asked.first = time.Now().Add(-patience)
	w.asked["default/a"] = asked
	w.tend(t.Context(), w.bindings["default/a"], o, newToCome(pods), false)
	assert.Empty(t, offered())
}

// The places of a gang are kept until all of its members are bound, also where it starts with fewer.
func TestPlacesOfAnElasticGang(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, strings.NewReplacer("replicas: 1", "replicas: 2", `gpu-topology: a, gpu-topology-replica: "1"`, `pod-group.scheduling.sigs.k8s.io/name: a, pod-group.scheduling.sigs.k8s.io/min-available: "1"`, `gpu: "8"`, `gpu: "1"`).Replace(jobText))
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	require.NoError(t, w.decide(t, o))
	pods, err := job.Expected(o)
	require.NoError(t, err)
	there := func() bool {
		_, err := w.m.client.Dynamic.Resource(gangreservation.Resource).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		return err == nil
	}
	for i, pod := range pods {
		record, err := contract.Allocation{Node: "n", GPUs: []int{i}}.Annotations()
		require.NoError(t, err)
		pod.UID, pod.Spec.NodeName, pod.Annotations = types.UID(pod.Name), "n", record
		w.m.state.SetPod(pod)
		w.tend(t.Context(), w.bindings["default/a"], o, newToCome(pods), false)
		assert.Equal(t, i == 0, there())
	}
}

// Karmada gives a Job as many replicas in a cluster as the binding says.
func TestReplicasThatAreSent(t *testing.T) {
	w := newHubWorld(t, "{}")
	b := w.bindings["default/a"]
	b.Spec.Replicas = 2
	require.NoError(t, w.commit(t.Context(), b, object(t, jobText), "m", nil))
	o, err := w.hub.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	sent, err := bindingOf(o)
	require.NoError(t, err)
	require.Len(t, sent.Spec.Clusters, 1)
	assert.EqualValues(t, 2, sent.Spec.Clusters[0].Replicas)

	sent.Spec.Replicas = 3
	require.False(t, sent.noted())
	require.NoError(t, w.keep(t.Context(), sent, object(t, jobText), nil))
	assert.EqualValues(t, 3, w.bindings["default/a"].Spec.Clusters[0].Replicas, "the job has grown on the hub")
	sent = w.bindings["default/a"]
	sent.Spec.Replicas = 3
	assert.True(t, sent.noted())
}

// A place that was shown to be kept when it was asked for is not counted on for longer than that.
func TestAPlaceThatIsShownForTooLong(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	asked := w.asked["default/a"]
	asked.last = time.Now().Add(-lease)
	w.asked["default/a"] = asked
	require.NoError(t, w.decide(t, o))
	assert.Empty(t, w.sentTo(t))
	assert.EqualValues(t, 2, w.asked["default/a"].epoch)
}

// A job leaves a cluster that is removed from the fleet once it is known, or said, that nothing of it runs there; one that has finished
// stays, because elsewhere it would run once more.
func TestAClusterThatIsRemovedFromTheFleet(t *testing.T) {
	const removed = `{metadata: {name: m, deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {conditions: [{type: Ready, status: "%s"}]}}`
	for name, test := range map[string]struct {
		cluster string // "" for none that the hub shows
		done    bool
		in      string
	}{
		"not reached":            {cluster: fmt.Sprintf(removed, "False")},
		"not shown":              {in: "m"},
		"reached, and may run":   {cluster: fmt.Sprintf(removed, "True"), in: "m"},
		"not reached, and ended": {cluster: fmt.Sprintf(removed, "False"), done: true, in: "m"},
		"it stays":               {cluster: clusterText, in: "m"},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newHubWorld(t, "{}"), object(t, jobText)
			b := object(t, bindingText("placement: {}, clusters: [{name: m}]"))
			_, err := w.hub.Resource(bindings).Namespace("default").Update(t.Context(), b, metav1.UpdateOptions{})
			require.NoError(t, err)
			w.setBinding(t.Context(), b)
			w.told["default/a"] = time.Now() // it is not told of that here
			if test.cluster == "" {
				w.removeCluster(object(t, clusterText))
			} else {
				w.setCluster(t.Context(), object(t, test.cluster))
			}
			w.m.synced.Store(false)
			if test.done {
				require.NoError(t, unstructured.SetNestedSlice(o.Object, []any{map[string]any{"type": "Succeeded", "status": "True"}}, "status", "conditions"))
			}
			if w.removed(w.bindings["default/a"]) && !w.bindings["default/a"].stays(o) {
				require.NoError(t, w.withdraw(t.Context(), w.bindings["default/a"], o, newToCome(nil)))
			}
			assert.Equal(t, test.in, w.sentTo(t))
		})
	}
}
