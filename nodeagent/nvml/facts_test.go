package nvml

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

func described(t *testing.T, name string) gpu.Machine {
	t.Helper()
	data, err := os.ReadFile("../../internal/gpu/testdata/topologies/" + name + ".json")
	require.NoError(t, err)
	m, err := gpu.ParseMachine(data)
	require.NoError(t, err)
	return m
}

// factsOf says of a machine what NVML would say.
func factsOf(m gpu.Machine, generation int) facts {
	f := facts{p2p: m.P2P}
	for i, c := range m.GPUs {
		c.PCIBusID = fmt.Sprintf("0000:%02X:00.0", i+1)
		entry := gpuFacts{gpu: c, model: m.Model, detail: hardware.GPU{BestPCIe: hardware.PCIe{Generation: m.PCIeGeneration}}}
		classes := make([]gpu.Class, len(m.GPUs))
		for j, link := range m.Links[i] {
			classes[j] = link.Class
			if m.PCIeLinks != nil {
				classes[j] = m.PCIeLinks[i][j].Class
			} else if link.Class == gpu.NVLink {
				classes[j] = gpu.SYS
			}
			if !m.NVSwitch {
				for range link.Lanes {
					entry.nvlinks = append(entry.nvlinks, nvlinkFacts{generation: generation, remote: fmt.Sprintf("0000:%02X:00.0", j+1)})
				}
			}
		}
		for range m.Links[i][(i+1)%len(m.GPUs)].Lanes {
			if m.NVSwitch {
				entry.nvlinks = append(entry.nvlinks, nvlinkFacts{generation: generation, toSwitch: true, remote: "0000:C4:00.0"})
			}
		}
		f.gpus = append(f.gpus, entry)
		f.paths = append(f.paths, classes)
	}
	return f
}

func TestMachineFromFacts(t *testing.T) {
	for name, generation := range map[string]int{
		"dgx1-v100": 2, "dgx2-16xv100": 2, "dgx-a100": 3, "hgx-h100": 4, "gb200-tray-4": 5,
		"a100-pcie-8-bridged": 3, "a100-pcie-4-numa-split-pairs": 3, "pcie-8-2x4-node": 0, "rtx4090-8-all-sys": 0,
	} {
		t.Run(name, func(t *testing.T) {
			want := described(t, name)
			got := factsOf(want, generation).machine()

			require.NoError(t, got.Validate())
			assert.Equal(t, want.Links, got.Links)
			assert.Equal(t, want.NVSwitch, got.NVSwitch)
			assert.Equal(t, want.P2P, got.P2P)
			assert.Equal(t, want.NVLinkGBps, got.NVLinkGBps)
			assert.Equal(t, want.PCIeGeneration, got.PCIeGeneration)
			assert.Equal(t, want.Model, got.Model)
		})
	}
}

func TestLinksThatDropped(t *testing.T) {
	f := factsOf(described(t, "hgx-h100"), 4)
	f.gpus[2].nvlinks = f.gpus[2].nvlinks[:17]
	f.gpus[5].nvlinks = nil

	m := f.machine()

	assert.Equal(t, "NV18", m.Links[0][1].String())
	assert.Equal(t, "NV17", m.Links[0][2].String(), "as many as the GPU with fewer has")
	assert.Equal(t, gpu.SYS, m.Links[0][5].Class, "the PCIe path remains")
}

func TestNVLinkGeneration(t *testing.T) {
	for version, want := range []int{1, 1, 2, 2, 3, 3, 4, 5, 5} {
		assert.Equal(t, want, nvlinkGeneration(uint32(version)), "version %d", version)
	}
}

func TestBusID(t *testing.T) {
	for s, want := range map[string]string{
		"00000000:06:00.0": "0000:06:00.0",
		"0000:0a:00.0":     "0000:0A:00.0",
		"00010000:8A:00.0": "10000:8A:00.0",
	} {
		got, err := busID(s)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, s := range []string{"", "zz:00", "06"} {
		_, err := busID(s)
		assert.Error(t, err, "%q", s)
	}
}

func TestMasks(t *testing.T) {
	assert.Equal(t, "0-19,40-59", cpuList([]uint{0xFFFFF | 0xFFFFF<<40}))
	assert.Equal(t, "0,63-64", cpuList([]uint{1 | 1<<63, 1}))
	assert.Equal(t, "0-127", cpuList([]uint{^uint(0), ^uint(0)}))
	assert.Equal(t, "", cpuList(nil))
	assert.Equal(t, 65, firstNode([]uint{0, 2}))
	assert.Equal(t, -1, firstNode([]uint{0}))
}

// What a driver writes in the place of a PCI address is none: it becomes a part of paths, and is published.
func FuzzBusID(f *testing.F) {
	for _, s := range []string{"00000000:06:00.0", "0000:8a:00.0", "10000:E1:00.0", "0000:../../..", "0000:\xff", "0:06:00.0 ", "FFFFFFFF:FF:1F.7", ":", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		address, err := busID(s)
		if err != nil {
			assert.Empty(t, address)
			return
		}
		assert.Regexp(t, `^[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7]$`, address)
		again, err := busID(address)
		require.NoError(t, err)
		assert.Equal(t, address, again)
	})
}
