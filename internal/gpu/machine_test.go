package gpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*Machine)
		want  string
	}{
		"too many GPUs":           {func(m *Machine) { *m = mesh(65, Link{Class: SYS}) }, "65 GPUs: a machine has at most 64"},
		"negative index":          {func(m *Machine) { m.GPUs[1].Index = -1 }, "GPU at position 1: index -1 is negative"},
		"index used twice":        {func(m *Machine) { m.GPUs[2].Index = 1 }, "GPUs at positions 1 and 2 both have index 1"},
		"NUMA node below unknown": {func(m *Machine) { m.GPUs[2].NUMANode = -2 }, "GPU 2: NUMA node -2: want -1 for unknown, or more"},
		"negative memory":         {func(m *Machine) { m.GPUs[2].MemoryMiB = -1 }, "GPU 2: memory of -1 MiB is negative"},
		"PCIe generation":         {func(m *Machine) { m.PCIeGeneration = 8 }, "PCIe generation 8: want 1 to 7, or 0 for unknown"},
		"negative NVLink":         {func(m *Machine) { m.NVLinkGBps = -25 }, "bandwidth of one NVLink of -25 GB/s"},
		"infinite NVLink":         {func(m *Machine) { m.NVLinkGBps = math.Inf(1) }, "bandwidth of one NVLink of +Inf GB/s"},
		"no bandwidth of NVLink":  {func(m *Machine) { m.NVLinkGBps = 0 }, "the bandwidth of one NVLink is missing"},
		"no links":                {func(m *Machine) { m.Links = nil }, "links has 0 rows: want one per GPU, 3"},
		"short row":               {func(m *Machine) { m.Links[1] = m.Links[1][:2] }, "links row 1 has 2 cells: want one per GPU, 3"},
		"X off the diagonal":      {func(m *Machine) { m.Links[0][2] = Link{Class: Self} }, "links[0][2] is X: only the diagonal may be"},
		"NVLink without lanes":    {func(m *Machine) { m.Links[0][2] = Link{Class: NVLink} }, "links[0][2]: class NV with 0 lanes is no link"},
		"PIX with lanes":          {func(m *Machine) { m.Links[0][2] = Link{Class: PIX, Lanes: 2} }, "links[0][2]: class PIX with 2 lanes is no link"},
		"unknown class":           {func(m *Machine) { m.Links[0][2] = Link{Class: 77} }, "links[0][2]: class Class(77) with 0 lanes is no link"},
		"hidden PCIe links":       {func(m *Machine) { m.PCIeLinks = [][]Link{{}} }, "pcieLinks has 1 rows: want one per GPU, 3"},
		"network device":          {func(m *Machine) { m.NICs = []NIC{{Name: "mlx5_0"}} }, `network device "mlx5_0" has 0 links: want one per GPU, 3`},
		"network device twice": {func(m *Machine) {
			nic := NIC{Name: "mlx5_0", Links: make([]Link, 3)}
			m.NICs = []NIC{nic, nic}
		}, `network device "mlx5_0" is listed twice`},
	} {
		t.Run(name, func(t *testing.T) {
			m := mesh(3, Link{Class: NVLink, Lanes: 2})
			assert.NoError(t, m.Validate())
			tt.spoil(&m)
			assert.ErrorContains(t, m.Validate(), tt.want)
			assert.ErrorContains(t, m.Validate(), `machine "mesh"`)
		})
	}
}

func TestValidateReportsEverything(t *testing.T) {
	m := mesh(3, Link{Class: NVLink, Lanes: 2})
	m.NVLinkGBps = 0
	m.GPUs[0].MemoryMiB = -1
	assert.ErrorContains(t, m.Validate(), "memory of -1 MiB")
	assert.ErrorContains(t, m.Validate(), "the bandwidth of one NVLink is missing")
}

func TestHealthy(t *testing.T) {
	m := mesh(4, Link{Class: SYS})
	m.GPUs[2].Unhealthy = "XID 79"
	assert.Equal(t, SetOf(0, 1, 3), m.Healthy())
}
