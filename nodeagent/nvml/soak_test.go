//go:build cgo && linux

package nvml

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/soaktest"
)

var soakRounds = flag.Int("soak.rounds", 100, "looks at a driver to which things happen, twice; what is in use after the first is in use after the last")

// Nothing that a driver does costs memory, that of C included, or goroutines, or descriptors that stay.
func TestSoak(t *testing.T) {
	f := build(t, folder)
	s, stop := f.start()
	defer stop()
	s.sysfs = t.TempDir()
	random := rand.New(rand.NewPCG(1, 0))
	switches := []string{"lost", "gone", "remap", "pending", "pages", "mig", "migsoon", "badtext"}
	values := []string{"ecc", "energy", "pcie", "slow", "best", "busy", "hot", "memory", "throttle", "pid", "client", "profiles", "mode", "fabric", "p2p", "atomics", "twin", "recovery"}
	quiet := func() soaktest.Use {
		entries, err := os.ReadDir(f.dir)
		require.NoError(t, err)
		for _, entry := range entries {
			if entry.Name() != "libfakenvml.so" && entry.Name() != "xid" && entry.Name() != "broken" { // which are taken
				f.unset(entry.Name())
			}
		}
		require.Eventually(t, func() bool {
			reading, err := s.Read(context.Background())
			return err == nil && len(reading.Signals) == 0 && reading.Blind == "" && !f.has("xid") && !f.has("broken")
		}, time.Minute, 50*time.Millisecond)
		s.Events()
		return soaktest.Measure(t)
	}
	happens := func() {
		gpu := random.IntN(8)
		switch random.IntN(8) {
		case 0, 1:
			f.set(switches[random.IntN(len(switches))], fmt.Sprint(gpu))
		case 2, 3:
			f.set(values[random.IntN(len(values))], fmt.Sprintf("%d %d", gpu, random.IntN(8)))
		case 4, 5:
			if name := append(switches, values...)[random.IntN(len(switches)+len(values))]; f.has(name) {
				f.unset(name)
			}
		case 6:
			f.set("xid", fmt.Sprintf("%d %d", gpu, random.IntN(200)))
		case 7:
			if random.IntN(2) == 0 {
				f.set("broken", "15")
				break
			}
			f.set("unloaded", "")
			_, _ = s.Read(context.Background())
			f.unset("unloaded")
		}
	}
	var first soaktest.Use
	for turn := range 2 {
		for range *soakRounds {
			happens()
			_, _ = s.Read(context.Background()) // the driver may be gone
			_, _ = s.Usage(context.Background())
			s.Events()
		}
		if now := quiet(); turn == 0 {
			first = now
		} else {
			now.HasNotGrown(t, first, soaktest.Use{Heap: 128, Resident: 8192, Goroutines: 1, Descriptors: 1})
		}
	}
}
