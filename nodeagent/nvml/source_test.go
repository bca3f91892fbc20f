//go:build cgo && linux

package nvml

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// has tells whether a control file is there.
func (f *fake) has(name string) bool {
	_, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil
}

// start returns a source that follows events until stop has returned: another one would take them from the next.
func (f *fake) start() (s *source, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s = newSource(slog.New(slog.DiscardHandler), newLibrary(nvml.WithLibraryPath(f.path)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.followEvents(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	f.t.Cleanup(stop)
	return s, stop
}

// read reads a machine in which nothing is wrong with the machine around the GPUs.
func read(t *testing.T, s *source) hardware.Reading {
	t.Helper()
	reading, err := s.Read(context.Background())
	require.NoError(t, err)
	require.NoError(t, reading.Machine.Validate())
	return reading
}

func id(entry int) string { return fmt.Sprintf("GPU-0000000%d", entry) }

func TestReadThroughTheLibrary(t *testing.T) {
	f := build(t, folder)
	f.set("unloaded", "")
	s, stop := f.start()
	s.sysfs = t.TempDir()
	want := described(t, "dgx1-v100")

	t.Run("the driver is not loaded", func(t *testing.T) {
		_, err := s.Read(context.Background())
		assert.ErrorContains(t, err, "is the NVIDIA driver loaded?")
		f.unset("unloaded")
		assert.Len(t, read(t, s).Signals, 8, "a driver that is loaded has reset its GPUs")
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
		assert.Equal(t, gpu.GPU{
			Index: 4, UUID: "GPU-00000004", MemoryMiB: 32768, NUMANode: 1,
			CPUAffinity: "20-39", PCIBusID: "0000:85:00.0",
		}, m.GPUs[4])
	})
	t.Run("a network device", func(t *testing.T) {
		s.sysfs = t.TempDir()
		entry, nic := filepath.Join(s.sysfs, "devices/pci0000:00/0000:06:00.0"), filepath.Join(s.sysfs, "devices/pci0000:00/0000:05:00.0")
		require.NoError(t, os.MkdirAll(entry, 0o755))
		require.NoError(t, os.MkdirAll(nic, 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(s.sysfs, "bus/pci/devices"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(s.sysfs, "class/infiniband/mlx5_0"), 0o755))
		require.NoError(t, os.Symlink(entry, filepath.Join(s.sysfs, "bus/pci/devices/0000:06:00.0")))
		require.NoError(t, os.Symlink(nic, filepath.Join(s.sysfs, "class/infiniband/mlx5_0/device")))
		nics := read(t, s).Machine.NICs
		require.Len(t, nics, 1)
		assert.Equal(t, "PHB", nics[0].Links[0].String())
		assert.Equal(t, "N-A", nics[0].Links[1].String())
	})
	t.Run("what is beside the planner's model", func(t *testing.T) {
		f.set("fabric", "2 3")
		assert.Empty(t, read(t, s).GPUs[2].Clique, "the NVLink domain is the machine")
		for file, text := range map[string]string{"mig": "2", "profiles": "2 1", "migsoon": "3", "fabric": "2 3", "clique": "7"} {
			f.set(file, text)
			defer f.unset(file)
		}
		s.sysfs = t.TempDir()
		for file, text := range map[string]string{"class/dmi/id/product_name": "Alibaba Cloud ECS\n", "bus/pci/devices/0000:0a:00.0/class": "0x030200\n"} {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(s.sysfs, file)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(s.sysfs, file), []byte(text), 0o600))
		}
		reading := read(t, s)
		best := hardware.PCIe{Generation: 3, Width: 16}
		assert.Equal(t, hardware.GPU{
			NVLinks: 6, UncorrectableErrors: new(int64), PCIe: best, BestPCIe: best, PCIClass: "0x030200", MIG: hardware.MIG{Capable: true, Enabled: true, Pending: true, Profiles: []string{"1g.5gb", "1g.5gb", "3g.20gb"}},
			Fabric: "Completed", Clique: "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.7", ComputeCapability: hardware.ComputeCapability{Major: 7}, NoAction: true,
		}, reading.GPUs[2])
		assert.Equal(t, hardware.MIG{Capable: true, Pending: true}, reading.GPUs[3].MIG)
		assert.Empty(t, reading.GPUs[3].Clique, "the GPU has not joined")
		assert.Equal(t, hardware.CUDAVersion{Major: 12, Minor: 4}, reading.CUDAVersion)
		assert.Equal(t, "Alibaba Cloud ECS", reading.MachineType)
		assert.Empty(t, reading.Signals)
	})
	t.Run("peer-to-peer transfers", func(t *testing.T) {
		all := read(t, s).Machine.P2P
		for _, matrix := range [][][]gpu.P2PStatus{all.Read, all.Write, all.NVLink, all.Atomics} {
			require.Len(t, matrix, 8)
			assert.Equal(t, gpu.P2PSelf, matrix[2][2])
			assert.Equal(t, gpu.P2POK, matrix[2][5])
		}
		for file, text := range map[string]string{"p2p": "2 4", "atomics": "3 5", "lost": "7"} {
			f.set(file, text)
			defer f.unset(file)
		}
		some := read(t, s).Machine.P2P
		for _, matrix := range [][][]gpu.P2PStatus{some.Read, some.Write, some.NVLink} {
			assert.Equal(t, gpu.P2PDisabled, matrix[2][5])
			assert.Equal(t, gpu.P2PDisabled, matrix[5][2])
			assert.Equal(t, gpu.P2POK, matrix[3][5])
			assert.Equal(t, gpu.P2PUnknown, matrix[3][7])
		}
		assert.Equal(t, gpu.P2PNotSupported, some.Atomics[3][5])
	})
	t.Run("one GPU is lost", func(t *testing.T) {
		f.set("lost", "3")
		defer f.unset("lost")
		reading := read(t, s)
		assert.Equal(t, []hardware.Signal{{GPU: "#3", Kind: hardware.Lost, Detail: "the GPU does not answer: GPU is lost"}}, reading.Signals)
		assert.Len(t, reading.Machine.GPUs, 8, "the others go on")
		assert.Equal(t, gpu.None, reading.Machine.Links[0][3].Class)
		assert.Equal(t, want.Links[0][4], reading.Machine.Links[0][4])
	})
	t.Run("one GPU is not listed", func(t *testing.T) {
		f.set("gone", "3")
		defer f.unset("gone")
		m := read(t, s).Machine
		require.Len(t, m.GPUs, 7)
		assert.Equal(t, "GPU-00000004", m.GPUs[3].UUID, "the driver numbers the others again")
	})
	t.Run("identities that are none", func(t *testing.T) {
		f.set("badtext", "2")
		assert.Equal(t, "GPU-\uFFFD2", read(t, s).Machine.GPUs[2].UUID)
		f.unset("badtext")
		f.set("twin", "2 1")
		assert.Equal(t, id(1), read(t, s).Machine.GPUs[2].UUID, "the roster tells them apart")
		f.unset("twin")
	})
	t.Run("NVLinks newer than this program", func(t *testing.T) {
		f.set("version", "99")
		defer f.unset("version")
		assert.Equal(t, 50.0, read(t, s).Machine.NVLinkGBps, "as fast as the newest that it knows, and not 0")
	})
	t.Run("links are down", func(t *testing.T) {
		f.set("down", "0 3")
		defer f.unset("down")
		m := read(t, s).Machine
		assert.Equal(t, "PHB", m.Links[0][3].String())
		assert.Equal(t, "PHB", m.Links[3][0].String())
		assert.Equal(t, "NV2", m.Links[0][4].String())
	})
	t.Run("memory errors are told once, and a reset too", func(t *testing.T) {
		f.set("ecc", "4 2")
		assert.Equal(t, []hardware.Signal{{GPU: id(4), Kind: hardware.UncorrectableECC, Number: 2, Detail: "2 new uncorrectable memory errors"}}, read(t, s).Signals)
		assert.Empty(t, read(t, s).Signals)
		f.set("ecc", "4 5")
		assert.Equal(t, []hardware.Signal{{GPU: id(4), Kind: hardware.UncorrectableECC, Number: 3, Detail: "3 new uncorrectable memory errors"}}, read(t, s).Signals)
		f.set("ecc", "4 1")
		assert.Empty(t, read(t, s).Signals, "people clear this counter (nvidia-smi -p 0)")
		f.unset("ecc")
		f.set("energy", "4 9") // both counters start again after a reset
		assert.Equal(t, []hardware.Signal{{GPU: id(4), Kind: hardware.WasReset}}, read(t, s).Signals)
		assert.Empty(t, read(t, s).Signals)
		f.unset("energy")
	})
	for name, test := range map[string]struct {
		files  map[string]string
		kind   hardware.Kind
		number uint64
		says   string
	}{
		"a row that cannot be replaced":             {map[string]string{"remap": "6"}, hardware.RowRemapFailed, 0, ""},
		"a row that will be replaced":               {map[string]string{"pending": "6"}, hardware.RowRemapPending, 0, ""},
		"pages that will be retired":                {map[string]string{"pages": "6"}, hardware.PagesPending, 0, ""},
		"the driver asks for a reboot":              {map[string]string{"recovery": "6 2"}, hardware.ResetRequired, 2, "the driver asks for a reboot of the node"},
		"the driver asks for a bus reset":           {map[string]string{"recovery": "6 6"}, hardware.ResetRequired, 6, "the driver asks for a reset of the GPU's bus"},
		"the driver asks for no reset":              {map[string]string{"recovery": "6 3"}, hardware.ActionRequired, 3, "the driver asks to end all peer-to-peer work of the GPU"},
		"the driver asks for what nobody knows yet": {map[string]string{"recovery": "6 9"}, hardware.ActionRequired, 9, "the driver asks for recovery action 9"},
		"the fabric is not there":                   {map[string]string{"fabric": "6 2"}, hardware.FabricNotReady, 0, "the GPU has not joined its NVSwitch fabric: InProgress (does the fabric manager run?)"},
		"the fabric is slower":                      {map[string]string{"fabric": "6 3", "mask": "1"}, hardware.FabricDegraded, 0, ""},
		"the fabric has a bad route":                {map[string]string{"fabric": "6 3", "mask": "16"}, hardware.FabricUnhealthy, 0, ""},
		"the fabric is set up wrong":                {map[string]string{"fabric": "6 3", "mask": "1280"}, hardware.FabricUnhealthy, 0, ""},
		"four lanes of sixteen":                     {map[string]string{"pcie": "6 4"}, hardware.PCIeDegraded, 0, "PCI Express is x4 of x16 wide"},
		"an idle GPU saves power":                   {map[string]string{"slow": "6 1"}, "", 0, ""},
		"a slow connection under load":              {map[string]string{"slow": "6 1", "busy": "6 90"}, hardware.PCIeDegraded, 0, "PCI Express runs at generation 1 of 3 under load"},
		"a best generation that cannot be":          {map[string]string{"best": "6 15"}, hardware.PCIeDegraded, 0, "the driver tells a PCI Express connection that cannot be: gen3 x16 of gen15 x16"},
		"a generation that cannot be":               {map[string]string{"slow": "6 15"}, hardware.PCIeDegraded, 0, "the driver tells a PCI Express connection that cannot be: gen15 x16 of gen3 x16"},
		"a width that cannot be":                    {map[string]string{"pcie": "6 63"}, hardware.PCIeDegraded, 0, "the driver tells a PCI Express connection that cannot be: gen3 x63 of gen3 x16"},
		"a GPU that slows down by heat":             {map[string]string{"hot": "6 97"}, hardware.Overheated, 0, "the GPU is at 90 °C or more and slows down"},
		"a GPU that is only warm":                   {map[string]string{"hot": "6 80"}, "", 0, ""},
	} {
		t.Run("a condition: "+name, func(t *testing.T) {
			for file, text := range test.files {
				f.set(file, text)
			}
			var want []hardware.Signal
			if test.kind != "" {
				want = []hardware.Signal{{GPU: id(6), Kind: test.kind, Number: test.number, Detail: test.says}}
			}
			assert.Equal(t, want, read(t, s).Signals)
			assert.Equal(t, want, read(t, s).Signals, "for as long as it holds")
			for file := range test.files {
				f.unset(file)
			}
			after := read(t, s).Signals
			if test.kind == hardware.ResetRequired {
				assert.Equal(t, []hardware.Signal{{GPU: id(6), Kind: hardware.WasReset}}, after, "what the driver asked for has happened")
				after = read(t, s).Signals
			}
			assert.Empty(t, after)
		})
	}
	t.Run("the driver is reloaded", func(t *testing.T) {
		f.set("unloaded", "")
		_, err := s.Read(context.Background())
		assert.Error(t, err)
		f.unset("unloaded")
		reading := read(t, s)
		assert.Len(t, reading.Machine.GPUs, 8)
		require.Len(t, reading.Signals, 8, "which resets all GPUs")
		assert.Equal(t, hardware.Signal{GPU: id(0), Kind: hardware.WasReset}, reading.Signals[0])
		assert.Empty(t, read(t, s).Signals)
	})
	t.Run("the driver hangs", func(t *testing.T) {
		f.set("hang", "")
		read := make(chan error, 1)
		go func() {
			_, err := s.Read(context.Background())
			read <- err
		}()
		s.report(hardware.Signal{GPU: id(1), Kind: hardware.XID, Number: 48})
		assert.Equal(t, []hardware.Signal{{GPU: id(1), Kind: hardware.XID, Number: 48}}, s.Events(), "events get through")
		f.unset("hang")
		assert.NoError(t, <-read)
	})
	t.Run("compute modes", func(t *testing.T) {
		stop() // the bindings keep what they load in one place for all
		modes := &Modes{lib: newLibrary(nvml.WithLibraryPath(f.path))}
		mode, err := modes.ComputeMode(id(2))
		require.NoError(t, err)
		assert.Equal(t, hardware.DefaultMode, mode)
		require.NoError(t, modes.SetComputeMode(id(2), hardware.ExclusiveProcess))
		mode, err = modes.ComputeMode(id(2))
		require.NoError(t, err)
		assert.Equal(t, hardware.ExclusiveProcess, mode)
		f.set("mode", "2 9")
		_, err = modes.ComputeMode(id(2))
		assert.ErrorContains(t, err, "does not know")
		f.unset("mode")
		f.set("locked", "")
		assert.ErrorContains(t, modes.SetComputeMode(id(2), hardware.ExclusiveProcess), "does the node agent run as root?): Insufficient Permissions")
		f.unset("locked")
		assert.ErrorContains(t, modes.SetComputeMode(id(2), "Fast"), "is not a compute mode")
		_, err = modes.ComputeMode("GPU-none")
		assert.ErrorContains(t, err, "read the compute mode of GPU GPU-none")
		f.set("unloaded", "")
		_, err = modes.ComputeMode(id(2))
		assert.Error(t, err)
		f.unset("unloaded")
		_, err = modes.ComputeMode(id(2))
		assert.NoError(t, err, "the driver is loaded again")
		assert.Equal(t, 2, modes.lib.opened)
	})
	t.Run("an event", func(t *testing.T) {
		f.set("gone", "3")
		fresh, end := f.start()
		read(t, fresh)
		f.set("xid", "5 95")
		select {
		case <-fresh.Changed():
		case <-time.After(20 * time.Second):
			require.Fail(t, "the event was not reported")
		}
		assert.Equal(t, []hardware.Signal{{GPU: id(5), Kind: hardware.XID, Number: 95}}, fresh.Events(), "of the GPU, whatever its number")
		assert.Empty(t, fresh.Events(), "events are told once")
		f.unset("gone")
		end()
	})
	t.Run("events of a GPU that did not answer before", func(t *testing.T) {
		f.set("lost", "3")
		fresh, end := f.start()
		defer end()
		read(t, fresh)
		followed := func(gpu int) {
			t.Helper()
			require.Eventually(t, func() bool {
				_, err := fresh.Read(context.Background())
				return err == nil && fresh.follows(id(gpu))
			}, 20*time.Second, 5*time.Millisecond)
			fresh.Events()
			f.set("xid", fmt.Sprintf("%d 48", gpu))
			assert.Eventually(t, func() bool {
				return slices.Contains(fresh.Events(), hardware.Signal{GPU: id(gpu), Kind: hardware.XID, Number: 48})
			}, 5*time.Second, time.Millisecond)
		}
		followed(5)
		assert.Empty(t, read(t, fresh).Blind, "of a GPU that does not answer nothing is expected")
		f.unset("lost")
		assert.Equal(t, "events are not followed of "+id(3), read(t, fresh).Blind)
		followed(3)
		f.set("lost", "3")
		read(t, fresh)
		assert.False(t, fresh.follows(id(3)), "it may be reset")
		f.unset("lost")
		followed(3)
		assert.Empty(t, read(t, fresh).Blind)
	})
	t.Run("a wait for events that fails", func(t *testing.T) {
		fresh, end := f.start()
		defer end()
		require.Eventually(t, func() bool { return fresh.follows(id(5)) }, 20*time.Second, time.Millisecond)
		f.set("broken", "15")
		require.Eventually(t, func() bool { return !f.has("broken") }, 20*time.Second, time.Millisecond)
		f.set("xid", "5 48")
		assert.Eventually(t, func() bool { return len(fresh.Events()) > 0 }, eventRetry/2, time.Millisecond, "it is taken up again at once")
	})
	t.Run("a wait for events that hangs", func(t *testing.T) {
		hung := &source{waiting: time.Now().Add(-time.Minute)}
		assert.Contains(t, hung.blindness(nil), "the driver has not ended a wait for events since")
	})
	t.Run("a driver without events", func(t *testing.T) {
		f.set("deaf", "")
		defer f.unset("deaf")
		fresh, _ := f.start()
		select {
		case <-fresh.Changed():
		case <-time.After(20 * time.Second):
			require.Fail(t, "nobody was told")
		}
		assert.Equal(t, "the driver reports events of no GPU", read(t, fresh).Blind)
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
		assert.Equal(t, -1, reading.Machine.GPUs[0].NUMANode, "unknown, not 0")
		all, err := s.Usage(context.Background())
		require.NoError(t, err)
		assert.Len(t, all, len(reading.Machine.GPUs))
		assert.Zero(t, reading.CUDAVersion)
		assert.Zero(t, reading.Machine.P2P)
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
