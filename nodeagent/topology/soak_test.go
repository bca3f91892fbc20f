package topology

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

var (
	soakDays = flag.Int("soak.days", 2, "days of events; what is in use after the first is in use after the last")
	soakSeed = flag.Uint64("soak.seed", 1, "seed of the events")
)

// A day of everything that GPUs, drivers and people do costs neither memory nor goroutines nor descriptors.
func TestSoak(t *testing.T) {
	w := newWorld(t)
	s := &soak{agent: w.start(t, wired(t, "dgx1-v100")), random: rand.New(rand.NewPCG(*soakSeed, 0))}
	s.publisher.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	s.observer.log = s.publisher.log
	s.round()
	var first usage
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
	assert.Less(t, last.heap, first.heap+256<<10, "the heap grows")
	assert.LessOrEqual(t, last.goroutines, first.goroutines+1)
	assert.LessOrEqual(t, last.descriptors, first.descriptors+1)
	require.NotZero(t, s.events)
	for _, info := range w.gpuNode(t).Status.GPUs {
		assert.Equal(t, contract.Healthy, info.Health, "%+v", info)
	}
}

// soak is an agent to which things happen.
type soak struct {
	*agent
	random *rand.Rand
	swaps  int
	events int
}

// usage is what the process has in use.
type usage struct {
	heap                    uint64
	goroutines, descriptors int
}

func (u usage) String() string {
	return fmt.Sprintf("%d KiB of heap, %d goroutines, %d descriptors", u.heap>>10, u.goroutines, u.descriptors)
}

// usage measures what is left when the API server of the test has forgotten what it was told.
func (s *soak) usage() usage {
	s.w.ExpireWatches()
	s.seen("the watches go on", func() bool { return s.Nodes.Synced() == nil })
	for range 3 {
		runtime.GC()
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(s.t, err)
	return usage{heap: memory.HeapAlloc, goroutines: runtime.NumGoroutine(), descriptors: len(open)}
}

// event has something happen in every tenth round, most of it to one GPU.
func (s *soak) event() {
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
func (s *soak) reboot(changed func(*gpu.Machine)) {
	m := wired(s.t, "dgx1-v100")
	changed(&m)
	s.source.set(hardware.Reading{Machine: m, DriverVersion: "550.1"})
	for _, device := range m.GPUs {
		s.source.report(hardware.Signal{GPU: hardware.ID(device), Kind: hardware.WasReset})
	}
}

// repair ends all that is wrong, as a person does who swaps nothing: a reboot, and the GPUNode starts again.
func (s *soak) repair() {
	s.reboot(func(*gpu.Machine) {})
	s.w.Remove(gpuNodeKind, "", nodeName)
	s.seen("the GPUNode is gone", func() bool { live, err := s.live(); return err == nil && live.UID == "" })
	s.round()
}
