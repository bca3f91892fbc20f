package pci_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/pci"
)

// registers are those of a bridge with two extended capabilities, of which the second, Access Control Services, has that control word.
func registers(control uint16) []byte {
	config := make([]byte, 4096)
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|0x220<<20) // Advanced Error Reporting
	binary.LittleEndian.PutUint32(config[0x220:], 0x000d)
	binary.LittleEndian.PutUint16(config[0x226:], control)
	return config
}

func TestRedirecting(t *testing.T) {
	const above = "pci0000:00/0000:00:01.0/0000:01:00.0/"
	loop := registers(0x1d)
	binary.LittleEndian.PutUint32(loop[0x100:], 0x0001|0x100<<20) // which points to itself
	for name, test := range map[string]struct {
		config map[string][]byte // by bridge
		want   []string
	}{
		"nobody may read them":       {map[string][]byte{"0000:02:00.0": registers(0x1d)[:64]}, nil},
		"off":                        {map[string][]byte{"0000:02:00.0": registers(0), "0000:02:01.0": registers(1)}, nil},
		"the GPU's port redirects":   {map[string][]byte{"0000:02:00.0": registers(0x1d), "0000:02:01.0": registers(0)}, []string{"0000:02:00.0"}},
		"both ports, and the root":   {map[string][]byte{"0000:02:00.0": registers(4), "0000:02:01.0": registers(16), "0000:00:01.0": registers(0x1d)}, []string{"0000:02:00.0", "0000:02:01.0"}},
		"a list that does not end":   {map[string][]byte{"0000:02:00.0": loop}, nil},
		"a register that is cut":     {map[string][]byte{"0000:02:00.0": registers(0x1d)[:0x224]}, nil},
		"what is above the switch":   {map[string][]byte{"0000:01:00.0": registers(0x1d)}, nil},
		"a device of another switch": {map[string][]byte{"0000:03:01.0": registers(0x1d)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := tree{t, t.TempDir()}
			s.add(above+"0000:02:00.0/0000:04:00.0", "0", "bus/pci/devices/0000:04:00.0")
			s.add(above+"0000:02:01.0/0000:05:00.0", "0", "class/infiniband/mlx5_0/device")
			s.add("pci0000:80/0000:80:01.0/0000:81:00.0/virtio2", "1", "class/infiniband/erdma_0/device")
			for bridge, config := range test.config {
				folder := filepath.Join(s.root, "bus/pci/devices", bridge)
				require.NoError(t, os.MkdirAll(folder, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(folder, "config"), config, 0o600))
			}
			found, err := pci.Redirecting(s.root, []gpu.GPU{{PCIBusID: "0000:04:00.0"}, {}})
			require.NoError(t, err)
			assert.Equal(t, test.want, found["mlx5_0"])
			assert.Empty(t, found["erdma_0"])
		})
	}
	found, err := pci.Redirecting(t.TempDir(), nil)
	require.NoError(t, err)
	assert.Empty(t, found)
}

// Registers are read as they come.
func FuzzRedirecting(f *testing.F) {
	f.Add(registers(0x1d))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, config []byte) {
		s := tree{t, t.TempDir()}
		s.add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:04:00.0", "0", "bus/pci/devices/0000:04:00.0")
		s.add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:05:00.0", "0", "class/infiniband/mlx5_0/device")
		folder := filepath.Join(s.root, "bus/pci/devices/0000:02:00.0")
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config"), config, 0o600))
		_, err := pci.Redirecting(s.root, []gpu.GPU{{PCIBusID: "0000:04:00.0"}})
		require.NoError(t, err)
	})
}
