package gang

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// missing has each of some pods mount a volume of its own, of which one is not there, "" for none.
func (b *bench) missing(name string, pods []*corev1.Pod) {
	b.handle.refuses = func(pod *corev1.Pod) *fwk.Status {
		if pod.Name != name {
			return nil
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "volume claim not found").WithPlugin("Volumes")
	}
	for _, pod := range pods {
		volume := corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name}
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &volume}}}
	}
}

// cycles gives every pod that may enter the queue its cycle, some times over.
func (b *bench) cycles(pods []*corev1.Pod) {
	b.Helper()
	for range 8 {
		for _, pod := range pods {
			if b.plugin.PreEnqueue(b.Context(), pod).IsSuccess() {
				b.cycle(pod)
			}
			b.work()
		}
		b.elapse()
	}
}

// An old gang has room reserved without a member that another plugin refuses, whichever it is.
func TestOldGangReservesWithoutARefusedMember(t *testing.T) {
	for _, refused := range []string{"", "big-0", "big-1"} {
		t.Run(refused, func(t *testing.T) {
			b := newBench(t, "a", "b")
			b.runs("first", "a", 1, 4, 0)
			b.runs("second", "b", 1, 4, 0)
			big := b.gangPods("big", 2, 8)
			elastic(big, 0)
			for _, p := range big {
				p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			}
			b.missing(refused, big)
			b.submit(big)
			b.cycles(big)
			assert.Equal(t, map[string]bool{"ns/big": true}, b.cache.Reserved())
		})
	}
}

// A member whose binding may have succeeded, and that another plugin refuses from then on, gives its GPUs back once the API server
// shows that it is not bound.
func TestRefusedMemberThatMayBeBound(t *testing.T) {
	b := newBench(t, "a")
	pods, rival := b.gangPods("job", 2, 4), b.gangPods("rival", 1, 4)
	b.submit(pods)
	for _, pod := range pods {
		_, status := b.cycle(pod)
		require.False(t, status.IsRejected())
	}
	b.bind(pods[0], "a")
	b.plugin.Unreserve(t.Context(), b.states[pods[1].UID], pods[1], "a")
	b.failOnce("get")
	b.refusedAnyhow(pods[1])
	b.submit(rival)
	_, status := b.cycle(rival[0])
	require.True(t, status.IsRejected(), "nobody can tell")
	b.elapse()
	b.refusedAnyhow(pods[1])
	b.work()
	assert.Empty(t, b.plugin.gangs["ns/job"].assumed)
	_, status = b.cycle(rival[0])
	assert.False(t, status.IsRejected(), status.Message())
}

// A pod that is refused while the worker looks at its gang may come back all the same.
func TestPodIsRefusedWhileItsGangIsTried(t *testing.T) {
	b := newBench(t, "a")
	b.spread("low", "a")
	pods := b.gangPods("job", 3, 4)
	elastic(pods, 0)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	require.Contains(t, status.Message(), "0 of 1")
	b.work()
	b.plugin.retry(t.Context(), "ns/job", func(key string, limits clustercache.Limits) (clustercache.Decision, bool) {
		d, ok := b.cache.Consider(key, limits)
		b.refusedAnyhow(pods[0])
		return d, ok
	})
	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[0]).IsSuccess(), b.says(pods[0]))
	assert.Contains(t, b.says(pods[1]), "0 of 1")
}

// Room becomes free for a gang that can do without a member which is refused then, in a dry run or in its own cycle: who came
// later does not get it.
func TestGangIsNotOvertakenForARefusedMember(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, total := range []int{0, 2} { // whether the gang says how many members it has
			t.Run(fmt.Sprint(own, total), func(t *testing.T) {
				b := newBench(t, "a")
				low := b.spread("low", "a")
				pods := b.gangPods("job", 2, 4)
				elastic(pods, total)
				b.missing("job-1", pods)
				for _, p := range pods {
					b.plugin.work.add(b.cache.SetPod(p))
				}
				b.work()
				_, status := b.cycle(pods[0])
				require.Contains(t, status.Message(), "0 of 1")
				later := b.gangPods("later", 1, 8)
				b.submit(later)
				b.cycle(later[0])
				b.work()
				b.handle.takeActivated()
				b.end(low[0])
				require.Equal(t, []string{"job-0"}, b.handle.takeActivated())
				if own {
					b.refusedAnyhow(pods[1])
					b.work()
				}
				require.True(t, b.plugin.PreEnqueue(t.Context(), pods[0]).IsSuccess(), b.says(pods[0]))
				_, status = b.cycle(pods[0])
				assert.True(t, status.IsSuccess(), status.Message())
			})
		}
	}
}

// Nobody is evicted for a gang that needs a member which another plugin refuses, though it does not refuse others that ask for the same.
func TestNobodyIsEvictedForARefusedMember(t *testing.T) {
	b := newBench(t, "a", "b")
	low, mate := b.runs("low", "a", 1, 8, 0), b.runs("mate", "b", 1, 8, 0)
	pods := b.urgent("job", 2, 8)
	b.missing("job-1", pods)
	b.submit(pods)
	b.cycles(pods)
	assert.NotNil(t, b.live(low[0]))
	assert.NotNil(t, b.live(mate[0]))
	assert.Equal(t, "gang ns/job cannot start: pod job-1: volume claim not found", b.says(pods[0]))
}

// A pod that another plugin refuses says why, once that plugin has done so for a moment; what it was told before does not stand.
func TestRefusedPodSaysWhy(t *testing.T) {
	b := newBench(t, "a")
	b.spread("low", "a")
	pods := b.gangPods("job", 2, 4)
	elastic(pods, 0)
	b.submit(pods)
	b.cycle(pods[1])
	b.plugin.statuses.add("ns/job")
	b.work()
	said := func(pod *corev1.Pod) string { return b.live(pod).Status.Conditions[0].Message }
	require.Contains(t, said(pods[0]), "0 of 1")

	b.refusedAnyhow(pods[0])
	b.work()
	assert.Contains(t, said(pods[0]), "0 of 1")
	b.elapse()
	assert.Equal(t, "volume claim not found", said(pods[0]))
	assert.Contains(t, said(pods[1]), "0 of 1")
	assert.NotEmpty(t, b.plugin.refusals)

	b.allowed(pods[0])
	b.plugin.statuses.add("ns/job")
	b.work()
	assert.Contains(t, said(pods[0]), "0 of 1")
	assert.Empty(t, b.plugin.refusals)
}

// A scheduler that starts takes back the nominations of a gang that cannot start for a pod that another plugin refuses.
func TestNominationsOfAGangThatNeedsARefusedPod(t *testing.T) {
	b := newBench(t, "a")
	b.runs("low", "a", 1, 8, 0)
	pods := b.urgent("job", 2, 4)
	for _, pod := range pods {
		pod.Status.NominatedNodeName = "a"
		_, err := b.handle.client.CoreV1().Pods("ns").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	b.submit(pods)
	b.refusedAnyhow(pods[0])
	b.work()
	for _, pod := range pods {
		assert.Empty(t, b.live(pod).Status.NominatedNodeName)
	}
}

// A launcher that was refused as a member, before there were members that it is late for, starts once these run.
func TestRefusedPodThatIsLateFromThenOn(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 1, 4)
	launcher := launcherOf(pods)
	elastic(append(pods, launcher), 0)
	b.submit([]*corev1.Pod{launcher})
	b.refusedAnyhow(launcher)
	b.submit(pods)
	assert.False(t, b.cache.GangStatus("ns/job", launcher.UID).Refused)
	assert.True(t, b.cache.GangStatus("ns/job", launcher.UID).Late)
}
