package gang

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evictions that end half-way: what their victim, and others that count on its end, make of that.

// nominates has a gang of one pod hold the place that another leaves.
func (b *bench) nominates(name string) []*corev1.Pod {
	b.Helper()
	pods := b.urgent(name, 1, 8)
	b.submit(pods)
	_, status := b.cycle(pods[0])
	require.Contains(b, status.Message(), "gang ns/low")
	return pods
}

// Gangs that count on pods which another gang evicts evict them themselves when that one goes.
func TestOthersCountOnTheVictimsOfAGangThatGoes(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	low := b.spread("low", "a", "b", "c")
	var starts []func()
	b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
	first := b.nominates("first")
	others := [][]*corev1.Pod{b.nominates("second"), b.nominates("third")}
	b.plugin.aside.start = func(f func()) { f() }
	b.end(first[0])
	for _, start := range starts {
		start()
	}
	activated := b.handle.takeActivated()
	for _, pods := range others {
		if assert.Contains(t, activated, pods[0].Name) {
			b.cycle(pods[0])
		}
	}
	b.work()
	for _, pod := range low {
		assert.Nil(t, b.live(pod), pod.Name)
	}
}

// A gang does not start before all pods of its victim are being deleted: nobody would delete the others then.
func TestPlaceIsTakenWhenTheWholeVictimGoes(t *testing.T) {
	for i, late := range []string{"low-0", "low-1"} {
		t.Run(late, func(t *testing.T) {
			b := newBench(t, "a", "b")
			low := b.spread("low", "a", "b")
			refusing := b.refuseDeletion(apierrors.NewInternalError(assert.AnError), late)
			refusing.lenient = true
			big := b.nominates("big")
			b.work()
			require.NotNil(t, b.live(low[i]))
			require.Nil(t, b.live(low[1-i]))
			b.handle.takeActivated()
			b.end(low[1-i])
			assert.NotContains(t, b.handle.takeActivated(), "big-0")
			_, status := b.cycle(big[0])
			assert.False(t, status.IsSuccess())

			refusing.answer = nil
			b.elapse()
			assert.Nil(t, b.live(low[i]))
			b.end(low[i])
			assert.Contains(t, b.handle.takeActivated(), "big-0")
			_, status = b.cycle(big[0])
			assert.True(t, status.IsSuccess(), status.Message())
		})
	}
}

// A gang that other plugins refuse gives back a place that it does not get, and its victim is a victim no more.
func TestBlockedGangGivesBackAPlaceThatItDoesNotGet(t *testing.T) {
	for name, blockedFirst := range map[string]bool{"blocked before": true, "blocked after": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			low := b.spread("low", "a", "b")
			refusing := b.refuseDeletion(protected(), "low-1")
			refusing.lenient = true
			big := b.nominates("big")
			key, _ := b.cache.PlanKey(big[0])
			block := func() {
				b.plugin.gangs[key].reopen()
				b.plugin.block(t.Context(), key, big[0], `persistentvolumeclaim "data" not found`)
			}
			if blockedFirst {
				block()
				_, held := b.cache.Nomination(key)
				require.True(t, held, "its victims can be evicted still")
			}
			b.work()
			require.NotNil(t, b.live(low[1]))
			require.Nil(t, b.live(low[0]))
			if !blockedFirst {
				block()
			}
			_, held := b.cache.Nomination(key)
			assert.False(t, held)
			b.addNode("c")
			next := b.replaced(low[0])
			b.submit([]*corev1.Pod{next})
			node, status := b.cycle(next)
			assert.True(t, status.IsSuccess(), status.Message())
			assert.NotEqual(t, "b", node)
		})
	}
}

// Room that others take changes the place of a gang which is blocked, too.
func TestBlockedGangWhosePlaceIsTaken(t *testing.T) {
	b := newBench(t, "a")
	b.runs("low", "a", 1, 4, 0)
	b.plugin.aside.start = func(func()) {}
	big := b.nominates("big")
	key, _ := b.cache.PlanKey(big[0])
	b.plugin.gangs[key].reopen()
	b.plugin.block(t.Context(), key, big[0], `persistentvolumeclaim "data" not found`)
	b.runs("another", "a", 1, 4, 4)
	b.plugin.work.refresh()
	b.work()
	_, held := b.cache.Nomination(key)
	assert.False(t, held)
}

// Pods that come after those of a gang which is evicted wait until the last of these is being deleted, not until it has gone.
func TestEvictedGangStartsElsewhereAtOnce(t *testing.T) {
	b := newBench(t, "a", "b")
	low := b.spread("low", "a", "b")
	b.nominates("big")
	b.work()
	for _, pod := range low {
		leaving := pod.DeepCopy()
		now := metav1.Now()
		leaving.DeletionTimestamp = &now
		b.plugin.work.add(b.cache.SetPod(leaving))
	}
	b.work()
	b.addNode("c")
	b.addNode("d")
	var next []*corev1.Pod
	for _, pod := range low {
		again := pod.DeepCopy()
		again.UID += "-again"
		again.Spec.NodeName, again.Annotations = "", nil
		next = append(next, again)
	}
	b.submit(next)
	node, status := b.cycle(next[0])
	assert.Contains(t, []string{"c", "d"}, node, status.Message())
}
