//go:build cgo && linux

package nvml

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// fake is the library of testdata/fakenvml.c.
type fake struct {
	t    *testing.T
	dir  string
	path string
}

// folder holds the library that this process loads: symbols of the first one that
// a process loads hide those of any other.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "fakenvml"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build compiles the fake library into a folder; options are for the C compiler.
func build(t *testing.T, dir string, options ...string) *fake {
	t.Helper()
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no C compiler to build the fake NVML with: %v", err)
	}
	f := &fake{t: t, dir: dir, path: filepath.Join(dir, "libfakenvml.so")}
	if _, err := os.Stat(f.path); err == nil {
		return f // an earlier run in this process has built and loaded it
	}
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Werror", fmt.Sprintf("-DCONTROL=%q", dir), "-o", f.path, "testdata/fakenvml.c"}, options...)
	output, err := exec.Command(compiler, args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
	return f
}

// set writes a control file; unset removes it.
func (f *fake) set(name, text string) {
	f.t.Helper()
	hidden := filepath.Join(f.dir, "."+name)
	require.NoError(f.t, os.WriteFile(hidden, []byte(text), 0o600))
	require.NoError(f.t, os.Rename(hidden, filepath.Join(f.dir, name)))
}

func (f *fake) unset(name string) {
	f.t.Helper()
	require.NoError(f.t, os.Remove(filepath.Join(f.dir, name)))
}

func (f *fake) start() (s *source, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(cancel)
	return start(ctx, slog.New(slog.DiscardHandler), newLibrary(nvml.WithLibraryPath(f.path))), cancel
}

func read(t *testing.T, s *source) hardware.Reading {
	t.Helper()
	reading, err := s.Read(context.Background())
	require.NoError(t, err)
	require.NoError(t, reading.Machine.Validate())
	return reading
}

func TestReadThroughTheLibrary(t *testing.T) {
	f := build(t, folder)
	f.set("unloaded", "")
	s, stop := f.start()
	want := described(t, "dgx1-v100")

	t.Run("the driver is not loaded", func(t *testing.T) {
		_, err := s.Read(context.Background())
		assert.ErrorContains(t, err, "is the NVIDIA driver loaded?")
		f.unset("unloaded")
	})
	t.Run("all is well", func(t *testing.T) {
		reading := read(t, s)
		m := reading.Machine
		assert.Equal(t, "550.54.15", reading.DriverVersion)
		assert.Empty(t, reading.Signals)
		assert.Equal(t, want.Links, m.Links)
		assert.Equal(t, want.PCIeLinks, m.PCIeLinks)
		assert.Equal(t, 25.0, m.NVLinkGBps)
		assert.Equal(t, 3, m.PCIeGeneration)
		assert.Equal(t, "Tesla V100-SXM2-32GB", m.Model)
		assert.False(t, m.NVSwitch)
		assert.Equal(t, gpu.Card{
			Index: 4, UUID: "GPU-00000004", MemoryMiB: 32768, NUMANode: 1,
			CPUAffinity: "20-39", PCIBusID: "0000:85:00.0",
		}, m.Cards[4])
	})
	t.Run("a network device", func(t *testing.T) {
		s.sysfs = t.TempDir()
		card, nic := filepath.Join(s.sysfs, "devices/pci0000:00/0000:06:00.0"), filepath.Join(s.sysfs, "devices/pci0000:00/0000:05:00.0")
		require.NoError(t, os.MkdirAll(card, 0o755))
		require.NoError(t, os.MkdirAll(nic, 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(s.sysfs, "bus/pci/devices"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(s.sysfs, "class/infiniband/mlx5_0"), 0o755))
		require.NoError(t, os.Symlink(card, filepath.Join(s.sysfs, "bus/pci/devices/0000:06:00.0")))
		require.NoError(t, os.Symlink(nic, filepath.Join(s.sysfs, "class/infiniband/mlx5_0/device")))
		nics := read(t, s).Machine.NICs
		require.Len(t, nics, 1)
		assert.Equal(t, "PHB", nics[0].Links[0].String())
		assert.Equal(t, "N-A", nics[0].Links[1].String())
	})
	t.Run("one card is lost", func(t *testing.T) {
		f.set("lost", "3")
		defer f.unset("lost")
		m := read(t, s).Machine
		assert.Equal(t, gpu.SetOf(0, 1, 2, 4, 5, 6, 7), m.Healthy(), "the others go on")
		assert.Equal(t, "the card does not answer: GPU is lost", m.Cards[3].Unhealthy)
		assert.Equal(t, "GPU-00000003", m.Cards[3].UUID, "as it was known before")
		assert.Equal(t, gpu.None, m.Links[0][3].Class)
		assert.Equal(t, want.Links[0][4], m.Links[0][4])
	})
	t.Run("links are down", func(t *testing.T) {
		f.set("down", "0 3")
		defer f.unset("down")
		m := read(t, s).Machine
		assert.Equal(t, "PHB", m.Links[0][3].String())
		assert.Equal(t, "PHB", m.Links[3][0].String())
		assert.Equal(t, "NV2", m.Links[0][4].String())
	})
	t.Run("memory errors are told once", func(t *testing.T) {
		f.set("ecc", "4 2")
		assert.Equal(t, []hardware.Signal{{Card: 4, Kind: hardware.UncorrectableECC, Number: 2}}, read(t, s).Signals)
		assert.Empty(t, read(t, s).Signals)
		f.set("ecc", "4 5")
		assert.Equal(t, []hardware.Signal{{Card: 4, Kind: hardware.UncorrectableECC, Number: 3}}, read(t, s).Signals)
		f.unset("ecc") // the counters start again after a reset
		assert.Empty(t, read(t, s).Signals)
	})
	t.Run("conditions are told while they hold", func(t *testing.T) {
		f.set("remap", "6")
		f.set("recovery", "7 1")
		both := []hardware.Signal{{Card: 6, Kind: hardware.RowRemapFailed}, {Card: 7, Kind: hardware.ResetRequired}}
		assert.Equal(t, both, read(t, s).Signals)
		assert.Equal(t, both, read(t, s).Signals)
		f.unset("remap")
		f.unset("recovery")
		assert.Empty(t, read(t, s).Signals)
	})
	t.Run("the driver is reloaded", func(t *testing.T) {
		f.set("unloaded", "")
		_, err := s.Read(context.Background())
		assert.Error(t, err)
		f.unset("unloaded")
		assert.Len(t, read(t, s).Machine.Cards, 8)
	})
	t.Run("an event", func(t *testing.T) {
		stop()
		fresh, _ := f.start()
		read(t, fresh)
		f.set("xid", "5 95")
		select {
		case <-fresh.Changed():
		case <-time.After(20 * time.Second):
			require.Fail(t, "the event was not reported")
		}
		assert.Equal(t, []hardware.Signal{{Card: 5, Kind: hardware.XID, Number: 95}}, read(t, fresh).Signals)
		assert.Empty(t, read(t, fresh).Signals, "events are told once")
	})
}

// oldDriverEnv tells the test binary to read through the library at this path.
const oldDriverEnv = "GPUPLAN_TEST_OLD_DRIVER"

// A call of a function that the library lacks would end the process, so this test
// runs in a process of its own.
func TestOldDriver(t *testing.T) {
	if path := os.Getenv(oldDriverEnv); path != "" {
		f := &fake{t: t, dir: filepath.Dir(path), path: path}
		s, _ := f.start()
		reading := read(t, s)
		assert.Equal(t, described(t, "dgx1-v100").Links, reading.Machine.Links)
		assert.Equal(t, -1, reading.Machine.Cards[0].NUMANode, "unknown, not 0")
		return
	}
	f := build(t, t.TempDir(), "-DOLD")
	self, err := os.Executable()
	require.NoError(t, err)
	again := exec.Command(self, "-test.run=^TestOldDriver$", "-test.v")
	again.Env = append(os.Environ(), oldDriverEnv+"="+f.path)
	output, err := again.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "--- PASS: TestOldDriver")
}

func TestNoDriver(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := start(ctx, slog.New(slog.DiscardHandler), newLibrary(nvml.WithLibraryPath(filepath.Join(t.TempDir(), "absent.so"))))
	_, err := s.Read(ctx)
	assert.ErrorContains(t, err, "install the NVIDIA driver")
}
