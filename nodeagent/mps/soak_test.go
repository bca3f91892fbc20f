package mps

import (
	"flag"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/soaktest"
)

var soakRounds = flag.Int("soak.rounds", 15, "what happens to shared GPUs, twice; what is in use after the first is in use after the last")

// Nothing that happens to GPUs that are shared, and to what shares them, costs memory, goroutines, descriptors or processes that stay.
func TestSoak(t *testing.T) {
	m := newMachine(t)
	patient, hasty := m.times, m.times
	hasty.answer, hasty.start, hasty.edits = 3*time.Second, 3*time.Second, 5*time.Second
	random := rand.New(rand.NewPCG(1, 0))
	e, stop := m.start()
	restart := func(times times) {
		stop()
		m.times = times
		e, stop = m.start()
	}
	gpus := []string{first, second}
	happens := func() {
		gpu := gpus[random.IntN(2)]
		is := m.processes(gpu)
		switch random.IntN(8) {
		case 0, 1, 2:
			_, _, _ = e.Edits(gpu, 1+random.Int64N(4096), random.Int64N(100)) // it may be what the daemon does that is wrong
		case 3:
			_ = e.InUse([]Share{{UUID: gpu, MemoryMiB: 1 + random.Int64N(4096)}})
		case 4:
			kill(is.servers, syscall.SIGKILL)
		case 5:
			kill(is.daemons, syscall.SIGKILL)
		case 6:
			restart(hasty)
		case 7:
			knobs := []string{"garbage", "barren", "refuse", "die"}
			knob := knobs[random.IntN(len(knobs))]
			m.set(knob, "set_")
			_, _, _ = e.Edits(gpu, 1, 0)
			m.unset(knob)
		}
	}
	var before soaktest.Use
	for turn := range 2 {
		restart(hasty)
		for range *soakRounds {
			happens()
		}
		restart(patient) // on a busy machine 3 seconds are none
		for _, gpu := range gpus {
			require.Eventually(t, func() bool { _, _, err := e.Edits(gpu, 1, 0); return err == nil }, time.Minute, 5*time.Millisecond)
		}
		require.NoError(t, e.InUse(nil))
		require.Eventually(t, func() bool {
			left, err := os.ReadDir(m.root)
			return err == nil && len(left) == 0 && len(e.States()) == 0 && m.mode(first) == hardware.DefaultMode && m.mode(second) == hardware.DefaultMode
		}, time.Minute, 5*time.Millisecond)
		if now := soaktest.Measure(t); turn == 0 {
			before = now
		} else {
			now.HasNotGrown(t, before, soaktest.Use{Heap: 128, Goroutines: 1, Descriptors: 1})
		}
	}
}
