package clustercache

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestHardwareOf(t *testing.T) {
	object := func(gpus any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": contract.GPUNodeGroup + "/" + contract.GPUNodeVersion, "kind": contract.GPUNodeKind,
			"metadata": map[string]any{"name": "n1", "resourceVersion": "7", "managedFields": []any{map[string]any{"manager": "gpuplan-node-agent"}}},
			"status":   map[string]any{"gpus": gpus},
		}}
	}
	tests := map[string]struct {
		gpus any
		want int
	}{
		"two GPUs":   {[]any{map[string]any{"index": int64(0)}, map[string]any{"index": int64(1)}}, 2},
		"unreadable": {"eight", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			converted, err := new(published).hardwareOf(object(test.gpus))
			require.NoError(t, err)
			hardware := converted.(*contract.GPUNode)
			assert.Equal(t, "n1", hardware.Name)
			assert.Equal(t, "7", hardware.ResourceVersion, "the informer compares it")
			assert.Empty(t, hardware.ManagedFields)
			assert.Len(t, hardware.Status.GPUs, test.want)
			again, err := new(published).hardwareOf(converted)
			require.NoError(t, err)
			assert.Same(t, hardware, again, "what is converted stays")
		})
	}
}

func TestEqualHardwareIsKeptOnce(t *testing.T) {
	known := new(published)
	read := func(node, uuid, health, reason string) *contract.GPUNode {
		converted, err := known.hardwareOf(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": node},
			"status": map[string]any{
				"gpus":       []any{map[string]any{"index": int64(0), "uuid": uuid, "health": health, "reason": reason}},
				"conditions": []any{map[string]any{"type": contract.ConditionReady, "status": "True"}},
			},
		}})
		require.NoError(t, err)
		return converted.(*contract.GPUNode)
	}
	a, b, faulty := read("a", "GPU-1", contract.Healthy, ""), read("b", "GPU-2", contract.Healthy, ""), read("c", "GPU-3", contract.Unhealthy, "XID 79")
	assert.Equal(t, "b", b.Name)
	assert.Same(t, &a.Status.GPUs[0], &b.Status.GPUs[0])
	assert.Equal(t, contract.Unhealthy, faulty.Status.GPUs[0].Health)
	assert.Equal(t, "XID 79", faulty.Status.GPUs[0].Reason)
	read("c", "GPU-3", contract.Unhealthy, "XID 48")
	assert.Len(t, known.known, 1, "health is no other hardware")
	assert.Equal(t, contract.Healthy, a.Status.GPUs[0].Health)
}

// What makes the GPUs of one node doubtful is kept beside the hardware that it shares.
func TestUnverifiedNodesStaySoBesideSharedHardware(t *testing.T) {
	known := new(published)
	read := func(node, ready, heartbeat string) *contract.GPUNode {
		converted, err := known.hardwareOf(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": node},
			"status": map[string]any{
				"gpus":       []any{map[string]any{"index": int64(0), "health": contract.Healthy}},
				"conditions": []any{map[string]any{"type": contract.ConditionReady, "status": ready, "message": "gone"}},
				"agent":      map[string]any{"instance": node, "started": heartbeat, "heartbeat": heartbeat},
			},
		}})
		require.NoError(t, err)
		return converted.(*contract.GPUNode)
	}
	const at = "2026-01-02T03:00:00Z"
	now := time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)
	fine, unreadable := read("a", "True", at), read("b", "Unknown", at)
	assert.Same(t, &fine.Status.GPUs[0], &unreadable.Status.GPUs[0])
	assert.Empty(t, fine.Status.Doubt(now))
	assert.Equal(t, "the node agent cannot read the GPUs: gone", unreadable.Status.Doubt(now))
	assert.Equal(t, "the node agent is silent since "+at, fine.Status.Doubt(now.Add(contract.HeartbeatLimit)))
}

// The clock of a node may be wrong: its agent is silent when no other heartbeat has been shown for too long.
func TestHeartbeatsByTheClockHere(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"behind": -3 * time.Hour, "right": 0, "ahead": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := new(published)
				doubt := func(written time.Time) string {
					converted, err := known.hardwareOf(&unstructured.Unstructured{Object: map[string]any{
						"metadata": map[string]any{"name": "n"},
						"status":   map[string]any{"agent": map[string]any{"heartbeat": written.UTC().Format(time.RFC3339)}},
					}})
					require.NoError(t, err)
					return converted.(*contract.GPUNode).Status.Doubt(time.Now())
				}
				assert.Equal(t, name == "behind", doubt(time.Now().Add(ahead)) != "", "the first one has the clock of the node alone")
				var last time.Time
				for range 6 {
					time.Sleep(contract.HeartbeatInterval)
					last = time.Now().Add(ahead)
					assert.Empty(t, doubt(last))
				}
				time.Sleep(contract.HeartbeatLimit + time.Second)
				assert.Contains(t, doubt(last), "the node agent is silent since")
			})
		})
	}
}

// A node whose agent falls silent offers no GPUs any more, though nothing is reported of it.
func TestANodeWithASilentAgentOffersNoGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &follower{cache: New()}
		var freed atomic.Int64
		f.cache.Subscribe(func(change clusterstate.Change) {
			if change.Freed {
				freed.Add(1)
			}
		})
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{contract.NodeModeLabel: "topology"}}}
		n.Status.Allocatable = corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("2")}
		f.setNode(n)
		beat := func() {
			f.setHardware(&contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: contract.GPUNodeStatus{
				Links: []string{"X SYS", "SYS X"}, Agent: &contract.AgentInfo{Heartbeat: metav1.Now()},
				GPUs: []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 1, Health: contract.Healthy}},
			}})
		}
		usable := func() int {
			f.cache.mu.Lock()
			defer f.cache.mu.Unlock()
			n, _ := f.cache.state.View.Node("n")
			m := n.GPUs.Machine()
			return m.Healthy().Len()
		}
		for range 6 {
			beat()
			time.Sleep(contract.HeartbeatInterval)
			assert.Equal(t, 2, usable())
		}
		time.Sleep(contract.HeartbeatLimit)
		synctest.Wait()
		assert.Equal(t, 0, usable())
		before := freed.Load()
		beat()
		assert.Equal(t, 2, usable())
		assert.Equal(t, before+1, freed.Load(), "who waits is told that there is room again")
		time.Sleep(time.Hour) // all timers end
		synctest.Wait()
	})
}
