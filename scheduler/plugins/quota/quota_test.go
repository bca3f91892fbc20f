package quota

import (
	"errors"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// fakeHandle notes which pods were activated.
type fakeHandle struct {
	fwk.Handle
	client    *fake.Clientset
	activated []string
}

func (h *fakeHandle) ClientSet() kubernetes.Interface { return h.client }

func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name := range pods {
		h.activated = append(h.activated, name)
	}
}

func newPlugin(t *testing.T) (*Plugin, *fakeHandle) {
	t.Helper()
	cache, handle := clustercache.New(), &fakeHandle{client: fake.NewClientset()}
	plugin, err := Factory(cache)(t.Context(), nil, handle)
	require.NoError(t, err)
	_, err = cache.SetQuotaTree(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{
		"name": "root", "children": []any{map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": map[string]any{"cpu": "2"}}},
	}}}})
	require.NoError(t, err)
	return plugin.(*Plugin), handle
}

func newPod(name string, resources corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: resources}}}},
	}
}

var oneCPU = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}

var twoCPU = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}

func TestQuota(t *testing.T) {
	p, handle := newPlugin(t)
	state := framework.NewCycleState()
	first, second := newPod("first", twoCPU), newPod("second", twoCPU)
	p.cache.SetPod(first)
	p.cache.SetPod(second)

	_, status := p.PreFilter(t.Context(), state, first, nil)
	require.True(t, status.IsSkip())
	require.True(t, p.Reserve(t.Context(), state, first, "node").IsSuccess())
	_, status = p.PreFilter(t.Context(), state, second, nil)
	assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "the first is charged before it is bound")
	assert.Contains(t, status.Message(), "root/team")

	p.Unreserve(t.Context(), state, first, "node")
	assert.Equal(t, []string{"ns/second"}, handle.activated)
	_, status = p.PreFilter(t.Context(), state, second, nil)
	assert.True(t, status.IsSkip())
	p.wake(t.Context())
	assert.Len(t, handle.activated, 1, "nobody waits any more")
}

// A pod that waits for quota which is held for others is tried again when it is held no more.
func TestQuotaThatIsHeldForOthers(t *testing.T) {
	p, handle := newPlugin(t)
	runs, second := newPod("runs", oneCPU), newPod("second", oneCPU)
	runs.Spec.NodeName = "node"
	blocked := newPod("blocked", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), contract.ResourceTopologyGPU: resource.MustParse("1")})
	_, err := p.cache.SetNode(podtest.Node("node", 8))
	require.NoError(t, err)
	for _, pod := range []*corev1.Pod{runs, second, blocked} {
		p.cache.SetPod(pod)
	}
	state := framework.NewCycleState()
	_, status := p.PreFilter(t.Context(), state, second, nil)
	require.True(t, status.IsSkip())
	require.True(t, p.cache.ReserveBlocked([]string{"pod/ns/blocked"}, nil))
	handle.activated = nil
	assert.Equal(t, fwk.Unschedulable, p.Reserve(t.Context(), state, second, "node").Code(), "between its filter and its place")
	_, status = p.PreFilter(t.Context(), state, second, nil)
	assert.Equal(t, "quota root/team: max of cpu is 2, 1 is used (2 once reservations are taken) and 1 is asked for", status.Message())
	handle.activated = nil
	require.True(t, p.cache.ReserveBlocked(nil, nil))
	assert.Equal(t, []string{"ns/second"}, handle.activated)
	_, status = p.PreFilter(t.Context(), state, second, nil)
	assert.True(t, status.IsSkip())
}

// Between its filter and its place others may have got what was free.
func TestQuotaThatIsTakenMeanwhile(t *testing.T) {
	p, handle := newPlugin(t)
	state := framework.NewCycleState()
	first, second := newPod("first", twoCPU), newPod("second", twoCPU)
	p.cache.SetPod(first)
	p.cache.SetPod(second)
	_, status := p.PreFilter(t.Context(), state, second, nil)
	require.True(t, status.IsSkip())
	require.True(t, p.Reserve(t.Context(), state, first, "node").IsSuccess())
	status = p.Reserve(t.Context(), state, second, "node")
	assert.Equal(t, fwk.Unschedulable, status.Code())
	assert.Contains(t, status.Message(), "root/team")
	assert.Equal(t, []string{"ns/second"}, handle.activated)
	p.Unreserve(t.Context(), state, second, "node")
	p.Unreserve(t.Context(), state, first, "node")
	assert.True(t, p.Reserve(t.Context(), state, second, "node").IsSuccess())
}

// What the view has not seen it cannot charge.
func TestPodThatHasJustAppeared(t *testing.T) {
	p, handle := newPlugin(t)
	var due []func()
	p.after = func(_ time.Duration, f func()) { due = append(due, f) }
	pod := newPod("pod", twoCPU)
	_, status := p.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
	assert.Contains(t, status.Message(), "the scheduler has not taken the pod into its view yet")
	require.Len(t, due, 1)
	due[0]()
	assert.Equal(t, []string{"ns/pod"}, handle.activated)
	p.cache.SetPod(pod)
	_, status = p.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
	assert.True(t, status.IsSkip())
}

// Planned pods are the planner's business.
func TestPlannedPodsAreLeftAlone(t *testing.T) {
	p, _ := newPlugin(t)
	planned := newPod("planned", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9"), contract.ResourceTopologyGPU: resource.MustParse("1")})
	p.cache.SetPod(planned)
	state := framework.NewCycleState()
	_, status := p.PreFilter(t.Context(), state, planned, nil)
	assert.True(t, status.IsSkip())
	require.True(t, p.Reserve(t.Context(), state, planned, "node").IsSuccess())
	p.Unreserve(t.Context(), state, planned, "node")
	assert.Empty(t, p.cache.OverQuota(newPod("other", twoCPU)), "not charged")
}

// What was charged is taken back, though the planner places the pod by now.
func TestPodThatJoinsAGangWhileItIsBound(t *testing.T) {
	p, _ := newPlugin(t)
	pod := newPod("pod", twoCPU)
	p.cache.SetPod(pod)
	state := framework.NewCycleState()
	require.True(t, p.Reserve(t.Context(), state, pod, "node").IsSuccess())
	joined := pod.DeepCopy()
	joined.Labels = map[string]string{contract.TopologyGroupLabel: "job", contract.TopologyReplicasLabel: "2"}
	p.cache.SetPod(joined)
	require.True(t, p.cache.Planned(joined))
	require.NotEmpty(t, p.cache.OverQuota(newPod("other", twoCPU)))
	p.Unreserve(t.Context(), state, joined, "node")
	assert.Empty(t, p.cache.OverQuota(newPod("other", twoCPU)), "not charged any more")
}

func TestPodsOfOneLeafAreEqual(t *testing.T) {
	p, _ := newPlugin(t)
	fragments, status := p.SignPod(t.Context(), newPod("pod", twoCPU))
	require.True(t, status.IsSuccess())
	assert.Equal(t, "team", fragments[0].Value)
}

// A binding that has failed may have succeeded, where its answer was lost: the pod stays charged while that
// is so, or while nobody can tell.
func TestBindingThatWorkedAllTheSame(t *testing.T) {
	for name, test := range map[string]struct{ bound, silent, keeps bool }{
		"not bound":       {},
		"bound":           {bound: true, keeps: true},
		"nobody can tell": {silent: true, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, handle := newPlugin(t)
			p.after = func(time.Duration, func()) {}
			state := framework.NewCycleState()
			first, second := newPod("first", twoCPU), newPod("second", twoCPU)
			p.cache.SetPod(first)
			p.cache.SetPod(second)
			live := first.DeepCopy()
			if test.bound {
				live.Spec.NodeName = "node"
			}
			_, err := handle.client.CoreV1().Pods("ns").Create(t.Context(), live, metav1.CreateOptions{})
			require.NoError(t, err)
			silent := test.silent
			handle.client.PrependReactor("get", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
				return silent, nil, errors.New("no answer")
			})
			require.True(t, p.Reserve(t.Context(), state, first, "node").IsSuccess())
			p.Unreserve(t.Context(), state, first, "node")
			_, status := p.PreFilter(t.Context(), state, second, nil)
			assert.Equal(t, test.keeps, !status.IsSkip(), status.Message())

			silent = false
			_, status = p.PreFilter(t.Context(), state, first, nil)
			assert.Equal(t, test.bound, !status.IsSkip(), "its next cycle asks again: %s", status.Message())
			_, status = p.PreFilter(t.Context(), state, second, nil)
			assert.Equal(t, test.bound, !status.IsSkip(), status.Message())
		})
	}
}
