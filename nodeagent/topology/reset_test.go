package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

// healthOf is the published health of GPU 5.
func (w *world) healthOf(t *testing.T) string {
	t.Helper()
	return w.gpuNode(t).Status.GPUs[5].Health
}

// The machine boots while the API server is away, and a GPU reports an error in the new boot. What an earlier
// agent has published of the boot before comes late: the error was not before the boot.
func TestAnErrorOfThisBootIsNotCuredByIt(t *testing.T) {
	for name, readable := range map[string]bool{"the GPUs are read": true, "the GPUs are read later": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start(t, wired(t, "dgx1-v100")).round()
			a := w.start(t, wired(t, "dgx1-v100"))
			a.Boot = "boot-2"
			if !readable {
				a.source.fail(errGone)
			}
			a.look(w.ctx)
			a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 48})
			a.look(w.ctx) // nothing is known of the cluster yet
			a.round()
			a.source.fail(nil)
			a.round()
			a.after(6 * time.Minute)
			assert.Equal(t, contract.Unhealthy, w.healthOf(t))
		})
	}
}

// One look shows an error and a reset: nobody knows which came first.
func TestAnErrorBesideAResetIsNotCured(t *testing.T) {
	for name, first := range map[string]bool{"the first look of an agent": true, "a later one": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start(t, wired(t, "dgx1-v100")).round()
			a := w.start(t, wired(t, "dgx1-v100"))
			if !first {
				a.round()
			}
			a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 48})
			a.source.change(func(r *hardware.Reading) { r.Signals = []hardware.Signal{{GPU: "GPU-5", Kind: hardware.WasReset}} })
			a.round()
			a.source.change(func(r *hardware.Reading) { r.Signals = nil })
			a.after(6 * time.Minute)
			assert.Equal(t, contract.Unhealthy, w.healthOf(t))
		})
	}
}

// A reset that an agent has seen before it knows what an earlier one has published.
func TestAResetBeforeTheClusterIsKnown(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 48})
	a.round()
	b := w.start(t, wired(t, "dgx1-v100"))
	b.source.change(func(r *hardware.Reading) { r.Signals = []hardware.Signal{{GPU: "GPU-5", Kind: hardware.WasReset}} })
	b.look(w.ctx)
	b.source.change(func(r *hardware.Reading) { r.Signals = nil })
	b.round()
	b.after(6 * time.Minute)
	assert.Equal(t, contract.Healthy, w.healthOf(t))
}

// A reset was seen, and something else holds the GPU while the agent is restarted.
func TestAResetIsKeptBesideAnotherFault(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 79})
	a.round()
	fabric := []hardware.Signal{{GPU: "GPU-5", Kind: hardware.FabricNotReady}}
	rebooted := func(signals []hardware.Signal) *agent {
		b := w.start(t, wired(t, "dgx1-v100"))
		b.Boot = "boot-2"
		b.source.change(func(r *hardware.Reading) { r.Signals = signals })
		b.round()
		return b
	}
	rebooted(fabric)
	assert.Equal(t, contract.Unhealthy, w.healthOf(t))
	rebooted(nil).after(6 * time.Minute)
	assert.Equal(t, contract.Healthy, w.healthOf(t))
}

// A driver that hangs shows no GPU that is well.
func TestNoGPUIsUsedAgainUnseen(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.change(func(r *hardware.Reading) {
		r.Signals = []hardware.Signal{{GPU: "GPU-5", Kind: hardware.ResetRequired, Number: 1}}
	})
	a.round()
	a.source.fail(errGone)
	a.after(30 * time.Minute)
	a.after(30 * time.Minute)
	assert.Equal(t, contract.Unhealthy, w.healthOf(t))
	a.source.set(hardware.Reading{Machine: wired(t, "dgx1-v100")})
	a.round()
	assert.Equal(t, contract.Unhealthy, w.healthOf(t))
	a.after(5 * time.Minute)
	assert.Equal(t, contract.Healthy, w.healthOf(t))
}

// An agent is ended so that a GPU can be reset: the driver asked for that, and does not any more.
func TestAResetWhileNoAgentRan(t *testing.T) {
	for name, test := range map[string]struct {
		told   bool
		health string
	}{
		"the driver asks for nothing":       {true, contract.Healthy},
		"a driver that does not tell of it": {false, contract.Unhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.start(t, wired(t, "dgx1-v100"))
			a.source.change(func(r *hardware.Reading) {
				r.Signals = []hardware.Signal{{GPU: "GPU-5", Kind: hardware.ResetRequired, Number: 1}}
			})
			a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 95})
			a.round()
			b := w.start(t, wired(t, "dgx1-v100"))
			b.source.change(func(r *hardware.Reading) {
				r.GPUs = make([]hardware.GPU, 8)
				r.GPUs[5].NoAction = test.told
			})
			b.round()
			b.after(6 * time.Minute)
			assert.Equal(t, test.health, w.healthOf(t))
		})
	}
}

// replaceNode deletes the Node, the garbage collector what belongs to it, and the kubelet of the same machine makes it again.
func (w *world) replaceNode(t *testing.T) {
	t.Helper()
	if len(w.gpuNode(t).OwnerReferences) > 0 {
		w.Remove(gpuNodeKind, "", nodeName)
	}
	w.Remove(nodeKind, "", nodeName)
	w.putNode("topology")
}

// Who deletes the Node of a machine that runs on has reset no GPU of it.
func TestANodeThatIsMadeAgain(t *testing.T) {
	for name, restarted := range map[string]bool{"the agent goes on": false, "another agent starts": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.start(t, wired(t, "dgx1-v100"))
			a.round()
			a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 48})
			a.round()
			before := a.Nodes.Get(cluster.Node, nodeName).GetUID()
			w.replaceNode(t)
			if restarted {
				a = w.start(t, wired(t, "dgx1-v100"))
			}
			a.seen("the Node that was made again", func() bool {
				node := a.Nodes.Get(cluster.Node, nodeName)
				return node != nil && node.GetUID() != before
			})
			a.after(6 * time.Minute)
			assert.Equal(t, contract.Unhealthy, w.healthOf(t))

			a = w.start(t, wired(t, "dgx1-v100"))
			a.Boot = "boot-2"
			a.round()
			a.after(6 * time.Minute)
			assert.Equal(t, contract.Healthy, w.healthOf(t))
			owners := w.gpuNode(t).OwnerReferences
			if assert.Len(t, owners, 1, "it goes with its Node again") {
				assert.Equal(t, a.Nodes.Get(cluster.Node, nodeName).GetUID(), owners[0].UID)
			}
		})
	}
}

// The Node is deleted before the fault is written, and the agent learns of the end of the GPUNode, which belonged to it, first.
func TestTheEndOfAGPUNodeWithItsNode(t *testing.T) {
	for name, spoil := range map[string]func(w *world){
		"the Node is gone":          func(w *world) { w.Remove(nodeKind, "", nodeName) },
		"the Node was made again":   func(w *world) { w.Remove(nodeKind, "", nodeName); w.putNode("topology") },
		"the Node is being deleted": func(w *world) { w.finalizeNode() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.start(t, wired(t, "dgx1-v100"))
			a.round()
			node := a.Nodes.Get(cluster.Node, nodeName)
			a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 48})
			a.look(w.ctx)
			spoil(w)
			_ = a.remember(w.ctx, contract.GPUNode{}, node) // it may have to wait for the watch
			a.look(w.ctx)
			assert.Equal(t, health.Unhealthy, a.verdicts[5].State)
		})
	}
}

// Memory errors are counted since the last reset. What came while no agent ran is told by the next one.
func TestMemoryErrorsWhileNoAgentRan(t *testing.T) {
	for name, test := range map[string]struct {
		before, now *int64
		boot        string
		new         int
	}{
		"some more":                    {new(int64(3)), new(int64(5)), "boot-1", 2},
		"the first":                    {new(int64(0)), new(int64(1)), "boot-1", 1},
		"none":                         {new(int64(3)), new(int64(3)), "boot-1", 0},
		"the count has begun again":    {new(int64(3)), new(int64(1)), "boot-1", 0},
		"the machine was rebooted":     {new(int64(3)), new(int64(5)), "boot-2", 0},
		"an earlier agent told nobody": {nil, new(int64(5)), "boot-1", 0},
		"the driver tells no more":     {new(int64(3)), nil, "boot-1", 0},
	} {
		for when, readable := range map[string]bool{"": true, ", and the driver comes late": false} {
			t.Run(name+when, func(t *testing.T) {
				w := newWorld(t)
				counted := func(count *int64) *agent {
					a := w.start(t, wired(t, "dgx1-v100"))
					a.source.change(func(r *hardware.Reading) {
						r.GPUs = make([]hardware.GPU, 8)
						r.GPUs[5].UncorrectableErrors = count
					})
					return a
				}
				counted(test.before).round()
				b := counted(test.now)
				b.Boot = test.boot
				if !readable {
					b.source.fail(errGone)
					b.round()
					b.source.fail(nil)
				}
				b.round()
				b.round()
				want := ""
				if test.new > 0 {
					want = fmt.Sprintf("%d new uncorrectable memory errors", test.new)
					assert.Contains(t, scrape(b.Metrics), `gpuplan_gpu_signals_total{kind="UncorrectableECC",node="cn-local.10.0.1.1",uuid="GPU-5",xid=""} 1`)
				}
				gpu := w.gpuNode(t).Status.GPUs[5]
				assert.Equal(t, want, gpu.Reason)
				assert.Equal(t, test.now, gpu.UncorrectableErrors)
				b.after(6 * time.Minute)
				assert.Equal(t, contract.Healthy, w.healthOf(t))
			})
		}
	}
}
