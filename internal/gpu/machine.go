package gpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// MaxGPUs is the largest number of GPUs of one machine: a [Set] has as many bits.
// An NVLink domain may have more (72 in a rack of GB200), on several machines.
const MaxGPUs = 64

// GPU is one GPU of a machine.
type GPU struct {
	// Index is the NVML index.
	Index int `json:"index"`
	// UUID is NVML's UUID, "" when unknown.
	UUID string `json:"uuid,omitempty"`
	// MemoryMiB is the GPU's total memory in MiB, 0 when unknown.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// NUMANode is the NUMA node of the GPU, -1 when unknown.
	NUMANode int `json:"numa"`
	// CPUAffinity is the list of close CPUs in the format of cpuset, "" when unknown.
	CPUAffinity string `json:"cpuAffinity,omitempty"`
	// PCIBusID is the PCI address with a four-digit domain, upper case: "0000:06:00.0".
	PCIBusID string `json:"pciBusId,omitempty"`
	// Unhealthy is the reason why the GPU must not be used, "" for a healthy GPU.
	Unhealthy string `json:"unhealthy,omitempty"`
}

// NIC is one network device with its path class to each GPU, by position in [Machine.GPUs].
type NIC struct {
	Name  string
	Links []Link
}

// Machine describes the GPUs of one machine. Matrices are indexed by position
// in GPUs, which is ordered by GPU.Index; a matrix may be asymmetric when the
// driver reported it so, and the weaker direction then counts.
type Machine struct {
	// Name identifies the wiring, for example "dgx1-v100".
	Name string
	// Model is the product name of the GPUs, for example "Tesla V100-SXM2".
	Model string
	// NVLinkGBps is the bandwidth of one NVLink in one direction in GB/s, 0 without NVLink.
	NVLinkGBps float64
	// PCIeGeneration is the PCI Express generation of the slots (3, 4, 5); 0 when unknown.
	PCIeGeneration int
	// NVSwitch means that NVLinks go to a switch, so that every pair has the full bandwidth at once.
	NVSwitch bool
	GPUs     []GPU
	// Links is the matrix of `nvidia-smi topo -m`.
	Links [][]Link
	// PCIeLinks is the PCIe path hidden under an NVLink, where known; nil otherwise.
	PCIeLinks [][]Link
	// P2P is what `nvidia-smi topo -p2p` prints.
	P2P  P2P
	NICs []NIC
}

// Healthy returns the positions of the GPUs that may be used.
func (m Machine) Healthy() Set {
	var s Set
	for i, c := range m.GPUs {
		if c.Unhealthy == "" {
			s |= SetOf(i)
		}
	}
	return s
}

// Validate returns every reason why the description cannot be used, joined, or nil:
// more than [MaxGPUs] GPUs, an index that is negative or used twice, a matrix
// that does not have one cell per pair of GPUs, a cell that contradicts itself,
// NVLinks without a bandwidth, a network device without one link per GPU or listed twice.
//
// A lost GPU, a missing link, and directions that differ are no errors.
func (m Machine) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	n := len(m.GPUs)
	if n > MaxGPUs {
		fail("%d GPUs: a machine has at most %d; of a rack whose NVLink domain spans machines, describe each machine", n, MaxGPUs)
	}
	seen := make(map[int]int, n)
	for i, c := range m.GPUs {
		if c.Index < 0 {
			fail("GPU at position %d: index %d is negative", i, c.Index)
		}
		if j, ok := seen[c.Index]; ok {
			fail("GPUs at positions %d and %d both have index %d", j, i, c.Index)
		}
		seen[c.Index] = i
		if c.NUMANode < -1 {
			fail("GPU %d: NUMA node %d: want -1 for unknown, or more", c.Index, c.NUMANode)
		}
		if c.MemoryMiB < 0 {
			fail("GPU %d: memory of %d MiB is negative", c.Index, c.MemoryMiB)
		}
	}
	if m.PCIeGeneration < 0 || m.PCIeGeneration > MaxPCIeGeneration {
		fail("PCIe generation %d: want 1 to %d, or 0 for unknown", m.PCIeGeneration, MaxPCIeGeneration)
	}
	if m.NVLinkGBps < 0 || math.IsNaN(m.NVLinkGBps) || math.IsInf(m.NVLinkGBps, 0) {
		fail("bandwidth of one NVLink of %v GB/s: want a finite number, 0 or more", m.NVLinkGBps)
	}

	errs = append(errs, validateMatrix("links", m.Links, n)...)
	if m.PCIeLinks != nil {
		errs = append(errs, validateMatrix("pcieLinks", m.PCIeLinks, n)...)
	}
	errs = append(errs, m.P2P.validate(n)...)
	for i, nic := range m.NICs {
		if len(nic.Links) != n {
			fail("network device %q has %d links: want one per GPU, %d", nic.Name, len(nic.Links), n)
		}
		if slices.ContainsFunc(m.NICs[:i], func(other NIC) bool { return other.Name == nic.Name }) {
			fail("network device %q is listed twice", nic.Name)
		}
	}
	if m.NVLinkGBps == 0 && hasNVLink(m.Links) {
		fail("GPUs are connected by NVLink, but the bandwidth of one NVLink is missing")
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("machine %q: %w", m.Name, errors.Join(errs...))
}

func validateMatrix(name string, rows [][]Link, n int) []error {
	if len(rows) != n {
		return []error{fmt.Errorf("%s has %d rows: want one per GPU, %d", name, len(rows), n)}
	}
	var errs []error
	for i, row := range rows {
		if len(row) != n {
			errs = append(errs, fmt.Errorf("%s row %d has %d cells: want one per GPU, %d", name, i, len(row), n))
			continue
		}
		for j, l := range row {
			switch {
			case l.Class > Self, l.Class == NVLink && (l.Lanes < 1 || l.Lanes > maxLanes), l.Class != NVLink && l.Lanes != 0:
				errs = append(errs, fmt.Errorf("%s[%d][%d]: class %v with %d lanes is no link", name, i, j, l.Class, l.Lanes))
			case l.Class == Self && i != j:
				errs = append(errs, fmt.Errorf("%s[%d][%d] is X: only the diagonal may be", name, i, j))
			}
		}
	}
	return errs
}

func hasNVLink(rows [][]Link) bool {
	for i, row := range rows {
		for j, l := range row {
			if i != j && l.Class == NVLink {
				return true
			}
		}
	}
	return false
}
