package drain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

// pod is a running pod of a controller on a node.
func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "x", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func of(gang, minimum string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[contract.LightGangLabel], p.Labels[contract.LightGangMinLabel] = gang, minimum
	}
}

func by(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences[0].Kind = kind }
}

func bare(p *corev1.Pod) { p.OwnerReferences = nil }

func ending(p *corev1.Pod) {
	p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.Now()), []string{"test/stays"}
}

func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

// Which pods leave a drained node, and which of them together.
func TestDeparturesOf(t *testing.T) {
	for name, test := range map[string]struct {
		pods                         []*corev1.Pod
		groups, leaving, pinned, bad string
	}{
		"on other nodes":                   {pods: []*corev1.Pod{pod("a", "n2"), pod("b", "")}},
		"each by itself":                   {pods: []*corev1.Pod{pod("b", "n1"), pod("a", "n1")}, groups: "a|b"},
		"finished":                         {pods: []*corev1.Pod{pod("a", "n1", succeeded)}},
		"being deleted":                    {pods: []*corev1.Pod{pod("a", "n1", ending)}, leaving: "a"},
		"of a DaemonSet":                   {pods: []*corev1.Pod{pod("a", "n1", by("DaemonSet"))}, pinned: "a"},
		"of nobody":                        {pods: []*corev1.Pod{pod("a", "n1", bare)}, groups: "a", bad: "a"},
		"a gang as a whole":                {pods: []*corev1.Pod{pod("a", "n1", of("g", "2")), pod("b", "n2", of("g", "2")), pod("c", "n2", of("h", "1"))}, groups: "a,b"},
		"one that has its minimum":         {pods: []*corev1.Pod{pod("a", "n1", of("g", "1")), pod("b", "n2", of("g", "1"))}, groups: "a"},
		"beside one that leaves already":   {pods: []*corev1.Pod{pod("a", "n1", of("g", "1")), pod("b", "n2", of("g", "1"), ending), pod("c", "n2", of("g", "1"))}, groups: "a"},
		"the last ones that stay leave":    {pods: []*corev1.Pod{pod("a", "n1", of("g", "1")), pod("b", "n2", of("g", "1"), ending)}, groups: "a"},
		"made again elsewhere":             {pods: []*corev1.Pod{pod("a", "n1", of("g", "2"), ending), pod("b", "n2", of("g", "2")), pod("c", "n2", of("g", "2"))}, leaving: "a"},
		"a gang with a pod that has ended": {pods: []*corev1.Pod{pod("a", "n1", of("g", "2")), pod("b", "n2", of("g", "2")), pod("c", "n2", of("g", "2"), succeeded)}, groups: "a"},
		"one that waits is left alone":     {pods: []*corev1.Pod{pod("a", "n1", of("g", "2")), pod("b", "", of("g", "2"))}, groups: "a"},
		"a member that nobody makes again": {pods: []*corev1.Pod{pod("a", "n1", of("g", "2")), pod("b", "n2", of("g", "2"), bare)}, groups: "a,b", bad: "b"},
		"the same gang on two nodes":       {pods: []*corev1.Pod{pod("a", "n1", of("g", "1")), pod("b", "n3", of("g", "1"))}, groups: "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			var o clusterlist.Objects
			for _, p := range test.pods {
				o.Pods = append(o.Pods, *p)
			}
			d := departuresOf(o, []string{"n1", "n3"})
			var groups []string
			for _, g := range d.groups {
				groups = append(groups, list(g.pods))
			}
			assert.Equal(t, test.groups, strings.Join(groups, "|"))
			assert.Equal(t, test.leaving, list(d.leaving))
			assert.Equal(t, test.pinned, list(d.pinned))
			assert.Equal(t, test.bad, list(d.bare()))
		})
	}
}

// A member that has succeeded counts as the scheduler counts it, also when its pod has gone.
func TestMemberThatHasSucceededAndGone(t *testing.T) {
	for succeeded, want := range map[int32]string{0: "a,b", 1: "a"} {
		member := func(name, node string) corev1.Pod { return *pod(name, node, of("g", "2"), by("Job")) }
		o := clusterlist.Objects{Pods: []corev1.Pod{member("a", "n1"), member("b", "n2")}, Jobs: []batchv1.Job{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "x"},
			Spec: batchv1.JobSpec{
				Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), CompletionMode: ptr.To(batchv1.IndexedCompletion),
				Template: corev1.PodTemplateSpec{ObjectMeta: member("", "").ObjectMeta},
			},
			Status: batchv1.JobStatus{Succeeded: succeeded},
		}}}
		d := departuresOf(o, []string{"n1"})
		require.Len(t, d.groups, 1)
		assert.Equal(t, want, list(d.groups[0].pods), succeeded)
	}
}

func list(pods []*corev1.Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, ",")
}

// world is a cluster with the nodes n1 and n2.
type world struct {
	api    *kubetest.Server
	client *kube.Client

	mu   sync.Mutex
	said []string
}

func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{api: kubetest.Start(t)}
	var err error
	w.client, err = kube.New(w.api.Config())
	require.NoError(t, err)
	for _, name := range []string{"n1", "n2"} {
		w.put(t, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, o := range objects {
		w.put(t, o)
	}
	return w
}

func (w *world) put(t *testing.T, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	w.api.Put(&unstructured.Unstructured{Object: content})
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *world) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "\n")
}

// pods are the names of the pods that are there.
func (w *world) pods(t *testing.T) string {
	t.Helper()
	all, err := w.client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, p := range all.Items {
		names = append(names, p.Name)
	}
	return strings.Join(names, ",")
}

func (w *world) cordoned(t *testing.T, node string) bool {
	t.Helper()
	n, err := w.client.Typed.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	return n.Spec.Unschedulable
}

// drain drains n1.
func (w *world) drain(t *testing.T, timeout time.Duration, force bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	d := drain{client: w.client, nodes: []string{"n1"}, force: force, say: w.say}
	return d.run(ctx)
}

// budget allows so many disruptions of the pods of an app.
func budget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, DesiredHealthy: 4, CurrentHealthy: 4},
	}
}

func TestDrain(t *testing.T) {
	w := start(t, pod("a", "n1"), pod("b", "n2"), pod("daemon", "n1", by("DaemonSet")), pod("g-0", "n1", of("g", "2")), pod("g-1", "n2", of("g", "2")))
	require.NoError(t, w.drain(t, time.Minute, false))
	assert.Equal(t, "b,daemon", w.pods(t), "a gang leaves as a whole")
	assert.True(t, w.cordoned(t, "n1"))
	assert.False(t, w.cordoned(t, "n2"))
	for _, line := range []string{
		"Node n1 is cordoned.", "Evicting pod default/a from n1.", "Evicting gang default/g (2 pods) from n1, n2.",
		"Drained n1: 3 pods left. Pods of DaemonSets and static pods stay: default/daemon. The nodes stay cordoned; `kubectl uncordon n1` lets pods on them again.",
	} {
		assert.Contains(t, w.text(), line)
	}
}

// together answers evictions only when so many have been asked for, those of dry runs aside.
type together struct {
	http.RoundTripper
	asked sync.WaitGroup
}

func (r *together) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/eviction") || dryRun(req) {
		return r.RoundTripper.RoundTrip(req)
	}
	r.asked.Done()
	all := make(chan struct{})
	go func() { r.asked.Wait(); close(all) }()
	select {
	case <-all:
		return r.RoundTripper.RoundTrip(req)
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// dryRun reports whether an eviction is asked for without being made.
func dryRun(req *http.Request) bool {
	content, err := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(content))
	return err == nil && strings.Contains(string(content), metav1.DryRunAll)
}

// What is made again of a gang before its last member leaves would be placed beside that.
func TestGangIsEvictedAtOnce(t *testing.T) {
	w := start(t, pod("g-0", "n1", of("g", "3")), pod("g-1", "n1", of("g", "3")), pod("g-2", "n2", of("g", "3")))
	cfg := w.api.Config()
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		r := &together{RoundTripper: rt}
		r.asked.Add(3)
		return r
	}
	var err error
	w.client, err = kube.New(cfg)
	require.NoError(t, err)
	require.NoError(t, w.drain(t, 10*time.Second, false))
	assert.Empty(t, w.pods(t))
}

// A gang of which not all members may leave keeps all of them, and leaves when the budget allows it.
func TestBudgetKeepsAGangTogether(t *testing.T) {
	w := start(t, budget("x", 1), pod("g-0", "n1", of("g", "2")), pod("g-1", "n2", of("g", "2")))
	err := w.drain(t, 1500*time.Millisecond, false)
	require.ErrorContains(t, err, "the time is over, and pods are still on the nodes. "+
		"These stay: gang default/g (2 pods) (PodDisruptionBudget default/x allows 1 disruption now, and 2 pods leave at once). "+
		"The nodes stay cordoned, and what was evicted is gone: invoke the action again to go on, or give up with `kubectl uncordon n1`")
	assert.Equal(t, "g-0,g-1", w.pods(t))
	assert.True(t, w.cordoned(t, "n1"))
	assert.Equal(t, 1, strings.Count(w.text(), "Waiting with gang default/g"), "what is known already is not said again")

	w.put(t, budget("x", 2))
	require.NoError(t, w.drain(t, time.Minute, false))
	assert.Empty(t, w.pods(t))
}

// What the API server refuses when others have used a budget is tried again.
func TestBudgetThatIsUsedUp(t *testing.T) {
	w := start(t, budget("x", 1), pod("a", "n1"), pod("b", "n1"))
	done := make(chan error, 1)
	go func() { done <- w.drain(t, time.Minute, false) }()
	assert.Eventually(t, func() bool {
		return strings.Contains(w.text(), "Waiting with pod default/b: The disruption budget x needs 4 healthy pods and has 4 currently.")
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, "b", w.pods(t))
	w.put(t, budget("x", 1))
	require.NoError(t, <-done)
	assert.Empty(t, w.pods(t))
}

// Pods that nobody makes again are refused before anything is done.
func TestPodsThatNobodyMakesAgain(t *testing.T) {
	w := start(t, pod("a", "n1"), pod("lone", "n1", bare))
	require.ErrorContains(t, w.drain(t, time.Minute, false), "no controller has made them: default/lone; move them, or evict them as well with force = true")
	assert.Equal(t, "a,lone", w.pods(t))
	assert.False(t, w.cordoned(t, "n1"))
	require.NoError(t, w.drain(t, time.Minute, true))
	assert.Empty(t, w.pods(t))
}

// A pod that does not end is waited for, and named.
func TestPodThatDoesNotEnd(t *testing.T) {
	w := start(t, pod("a", "n1", func(p *corev1.Pod) { p.Finalizers = []string{"test/stays"} }))
	require.ErrorContains(t, w.drain(t, 1500*time.Millisecond, false), "These stay: pod default/a (it was evicted and has not ended yet).")
	require.ErrorContains(t, w.drain(t, 1500*time.Millisecond, false), "These stay: pod default/a (it is being deleted).")
}

func TestNodeThatHasGone(t *testing.T) {
	w := start(t, pod("a", "n3"))
	d := drain{client: w.client, nodes: []string{"n3"}, say: w.say}
	require.EqualError(t, d.run(t.Context()), "the cluster has no node n3")
	assert.Equal(t, "a", w.pods(t))
}
