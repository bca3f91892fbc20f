package topology

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/soaktest"
)

var (
	soakDays = flag.Int("soak.days", 2, "days of events; what is in use after the first is in use after the last")
	soakSeed = flag.Uint64("soak.seed", 1, "seed of the events")
)

// A day of everything that GPUs, drivers and people do costs neither memory nor goroutines nor descriptors.
func TestSoak(t *testing.T) {
	w := newWorld(t)
	s := &soaked{agent: w.start(t, wired(t, "dgx1-v100")), random: rand.New(rand.NewPCG(*soakSeed, 0))}
	s.publisher.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	s.observer.log = s.publisher.log
	s.round()
	var first soaktest.Use
	for day := range *soakDays {
		for range 24 * 60 * 2 {
			s.event()
			s.w.now = s.w.now.Add(30 * time.Second)
			s.look(w.ctx)
			_, err := s.publish(w.ctx)
			require.NoError(t, err)
			w.eventsSoFar()
		}
		s.repair()
		if day == 0 {
			first = s.usage()
			t.Logf("after a day: %s, %d events", first, s.events)
		}
	}
	last := s.usage()
	t.Logf("at the end: %s, %d events", last, s.events)
	last.HasNotGrown(t, first, soaktest.Use{Heap: 256, Goroutines: 1, Descriptors: 1})
	require.NotZero(t, s.events)
	for _, info := range w.gpuNode(t).Status.GPUs {
		assert.Equal(t, contract.Healthy, info.Health, "%+v", info)
	}
}

// soaked is an agent to which things happen.
type soaked struct {
	*agent
	random *rand.Rand
	swaps  int
	events int
}

// usage measures what is left when the API server of the test has forgotten what it was told.
func (s *soaked) usage() soaktest.Use {
	s.w.ExpireWatches()
	s.seen("the watches go on", func() bool { return s.Nodes.Synced() == nil })
	return soaktest.Measure(s.t)
}

// event has something happen in every tenth round, most of it to one GPU.
func (s *soaked) event() {
	if s.random.IntN(10) > 0 {
		return
	}
	s.events++
	id := "GPU-0"
	s.source.change(func(r *hardware.Reading) {
		if n := len(r.Machine.GPUs); n > 0 {
			id = hardware.ID(r.Machine.GPUs[s.random.IntN(n)])
		}
	})
	switch s.random.IntN(10) {
	case 0, 1, 2:
		codes := []uint64{13, 31, 48, 63, 64, 74, 79, 94, 95, 119, uint64(s.random.IntN(200))}
		s.source.report(hardware.Signal{Kind: hardware.XID, Number: codes[s.random.IntN(len(codes))], GPU: id})
	case 3:
		s.source.report(hardware.Signal{Kind: hardware.UncorrectableECC, Number: s.random.Uint64N(100), GPU: id})
	case 4:
		conditions := []hardware.Kind{hardware.RowRemapPending, hardware.ResetRequired, hardware.Lost, hardware.NVLinkDown, hardware.PCIeDegraded, hardware.Overheated}
		signal := hardware.Signal{Kind: conditions[s.random.IntN(len(conditions))], GPU: id, Detail: fmt.Sprintf("%d of them", s.random.IntN(1000))}
		s.source.change(func(r *hardware.Reading) { r.Signals = append(r.Signals, signal) })
	case 5:
		s.source.change(func(r *hardware.Reading) { r.Signals = nil })
	case 6:
		s.source.fail(errGone)
	case 7:
		s.repair()
	case 8: // the driver leaves a GPU out
		s.source.change(func(r *hardware.Reading) {
			if len(r.Machine.GPUs) > 4 {
				r.Machine = without(r.Machine, s.random.IntN(len(r.Machine.GPUs)))
			}
		})
	case 9:
		switch s.random.IntN(3) {
		case 0: // a person deletes what was published
			s.w.Remove(gpuNodeKind, "", nodeName)
			s.seen("the GPUNode is gone", func() bool { live, err := s.live(); return err == nil && live.UID == "" })
		case 1:
			s.w.putNode([]string{"topology", "core_mem", ""}[s.random.IntN(3)])
		case 2: // a GPU is swapped for another
			s.swaps++
			s.reboot(func(m *gpu.Machine) { m.GPUs[s.random.IntN(8)].UUID = fmt.Sprintf("GPU-swapped-%d", s.swaps) })
		}
	}
}

// reboot starts the machine again, whole; the agent goes on, and sees that the GPUs were reset.
func (s *soaked) reboot(changed func(*gpu.Machine)) {
	m := wired(s.t, "dgx1-v100")
	changed(&m)
	s.source.set(hardware.Reading{Machine: m, DriverVersion: "550.1"})
	for _, device := range m.GPUs {
		s.source.report(hardware.Signal{GPU: hardware.ID(device), Kind: hardware.WasReset})
	}
}

// repair ends all that is wrong, as a person does who swaps nothing: a reboot, and the GPUNode starts again.
func (s *soaked) repair() {
	s.reboot(func(*gpu.Machine) {})
	s.w.Remove(gpuNodeKind, "", nodeName)
	s.seen("the GPUNode is gone", func() bool { live, err := s.live(); return err == nil && live.UID == "" })
	s.round()
}
