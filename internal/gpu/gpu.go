// Package gpu models the GPUs of one machine: the cards, the links between
// them as `nvidia-smi topo -m` prints them, the bandwidth that a collective
// ring gets inside a set of cards, and the best set of k free cards.
//
// The package is pure: no I/O, no clock, no Kubernetes types.
package gpu

// Class is the kind of path between two cards, from the slowest to the fastest.
// The names are those of `nvidia-smi topo -m`.
type Class uint8

// Path classes. Order matters: a higher class is a shorter path.
const (
	// None: the two cards cannot reach each other peer to peer, or the path is unknown.
	None Class = iota
	// SYS crosses the interconnect between NUMA nodes (QPI, UPI).
	SYS
	// NODE crosses the interconnect between PCIe host bridges within one NUMA node.
	NODE
	// PHB crosses one PCIe host bridge.
	PHB
	// PXB crosses several PCIe bridges, but no host bridge.
	PXB
	// PIX crosses at most one PCIe bridge.
	PIX
	// NVLink is a bonded set of NVLinks; [Link.Lanes] counts them.
	NVLink
	// Self is the diagonal of the matrix.
	Self
)

// Link is how two cards of one machine are connected.
type Link struct {
	Class Class
	// Lanes is the number of NVLinks between the two cards; 0 unless Class is NVLink.
	Lanes int
}

// Card is one GPU of a machine.
type Card struct {
	// Index is the NVML index.
	Index int `json:"index"`
	// UUID is NVML's UUID, "" when unknown.
	UUID string `json:"uuid,omitempty"`
	// MemoryMiB is the card's total memory in MiB, 0 when unknown.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// NUMANode is the NUMA node of the card, -1 when unknown.
	NUMANode int `json:"numa"`
	// CPUAffinity is the list of close CPUs in the format of cpuset, "" when unknown.
	CPUAffinity string `json:"cpuAffinity,omitempty"`
	// PCIBusID is the PCI address with a four-digit domain, upper case: "0000:06:00.0".
	PCIBusID string `json:"pciBusId,omitempty"`
	// Unhealthy is the reason why the card must not be used, "" for a healthy card.
	Unhealthy string `json:"unhealthy,omitempty"`
}

// NIC is one network device with its path class to each card, by position in [Machine.Cards].
type NIC struct {
	Name  string
	Links []Link
}

// Machine describes the GPUs of one machine. Matrices are indexed by position
// in Cards, which is ordered by Card.Index; a matrix may be asymmetric when the
// driver reported it so.
type Machine struct {
	// Name identifies the wiring, for example "dgx1-v100".
	Name string
	// Model is the product name of the cards, for example "Tesla V100-SXM2".
	Model string
	// NVLinkGBps is the bandwidth of one NVLink in one direction in GB/s, 0 without NVLink.
	NVLinkGBps float64
	// PCIeGeneration is the PCI Express generation of the slots (3, 4, 5).
	PCIeGeneration int
	// NVSwitch tells that NVLinks go to a switch, so that every pair has the full bandwidth at once.
	NVSwitch bool
	Cards    []Card
	// Links is the matrix of `nvidia-smi topo -m`.
	Links [][]Link
	// PCIeLinks is the PCIe path hidden under an NVLink, where known; nil otherwise.
	PCIeLinks [][]Link
	NICs      []NIC
}
