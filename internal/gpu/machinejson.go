package gpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

// machineFile is the JSON form of a [Machine]. Fields of a file that it does not
// name, such as notes and sources, are ignored.
type machineFile struct {
	Name             string            `json:"name,omitempty"`
	GPUModel         string            `json:"gpuModel,omitempty"`
	NVLinkGeneration int               `json:"nvlinkGen,omitempty"`
	GBpsPerLinkUni   float64           `json:"gbpsPerLinkUni"`
	PCIeGeneration   int               `json:"pcieGen"`
	NVSwitch         bool              `json:"nvswitch,omitempty"`
	P2P              json.RawMessage   `json:"p2p,omitempty"`
	GPUs             []GPU             `json:"gpus"`
	Links            [][]Link          `json:"links"`
	PCIeLinks        [][]Link          `json:"pcieLinks,omitempty"`
	NICs             map[string][]Link `json:"nics,omitempty"`
}

// UnmarshalJSON implements [json.Unmarshaler]: a missing NUMA node is unknown, not 0.
func (c *GPU) UnmarshalJSON(data []byte) error {
	type plain GPU
	gpu := plain{NUMANode: -1}
	if err := json.Unmarshal(data, &gpu); err != nil {
		return err
	}
	*c = GPU(gpu)
	return nil
}

// ParseMachine reads a machine from JSON:
//
//	{"name": "dgx1-v100", "gpuModel": "Tesla V100-SXM2",
//	 "nvlinkGen": 2, "gbpsPerLinkUni": 25, "pcieGen": 3, "nvswitch": false, "p2p": true,
//	 "gpus":      [{"index": 0, "uuid": "GPU-…", "memoryMiB": 32768, "numa": 0, "cpuAffinity": "0-19", "pciBusId": "0000:06:00.0", "unhealthy": ""}, …],
//	 "links":     [["X", "NV1", …], …],
//	 "pcieLinks": [["X", "PIX", …], …],
//	 "nics":      {"mlx5_0": ["PIX", …], …}}
//
// p2p is false where the driver refuses peer-to-peer transfers, or has what `nvidia-smi topo -p2p` prints:
//
//	"p2p": {"read": [["X", "OK", …], …], "write": …, "nvlink": …, "atomics": …}
//
// Links, pcieLinks, p2p and nics are in the order of gpus. gbpsPerLinkUni is GB/s of
// one NVLink in one direction; without it the figure of nvlinkGen is taken. Only gpus and links
// are required. GPUs that are not in the order of their index are sorted, and
// the matrices with them; network devices come ordered by name, shorter names first.
//
// It fails when the text is no such JSON, or when [Machine.Validate] does.
func ParseMachine(data []byte) (Machine, error) {
	var m Machine
	if err := json.Unmarshal(data, &m); err != nil {
		return Machine{}, fmt.Errorf("parse machine: %w", err)
	}
	if m.GPUs == nil {
		return Machine{}, errors.New("parse machine: gpus is missing")
	}
	if err := m.Validate(); err != nil {
		return Machine{}, fmt.Errorf("parse machine: %w", err)
	}
	m.sortGPUs()
	return m, nil
}

// MarshalJSON writes the form that [ParseMachine] reads.
func (m Machine) MarshalJSON() ([]byte, error) {
	f := machineFile{
		Name:           m.Name,
		GPUModel:       m.Model,
		GBpsPerLinkUni: m.NVLinkGBps,
		PCIeGeneration: m.PCIeGeneration,
		NVSwitch:       m.NVSwitch,
		GPUs:           m.GPUs,
		Links:          m.Links,
		PCIeLinks:      m.PCIeLinks,
	}
	if len(m.P2P.Read)+len(m.P2P.Write)+len(m.P2P.NVLink)+len(m.P2P.Atomics) > 0 {
		var err error
		if f.P2P, err = json.Marshal(m.P2P); err != nil {
			return nil, err
		}
	}
	if len(m.NICs) > 0 {
		f.NICs = make(map[string][]Link, len(m.NICs))
		for _, nic := range m.NICs {
			f.NICs[nic.Name] = nic.Links
		}
	}
	return json.Marshal(f)
}

// UnmarshalJSON implements [json.Unmarshaler] for the form that [ParseMachine]
// reads; unlike that function it neither sorts nor validates.
func (m *Machine) UnmarshalJSON(data []byte) error {
	var f machineFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*m = Machine{
		Name:           f.Name,
		Model:          f.GPUModel,
		NVLinkGBps:     f.GBpsPerLinkUni,
		PCIeGeneration: f.PCIeGeneration,
		NVSwitch:       f.NVSwitch,
		GPUs:           f.GPUs,
		Links:          f.Links,
		PCIeLinks:      f.PCIeLinks,
	}
	var err error
	if m.P2P, err = parseP2P(f.P2P, len(f.GPUs)); err != nil {
		return err
	}
	if m.NVLinkGBps == 0 {
		m.NVLinkGBps = NVLinkGBps(f.NVLinkGeneration)
	}
	for name, links := range f.NICs {
		m.NICs = append(m.NICs, NIC{Name: name, Links: links})
	}
	slices.SortFunc(m.NICs, func(a, b NIC) int { return natural.Compare(a.Name, b.Name) })
	return nil
}

// parseP2P reads whether GPUs reach each other's memory: true and false hold for all of them.
func parseP2P(text json.RawMessage, gpus int) (P2P, error) {
	var all bool
	switch err := json.Unmarshal(text, &all); {
	case len(text) == 0 || err == nil && all || string(text) == "null":
		return P2P{}, nil
	case err == nil:
		return NoP2P(gpus), nil
	}
	var p P2P
	if err := json.Unmarshal(text, &p); err != nil {
		return P2P{}, err
	}
	for _, matrix := range p.matrices() {
		if len(*matrix) == 0 {
			*matrix = nil
		}
	}
	return p, nil
}

// sortGPUs brings the GPUs of a valid machine, with every matrix, into the order of their index.
func (m *Machine) sortGPUs() {
	byIndex := func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) }
	if slices.IsSortedFunc(m.GPUs, byIndex) {
		return
	}
	order := make([]int, len(m.GPUs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return byIndex(m.GPUs[a], m.GPUs[b]) })

	m.GPUs, m.P2P = permute(m.GPUs, order), m.P2P.At(order)
	for _, matrix := range []*[][]Link{&m.Links, &m.PCIeLinks} {
		if *matrix == nil {
			continue
		}
		*matrix = permute(*matrix, order)
		for i, row := range *matrix {
			(*matrix)[i] = permute(row, order)
		}
	}
	for i := range m.NICs {
		m.NICs[i].Links = permute(m.NICs[i].Links, order)
	}
}

func permute[T any](s []T, order []int) []T {
	out := make([]T, len(s))
	for to, from := range order {
		out[to] = s[from]
	}
	return out
}
