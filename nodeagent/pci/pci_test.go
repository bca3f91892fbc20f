package pci_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/pci"
)

// tree builds a sysfs with PCI devices.
type tree struct {
	t    *testing.T
	root string
}

// add makes a device at a path below devices/ and links it from class or bus.
func (s tree) add(path, numa, link string) {
	s.t.Helper()
	device := filepath.Join(s.root, "devices", path)
	require.NoError(s.t, os.MkdirAll(device, 0o755))
	require.NoError(s.t, os.WriteFile(filepath.Join(device, "numa_node"), []byte(numa+"\n"), 0o600))
	at := filepath.Join(s.root, link)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(s.t, os.Symlink(device, at))
}

func TestNICs(t *testing.T) {
	s := tree{t, t.TempDir()}
	const device = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0"
	s.add(device, "0", "bus/pci/devices/0000:03:00.0")
	for name, device := range map[string]struct{ path, numa string }{
		"mlx5_0":  {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", "0"},                           // same switch
		"mlx5_1":  {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", "0"}, // a switch behind it
		"mlx5_2":  {"pci0000:00/0000:00:02.0/0000:08:00.0", "0"},                                                     // another root port
		"mlx5_10": {"pci0000:40/0000:40:01.0/0000:41:00.0", "0"},                                                     // another host bridge
		"erdma_0": {"pci0000:80/0000:80:01.0/0000:81:00.0/virtio2", "1"},                                             // another NUMA node
	} {
		s.add(device.path, device.numa, filepath.Join("class/infiniband", name, "device"))
	}

	nics, err := pci.NICs(s.root, []gpu.GPU{{PCIBusID: "0000:03:00.0"}, {}})

	require.NoError(t, err)
	var got []string
	for _, nic := range nics {
		assert.Equal(t, gpu.None, nic.Links[1].Class, "the second GPU's address is unknown")
		got = append(got, nic.Name+" "+nic.Links[0].String())
	}
	assert.Equal(t, []string{"erdma_0 SYS", "mlx5_0 PIX", "mlx5_1 PXB", "mlx5_2 PHB", "mlx5_10 NODE"}, got)
}

func TestNoNICs(t *testing.T) {
	nics, err := pci.NICs(t.TempDir(), []gpu.GPU{{PCIBusID: "0000:03:00.0"}})
	assert.NoError(t, err)
	assert.Empty(t, nics)
}

func TestGPUs(t *testing.T) {
	s := tree{t, t.TempDir()}
	for address, device := range map[string]struct{ vendor, class, driver string }{
		"0000:03:00.0": {"0x10de", "0x030200", "nvidia"},
		"0000:0b:00.0": {"0x10de", "0x030000", ""},         // the driver could not start it
		"0000:0c:00.0": {"0x10de", "0x030200", "vfio-pci"}, // a virtual machine has it
		"0000:0d:00.0": {"0x10de", "0x068000", "nvidia"},   // an NVSwitch
		"0000:0e:00.0": {"0x1af4", "0x030000", "virtio"},
	} {
		path := "pci0000:00/" + address
		s.add(path, "0", "bus/pci/devices/"+address)
		folder := filepath.Join(s.root, "devices", path)
		require.NoError(t, os.WriteFile(filepath.Join(folder, "vendor"), []byte(device.vendor+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "class"), []byte(device.class+"\n"), 0o600))
		if device.driver != "" {
			require.NoError(t, os.Symlink("../../bus/pci/drivers/"+device.driver, filepath.Join(folder, "driver")))
		}
	}
	gpus, err := pci.GPUs(s.root)
	require.NoError(t, err)
	assert.Equal(t, []string{"0000:03:00.0", "0000:0B:00.0"}, gpus)

	gpus, err = pci.GPUs(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, gpus)
}

// Where devices are is read from the names of folders, and from what their files say.
func FuzzNICs(f *testing.F) {
	const device = "pci0000:00/0000:00:01.0/0000:01:00.0"
	f.Add(device, device, "0", "0x030200", "0000:01:00.0")
	f.Add("pci0000:80/0000:80:01.0/0000:81:00.0/virtio2", "pci", "-99999999999999999999", "\xff", "../../../devices")
	f.Add("pci:::/::/a:b:c", "platform/x", "", "0x", "")
	f.Fuzz(func(t *testing.T, nic, device, numa, class, address string) {
		s := tree{t, t.TempDir()}
		for link, path := range map[string]string{"class/infiniband/mlx5_0/device": nic, filepath.Join("bus/pci/devices", filepath.Base(device)): device} {
			folder := filepath.Join(s.root, "devices", path)
			if !filepath.IsLocal(path) || os.MkdirAll(folder, 0o755) != nil {
				t.Skip("no folder has this name")
			}
			require.NoError(t, os.WriteFile(filepath.Join(folder, "numa_node"), []byte(numa), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "class"), []byte(class), 0o600))
			at := filepath.Join(s.root, link)
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
			require.NoError(t, os.Symlink(folder, at))
		}
		gpus := []gpu.GPU{{PCIBusID: address}, {PCIBusID: filepath.Base(device)}}
		nics, err := pci.NICs(s.root, gpus)
		require.NoError(t, err)
		require.Len(t, nics, 1)
		for _, link := range nics[0].Links {
			assert.NotContains(t, []gpu.Class{gpu.Self, gpu.NVLink}, link.Class)
		}
		machine := gpu.Machine{GPUs: []gpu.GPU{{Index: 0}, {Index: 1}}, Links: [][]gpu.Link{{{Class: gpu.Self}, {}}, {{}, {Class: gpu.Self}}}, NICs: nics}
		assert.NoError(t, machine.Validate())
		_, err = pci.GPUs(s.root)
		assert.NoError(t, err)
		pci.Class(s.root, address)
	})
}
