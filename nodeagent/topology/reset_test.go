package topology

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
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
