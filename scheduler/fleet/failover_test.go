package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

// setPods has a member show pods of a gang, the first ones on its node, after each was changed.
func (m *member) setPods(t *testing.T, pods []*corev1.Pod, bound int, change func(i int, pod *corev1.Pod)) {
	t.Helper()
	for i, pod := range pods {
		pod = pod.DeepCopy()
		pod.UID = types.UID("live-" + pod.Name)
		if i < bound {
			record, err := contract.Allocation{Node: "n", GPUs: []int{i}}.Annotations()
			require.NoError(t, err)
			pod.Spec.NodeName, pod.Annotations = "n", record
		}
		if change != nil {
			change(i, pod)
		}
		m.state.SetPod(pod)
	}
}

func TestGangsThatWaitInTheirCluster(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		bound  int
		shown  int // of three pods
		change func(i int, pod *corev1.Pod)
		waits  bool
	}{
		"no pod yet":                  {},
		"none is placed":              {shown: 3, waits: true},
		"it runs":                     {shown: 3, bound: 3},
		"a member was lost":           {shown: 3, bound: 2, waits: true},
		"a member is not made again":  {shown: 2, bound: 2},
		"two have ended":              {shown: 1, bound: 1},
		"the lost member leaves":      {shown: 3, bound: 2, change: func(i int, pod *corev1.Pod) { pod.DeletionTimestamp = map[bool]*metav1.Time{true: &now}[i == 2] }},
		"someone holds the whole":     {shown: 3, change: func(_ int, pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }},
		"it is not all there, either": {shown: 2, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, pods := newMember(t), gang(t, "a", 2, 1)
			m.setPods(t, pods[:test.shown], test.bound, test.change)
			assert.Equal(t, test.waits, m.waits(newToCome(pods)))
		})
	}
}

// A gang that waits in its cluster is taken from there once its policy tolerates that no longer, and for nothing else.
func TestAGangThatWaitsForTooLong(t *testing.T) {
	const patient = "failover: {application: {decisionConditions: {tolerationSeconds: 30}, purgeMode: Gracefully}}"
	for name, test := range map[string]struct {
		failover  string
		cluster   string
		bound     int
		waited    time.Duration
		done      bool
		full      bool // the other cluster
		empty     bool // of pods
		told      string
		withdrawn bool
	}{
		"for too long":                      {failover: patient, waited: 31 * time.Second, withdrawn: true},
		"none of its pods has come":         {failover: patient, waited: time.Hour, empty: true},
		"the cluster does not take it":      {failover: patient, waited: time.Hour, empty: true, told: "applied: false, appliedMessage: denied", withdrawn: true},
		"the cluster takes no change of it": {failover: patient, waited: time.Hour, bound: 3, told: "applied: false, appliedMessage: denied"},
		"nothing is told yet":               {failover: patient, waited: time.Hour, empty: true, told: "applied: false"},
		"no other cluster has a place":      {failover: patient, waited: time.Hour, full: true},
		"not for long":                      {failover: patient, waited: 29 * time.Second},
		"it runs":                           {failover: patient, waited: time.Hour, bound: 3},
		"it has ended":                      {failover: patient, waited: time.Hour, done: true},
		"it has failed, and who knows":      {failover: patient, waited: time.Hour, done: true, told: `health: Healthy, status: {conditions: [{type: Failed, status: "True"}]}`, withdrawn: true},
		"Karmada knows that it has failed":  {failover: patient, waited: time.Hour, done: true, told: `health: Unhealthy, status: {conditions: [{type: Failed, status: "True"}]}`},
		"it has failed a moment ago":        {failover: patient, waited: time.Second, done: true, told: `health: Healthy, status: {conditions: [{type: Failed, status: "True"}]}`},
		"it has succeeded":                  {failover: patient, waited: time.Hour, done: true, told: `health: Healthy, status: {conditions: [{type: Succeeded, status: "True"}]}`},
		"the cluster is not reached":        {failover: patient, waited: time.Hour, cluster: `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "False"}]}}`},
		"the policy wants none":             {failover: "failover: {}", waited: time.Hour},
		"without a number":                  {failover: "failover: {application: {decisionConditions: {}}}", waited: 301 * time.Second, withdrawn: true},
		"without a number, not for so long": {failover: "failover: {application: {decisionConditions: {}}}", waited: 299 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w, o, pods := newHubWorld(t, "{}"), object(t, jobText), gang(t, "a", 2, 1)
			b := object(t, bindingText("placement: {}, clusters: [{name: m}], gracefulEvictionTasks: [{fromCluster: other}, {fromCluster: m}], "+test.failover))
			if test.told != "" {
				b.Object["status"] = object(t, "{aggregatedStatus: [{clusterName: m, "+test.told+"}]}").Object
			}
			_, err := w.hub.Resource(bindings).Namespace("default").Update(t.Context(), b, metav1.UpdateOptions{})
			require.NoError(t, err)
			w.setBinding(t.Context(), b)
			if test.cluster != "" {
				w.setCluster(t.Context(), object(t, test.cluster))
			}
			other := newMember(t)
			other.name = "other"
			other.synced.Store(true)
			w.members["other"] = other
			w.setCluster(t.Context(), object(t, strings.Replace(clusterText, "name: m", "name: other", 1)))
			if test.full {
				require.Empty(t, other.hold("default/b", newToCome(gang(t, "b", 1, 4))))
			}
			w.sent["default/a"] = true
			w.kept(t, o, 1, time.Now().Add(time.Minute))
			if !test.empty {
				w.m.setPods(t, pods, test.bound, nil)
			}
			w.watched["default/a"] = watchedJob{cluster: "m", since: time.Now().Add(-test.waited)}
			require.NoError(t, w.watchOver(t.Context(), w.bindings["default/a"], o, newToCome(pods), test.done))
			after := w.bindings["default/a"].Spec
			if !test.withdrawn {
				assert.Len(t, after.Clusters, 1)
				assert.Equal(t, test.full, w.waiting["default/a"], "it is looked at again when something changes in a cluster")
				return
			}
			assert.Empty(t, after.Clusters)
			assert.Empty(t, w.m.held)
			require.Len(t, after.GracefulEvictionTasks, 2, "one of each cluster")
			assert.Subset(t, w.bindings["default/a"].was(), []string{"other", "m"})
			hub, err := w.hub.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			task := hub.Object["spec"].(map[string]any)["gracefulEvictionTasks"].([]any)[1].(map[string]any)
			assert.Equal(t, "Directly", task["purgeMode"], "it never runs in two clusters, whatever the policy says")
			assert.NotEmpty(t, task["creationTimestamp"])
		})
	}
}

// A gang is looked at when it begins to wait, and when it does no longer.
func TestGangsThatBeginToWait(t *testing.T) {
	w, pods := newHubWorld(t, "{}"), gang(t, "a", 2, 1)
	due := func() bool {
		defer func() {
			for w.work.Len() > 0 {
				key, _ := w.work.Get()
				w.work.Done(key)
			}
		}()
		w.mu.Lock()
		w.stir(w.m)
		w.mu.Unlock()
		return w.work.Len() > 0
	}
	for w.work.Len() > 0 {
		key, _ := w.work.Get()
		w.work.Done(key)
	}
	w.m.setPods(t, pods, 3, nil)
	w.watched["default/a"] = watchedJob{cluster: "m", gangs: newToCome(pods)}
	assert.False(t, due())
	w.m.state.RemovePod(types.UID("live-" + pods[2].Name))
	lost := pods[2].DeepCopy()
	lost.UID = "again"
	w.m.state.SetPod(lost)
	assert.True(t, due(), "a member waits")
	w.watched["default/a"] = watchedJob{cluster: "m", gangs: newToCome(pods), since: time.Now()}
	assert.False(t, due(), "that is known")
	w.m.setPods(t, pods, 3, nil)
	w.m.state.RemovePod("again")
	assert.True(t, due(), "it runs again")
}

// A gang in a cluster that is not reached for a while is looked at when it waits there after that.
func TestAClusterThatComesBack(t *testing.T) {
	w, o, pods := newHubWorld(t, "{}"), object(t, jobText), gang(t, "a", 2, 1)
	w.setBinding(t.Context(), object(t, bindingText("placement: {}, clusters: [{name: m}], failover: {application: {}}")))
	w.m.setPods(t, pods, 3, nil)
	watch := func(ready string) {
		w.setCluster(t.Context(), object(t, strings.Replace(clusterText, `"True"`, ready, 1)))
		require.NoError(t, w.watchOver(t.Context(), w.bindings["default/a"], o, newToCome(pods), false))
		w.drain()
	}
	watch(`"True"`)
	watch(`"False"`)
	w.setCluster(t.Context(), object(t, clusterText))
	w.drain()
	w.changed("m")
	assert.Zero(t, w.work.Len(), "it runs")
	w.m.state.RemovePod(types.UID("live-" + pods[2].Name))
	again := pods[2].DeepCopy()
	again.UID = "again"
	w.m.state.SetPod(again)
	w.changed("m")
	assert.Equal(t, 1, w.work.Len())
}

// What was said once of where a job is counts until the cluster shows that nothing is left, and no longer.
func TestWhereAJobWas(t *testing.T) {
	w := newMemberWorld(t)
	leaves := func(text, cluster string) string {
		w.setCluster(t.Context(), object(t, cluster))
		return w.leaves(t, "placement: {}"+text)
	}
	const told, lost = ", gracefulEvictionTasks: [{fromCluster: m}]", `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "False"}]}}`
	assert.Empty(t, leaves("", lost), "it was nowhere")
	assert.NotEmpty(t, leaves(told, lost))
	assert.NotEmpty(t, leaves("", lost), "Karmada has forgotten it, and nobody has seen that it is gone")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{contract.TopologyGroupLabel: "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	live := w.m.client.Typed.CoreV1().Pods("default")
	_, err := live.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Contains(t, leaves("", clusterText), "1 of its pods", "the watch has not shown it")
	require.NoError(t, live.Delete(t.Context(), "p", metav1.DeleteOptions{}))
	const preserved = ", preserveResourcesOnDeletion: true"
	w.bring(t, "")
	assert.Contains(t, leaves(preserved, clusterText), "delete it there", "Karmada has left it, and taken its label")
	w.take(t)
	assert.NotEmpty(t, leaves("", clusterText), "neither job nor pods are there, and they may come late")
	w.answer(t, contract.PhaseFenced)
	assert.Empty(t, leaves("", clusterText))
	assert.Empty(t, leaves(told, lost), "that was seen")
}

// A job that Karmada has brought to a cluster, and that has pods there, may run there, also where its binding is a new one and knows of none.
func TestAJobThatItsBindingDoesNotKnowOf(t *testing.T) {
	w, pods := newMemberWorld(t), gang(t, "a", 2, 1)
	leaves := func() string {
		return w.controller.leaves(t.Context(), w.bindings["default/a"], w.job, newToCome(pods))
	}
	w.m.setPods(t, pods, 3, nil)
	assert.Empty(t, leaves(), "someone else's pods")
	w.bring(t, "")
	assert.Empty(t, leaves(), "of someone else's job")
	w.take(t)
	w.bring(t, "true")
	assert.Contains(t, leaves(), "the job is there still")
}

// Where a job was sent is known to who starts after Karmada has forgotten it, and to who waits for the queue meanwhile.
func TestWhereAJobWasSent(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	require.NoError(t, w.decide(t, o))
	require.Equal(t, "m", w.sentTo(t))
	taken := w.bindings["default/a"].object.DeepCopy() // by Karmada, whose evictions end after ten minutes
	require.NoError(t, unstructured.SetNestedSlice(taken.Object, nil, "spec", "clusters"))

	again := newHubWorld(t, "{}")
	again.setBinding(t.Context(), taken)
	again.setCluster(t.Context(), object(t, `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "False"}]}}`))
	pods := newToCome(gang(t, "a", 2, 1))
	assert.Contains(t, again.leaves(t.Context(), again.bindings["default/a"], o, pods), "cannot be asked")
	again.setCluster(t.Context(), object(t, `{metadata: {name: m, deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {conditions: [{type: Ready, status: "False"}]}}`))
	assert.Empty(t, again.leaves(t.Context(), again.bindings["default/a"], o, pods), "someone has said that it is lost")
}

// That a job was gone from a cluster says nothing once it has come back there, and who has sent it there does not matter.
func TestAJobThatComesBackToACluster(t *testing.T) {
	w, o, pods := newHubWorld(t, "{}"), object(t, jobText), gang(t, "a", 2, 1)
	b := object(t, bindingText("placement: {}, clusters: [{name: m}]"))
	_, err := w.hub.Resource(bindings).Namespace("default").Update(t.Context(), b, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.setBinding(t.Context(), b)
	w.left["default/a"] = map[string]bool{"m": false}
	require.NoError(t, w.keep(t.Context(), w.bindings["default/a"], o, pods))
	assert.NotContains(t, w.left, "default/a")
	assert.True(t, w.sent["default/a"], "others do not wait for what is written of it")
	require.Equal(t, []string{"m"}, w.bindings["default/a"].was(), "known before a watch shows it")
	require.NoError(t, w.keep(t.Context(), w.bindings["default/a"], o, pods))
	said, err := w.hub.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	told, err := bindingOf(said)
	require.NoError(t, err)
	assert.Equal(t, result("m", pods), told.said())
}

// A job comes back to a cluster once the hub has forgotten what that has told of it before, that it has failed there, say: it would be taken
// for what becomes of it this time.
func TestWhatAClusterHasToldBefore(t *testing.T) {
	const told = `{aggregatedStatus: [{clusterName: m, applied: true, status: {conditions: [{type: Failed, status: "True"}]}}]}`
	for name, kept := range map[string]bool{"nothing is kept": false, "its place is kept since before this program started": true} {
		t.Run(name, func(t *testing.T) {
			w := newMemberWorld(t)
			w.left["default/a"] = map[string]bool{"m": false} // it is known to be gone
			w.fences["default/a"] = map[string]request{"m": {cluster: "m", last: time.Now()}}
			if kept {
				w.kept(t, w.job, 1, time.Now().Add(time.Minute))
			}
			b := w.bindings["default/a"].object.DeepCopy()
			b.Object["status"] = object(t, told).Object
			w.setBinding(t.Context(), b)
			w.told["default/a"] = time.Time{}
			require.NoError(t, w.decide(t, w.job))
			assert.NotContains(t, w.asked, "default/a")
			stored, err := w.hub.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			said, err := bindingOf(stored)
			require.NoError(t, err)
			assert.Equal(t, "m: the hub shows still what the cluster has told of the job before", said.said())

			b = stored.DeepCopy()
			unstructured.RemoveNestedField(b.Object, "status", "aggregatedStatus")
			w.setBinding(t.Context(), b)
			require.NoError(t, w.decide(t, w.job))
			assert.Contains(t, w.asked, "default/a")
		})
	}
}

// What the binding of a job says is nothing of another one that was made under its name since.
func TestABindingOfAnEarlierJob(t *testing.T) {
	for uid, succeeded := range map[string]string{"first": "first", "zeroth": ""} {
		w, server := newMemberWorld(t), kubetest.Start(t)
		b := object(t, bindingText("placement: {}, clusters: [{name: m}]"))
		b.SetResourceVersion("")
		b.SetAnnotations(map[string]string{contract.SentAnnotation: "m"})
		require.NoError(t, unstructured.SetNestedField(b.Object, uid, "spec", "resource", "uid"))
		b.Object["status"] = object(t, `{aggregatedStatus: [{clusterName: m, status: {conditions: [{type: Succeeded, status: "True"}]}}]}`).Object
		for _, o := range []*unstructured.Unstructured{object(t, jobsText), object(t, bindingsText), w.job.DeepCopy(), b} {
			server.Put(o)
		}
		client, err := kube.New(server.Config())
		require.NoError(t, err)
		w.controller.hub = client
		stored := func() *unstructured.Unstructured {
			o, err := client.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			return o
		}
		w.setBinding(t.Context(), stored())
		require.NoError(t, w.reconcile(t.Context(), "default/a"))
		assert.Equal(t, succeeded, stored().GetAnnotations()[contract.SucceededAnnotation])
	}
}

// A job that Karmada has taken from its cluster leaves nothing behind that the picture of the cluster charges, or that its scheduler keeps.
func TestAJobThatOthersTakeFromItsCluster(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	require.NoError(t, w.decide(t, o))
	taken := w.bindings["default/a"].object.DeepCopy()
	require.NoError(t, unstructured.SetNestedSlice(taken.Object, nil, "spec", "clusters"))
	w.setBinding(t.Context(), taken)
	w.setCluster(t.Context(), object(t, `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "False"}]}}`))
	w.told["default/a"] = time.Now() // it is not told of that here
	w.m.synced.Store(false)
	require.NoError(t, w.decide(t, o))
	assert.Empty(t, w.m.held)
	assert.Empty(t, w.asked)
}

// in is a job in a phase.
func in(t *testing.T, phase string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, jobText)
	require.NoError(t, unstructured.SetNestedSlice(o.Object, []any{map[string]any{"type": phase, "status": "True"}}, "status", "conditions"))
	return o
}

// What a job was in another cluster, which the hub shows until the one where it is tells something, says nothing of where it is.
func TestJobsThatHaveEnded(t *testing.T) {
	const failed, running = `{conditions: [{type: Failed, status: "True"}]}`, `{conditions: [{type: Running, status: "True"}]}`
	for name, test := range map[string]struct {
		told         string
		ended, stays bool
	}{
		"nothing is told":     {stays: true},
		"by another cluster":  {told: "{clusterName: other, status: " + failed + "}", stays: true},
		"nothing yet":         {told: "{clusterName: m}", stays: true},
		"it runs":             {told: "{clusterName: m, status: " + running + "}"},
		"it has failed there": {told: "{clusterName: m, status: " + failed + "}", ended: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, bindingText("placement: {}, clusters: [{name: m}]"))
			o.Object["status"] = object(t, "{aggregatedStatus: ["+test.told+"]}").Object
			b, err := bindingOf(o)
			require.NoError(t, err)
			ended, _ := b.endedThere(in(t, "Failed"))
			assert.Equal(t, test.ended, ended)
			assert.Equal(t, test.stays, b.stays(in(t, "Failed")))
			o.Object["spec"].(map[string]any)["failover"] = object(t, "{application: {decisionConditions: {}}}").Object //nolint:forcetypeassert // of this test
			b, err = bindingOf(o)
			require.NoError(t, err)
			assert.Equal(t, test.ended, b.stays(in(t, "Failed")), "it may have failed where it was before")
			assert.Equal(t, test.stays, b.stays(in(t, "Succeeded")))
		})
	}
}

// A job that has failed goes to another cluster, as its policy says. One that has succeeded does not, whoever took it out of its cluster.
func TestAJobThatHasSucceeded(t *testing.T) {
	for phase, asked := range map[string]bool{"Failed": true, "Succeeded": false} {
		w := newHubWorld(t, "{}")
		require.NoError(t, w.decide(t, in(t, phase)))
		_, ok := w.asked["default/a"]
		assert.Equal(t, asked, ok, phase)
	}
}

// That a job has succeeded is known of kinds of which the hub does not show it, too, once its cluster has told so: it does not run once
// more when Karmada has taken it from there, and forgotten that.
func TestAJobOfWhichItsClusterHasToldThatItHasSucceeded(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	const sent = "placement: {}, clusters: [{name: m}]"
	annotated := func() string { return w.bindings["default/a"].Annotations[contract.SucceededAnnotation] }
	for phase, said := range map[string]string{"Running": "", "Failed": "", "Succeeded": "first"} {
		b := object(t, bindingText(sent))
		b.SetAnnotations(map[string]string{contract.SentAnnotation: "m", contract.SucceededAnnotation: "another"})
		b.Object["status"] = object(t, `{aggregatedStatus: [{clusterName: m, status: {conditions: [{type: `+phase+`, status: "True"}]}}]}`).Object
		_, err := w.hub.Resource(bindings).Namespace("default").Update(t.Context(), b, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.setBinding(t.Context(), b)
		require.NoError(t, w.keep(t.Context(), w.bindings["default/a"], o, nil))
		if said == "" {
			assert.Equal(t, "another", annotated(), phase)
			b.SetAnnotations(map[string]string{contract.SentAnnotation: "m", contract.SucceededAnnotation: "first"}) // by what an earlier one of its name has told
			w.setBinding(t.Context(), b)
			require.NoError(t, w.keep(t.Context(), w.bindings["default/a"], o, nil))
		}
		assert.Equal(t, said, annotated(), phase)
	}
	for uid, asked := range map[string]bool{"first": false, "another": true} {
		w := newHubWorld(t, "{}")
		taken := object(t, bindingText("placement: {}"))
		taken.SetAnnotations(map[string]string{contract.SucceededAnnotation: uid})
		w.setBinding(t.Context(), taken)
		assert.Equal(t, !asked, w.bindings["default/a"].stays(o))
		require.NoError(t, w.decide(t, o))
		assert.Equal(t, asked, w.asked["default/a"].cluster != "", uid)
	}
}
