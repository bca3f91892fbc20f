package gang

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// activating runs something when pods are activated for the first time. As kube-scheduler's queue, it may be called by cycles and
// workers at once.
type activating struct {
	*fakeHandle
	mu     sync.Mutex
	during func()
}

func (h *activating) Activate(logger klog.Logger, pods map[string]*corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if during := h.during; during != nil {
		h.during = nil
		during()
	}
	h.fakeHandle.Activate(logger, pods)
}

// TestMemberGoesWhileTheGangIsPlanned is about the race detector: the worker takes an attempt back while the cycle of one of its
// members is still looking at it.
func TestMemberGoesWhileTheGangIsPlanned(t *testing.T) {
	t.Run("an attempt in order that was just opened", func(t *testing.T) {
		b := newBench(t, "a", "b")
		pods := b.gangPods("job", 3, 1)
		for _, p := range pods { // members with volumes are reserved in order
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}}}
		}
		b.submit(pods)
		done := make(chan struct{})
		b.plugin.handle = &activating{fakeHandle: b.handle, during: func() {
			go func() {
				defer close(done)
				b.cache.RemovePod(pods[2].UID)
				b.plugin.reconcile(context.Background(), "ns/job")
			}()
		}}
		b.plugin.assumedPod(t.Context(), "ns/job", pods[0]) // what it returns depends on who was first
		<-done
	})
	t.Run("a node refuses a member", func(t *testing.T) {
		b := newBench(t, "a", "b")
		pods := b.gangPods("job", 2, 1)
		b.submit(pods)
		state := framework.NewCycleState()
		_, status := b.plugin.PreFilter(t.Context(), state, pods[0], nil)
		require.True(t, status.IsSuccess())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.cache.RemovePod(pods[1].UID)
			b.plugin.reconcile(context.Background(), "ns/job")
		}()
		b.plugin.reject(t.Context(), "ns/job", assumedIn(state), fwk.NewStatus(fwk.Unschedulable, "no").WithPlugin("other"))
		<-done
	})
}

// What the scheduler's own cache is a moment behind about keeps no node from a gang, for which others would be evicted elsewhere: all that
// one attempt hears of a node is one time, and refusals beside pods that are known to be gone do not count.
func TestRefusalsThatMayBeOfTheCache(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	no := fwk.NewStatus(fwk.Unschedulable, "Insufficient aliyun.com/gpu").WithPlugin("NodeResourcesFit")
	refused := func(members int) rejections {
		t.Helper()
		var states []fwk.CycleState
		for _, pod := range pods[:members] {
			state := framework.NewCycleState()
			_, status := b.plugin.PreFilter(t.Context(), state, pod, nil)
			require.True(t, status.IsSuccess(), status.Message())
			states = append(states, state)
		}
		for _, state := range states {
			b.plugin.reject(t.Context(), "ns/job", assumedIn(state), no)
		}
		b.elapse()
		b.work()
		rejected, _ := b.plugin.rejectedFor("ns/job")
		return rejected
	}
	require.Empty(t, refused(2), "both members, once each")
	gone := b.gangPods("gone", 1, 1)[0]
	gone.Spec.NodeName = "a"
	b.handle.bound = append(b.handle.bound, gone)
	require.Empty(t, refused(1), "the snapshot has a pod that is gone")
	b.handle.bound = nil
	require.NotEmpty(t, refused(1))
}
