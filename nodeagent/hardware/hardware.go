// Package hardware is what the node agent knows about the GPUs of a machine,
// whoever reads them: NVML on a real node, a description file on a simulated one.
package hardware

import (
	"context"
	"fmt"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Source reads the GPUs of one machine. Its methods may be called from different goroutines.
type Source interface {
	// Read returns the GPUs as they are now. A GPU that cannot be read is in the
	// reading with a signal; an error means that the machine as a whole cannot be read.
	Read(ctx context.Context) (Reading, error)
	// Events returns what the GPUs have reported since the last call. It never waits
	// for the hardware, so that a driver that hangs hides nothing.
	Events() []Signal
	// Changed receives a value after something has happened that a new Read, or Events,
	// may show. It never closes.
	Changed() <-chan struct{}
}

// Reading is one look at a machine.
type Reading struct {
	// Machine is the hardware. A GPU's Unhealthy is what a description file says of
	// it; everything else comes as signals, and is for the health package to judge.
	Machine gpu.Machine
	// GPUs tells more of each GPU, by position in Machine.GPUs; nil when simulated.
	GPUs []GPU
	// DriverVersion is the version of the NVIDIA driver, "" when simulated.
	DriverVersion string
	// CUDAVersion is the newest one that the driver serves; zeros are unknown.
	CUDAVersion CUDAVersion
	// MachineType is what the machine's maker calls it, "" when unknown.
	MachineType string
	// PCI are the PCI addresses of the machine's GPUs, whether or not the driver lists
	// them, in the form of [gpu.GPU.PCIBusID].
	PCI []string
	// Ports are the ports of RDMA devices, by the names of these: of several ports one that is active.
	Ports map[string]Port
	// Redirecting are, by RDMA device, the PCI addresses of bridges that send its traffic with GPUs below the same switch over the CPU.
	Redirecting map[string][]string
	// LockableKiB is how much memory a program on the machine may lock, as containers inherit it; 0 for unlimited, or unknown.
	LockableKiB int64
	// Blind says why the GPUs' events are not followed, "" while they are.
	Blind string
	// Signals are the conditions that hold now, and what was counted since the last reading.
	Signals []Signal
}

// GPU is what the planner's model of a GPU leaves out.
type GPU struct {
	// NVLinks is the number of NVLinks that are active.
	NVLinks int
	// PCIe is the GPU's connection as it is, and as it could be at best. The generation
	// as it is, is the best one seen: idle GPUs save power by a slower one.
	PCIe, BestPCIe PCIe
	// UncorrectableErrors are the memory errors that were counted since the GPU's last reset, nil when unknown.
	UncorrectableErrors *int64
	// PCIClass is the class of the PCI device as sysfs has it, such as "0x030200"; "" when unknown.
	PCIClass string
	// MIG is whether the GPU is split into MIG devices.
	MIG MIG
	// Fabric is how far the GPU has joined its NVSwitch fabric, "" without one.
	Fabric string
	// NoAction means that the driver says that it asks for no reset, or other action; false also for one that does not tell.
	NoAction bool
	// Clique is the NVLink domain that the GPU has joined, "cluster UUID.clique ID"; "" for none, and for one that ends
	// with the machine.
	Clique string
	// ComputeCapability is what the GPU can do, as CUDA counts it; zeros are unknown.
	ComputeCapability ComputeCapability
}

// Port is what the driver tells of the port of an RDMA device. What it does not tell is empty, or 0.
type Port struct {
	// State is the port's as InfiniBand names it: DOWN, INIT, ARMED or ACTIVE, which `ibv_devinfo` calls PORT_ACTIVE.
	State string
	// GID is the index of the port's first GID of RoCE v2 ([contract.NoGID] when it has a table of GIDs without one).
	GID string
	// MTUBytes is that of its network interface.
	MTUBytes int
	// Driver is the kernel module of the device, such as erdma.
	Driver string
}

// MIG is the Multi-Instance GPU mode of a GPU.
type MIG struct {
	// Capable means that the GPU has that mode; Enabled, that it is in it, and Pending, that it will be after its next reset.
	Capable, Enabled, Pending bool
	// Profiles are those of the MIG devices into which it is split, such as "1g.10gb", in the driver's order.
	Profiles []string
}

// CUDAVersion is a version of CUDA: 12.4.
type CUDAVersion struct{ Major, Minor int }

// ComputeCapability is a version of CUDA's for GPUs: 9.0 is Hopper.
type ComputeCapability struct{ Major, Minor int }

// ComputeMode says which processes may use a GPU.
type ComputeMode string

// Compute modes. In [ExclusiveProcess] one process has the GPU, which may be a server of MPS.
const (
	DefaultMode      ComputeMode = "Default"
	ExclusiveThread  ComputeMode = "ExclusiveThread"
	Prohibited       ComputeMode = "Prohibited"
	ExclusiveProcess ComputeMode = "ExclusiveProcess"
)

// PCIe is a PCI Express connection; zeros are unknown.
type PCIe struct{ Generation, Width int }

// Signal is one thing that a GPU reported, or that is known of it.
type Signal struct {
	// GPU is the GPU's identity: see [ID].
	GPU  string
	Kind Kind
	// Number is the XID of [XID], the increase of the counter of [UncorrectableECC],
	// the action of [ResetRequired] and [ActionRequired], and 0 for the others.
	Number uint64
	// Detail are the words for this occasion, "" where the kind says it all.
	Detail string
}

// MemoryErrors is the signal of uncorrectable memory errors that have come.
func MemoryErrors(gpu string, count uint64) Signal {
	return Signal{GPU: gpu, Kind: UncorrectableECC, Number: count, Detail: fmt.Sprintf("%d new uncorrectable memory errors", count)}
}

// ID is what tells a GPU from others, from reading to reading: indexes change when a
// GPU disappears. A GPU that does not answer may tell neither its UUID nor its address.
func ID(c gpu.GPU) string {
	switch {
	case c.UUID != "":
		return c.UUID
	case c.PCIBusID != "":
		return c.PCIBusID
	}
	return fmt.Sprintf("#%d", c.Index)
}

// Kind is what a signal is about.
type Kind string

// Event tells whether signals of a kind are events, which are reported once. The others are conditions: each reading
// reports them for as long as they hold.
func (k Kind) Event() bool { return k == XID || k == UncorrectableECC || k == WasReset }

// Kinds of signals.
const (
	// XID is an error event of the driver, numbered as in NVIDIA's "XID Errors".
	XID Kind = "XID"
	// UncorrectableECC is an increase of the count of uncorrectable memory errors.
	UncorrectableECC Kind = "UncorrectableECC"
	// WasReset: the GPU was reset, or its driver loaded again. It speaks for the GPU.
	WasReset Kind = "WasReset"

	// Marked: the description file says that the GPU must not be used.
	Marked Kind = "Marked"
	// Lost: the driver says that the GPU has fallen off the bus.
	Lost Kind = "Lost"
	// NoAnswer: the GPU cannot be read.
	NoAnswer Kind = "NoAnswer"
	// Vanished: the machine has the GPU, or had it, and the driver does not list it.
	Vanished Kind = "Vanished"
	// Duplicate: the GPU calls itself by the UUID or the address of another.
	Duplicate Kind = "Duplicate"
	// ResetRequired: the driver asks for a reset of the GPU or a reboot of the node.
	ResetRequired Kind = "ResetRequired"
	// ActionRequired: the driver asks for something else that makes the GPU work again.
	ActionRequired Kind = "ActionRequired"
	// RowRemapFailed: a faulty memory row could not be replaced by a spare one.
	RowRemapFailed Kind = "RowRemapFailed"
	// RowRemapPending: a faulty memory row will be replaced at the next reset.
	RowRemapPending Kind = "RowRemapPending"
	// PagesPending: faulty memory pages will be retired at the next reset.
	PagesPending Kind = "PagesPending"
	// NVLinkDown: fewer NVLinks are active than the GPU once had.
	NVLinkDown Kind = "NVLinkDown"
	// FabricNotReady: the GPU has not joined its NVSwitch fabric.
	FabricNotReady Kind = "FabricNotReady"
	// FabricUnhealthy: the fabric has no good route to the GPU.
	FabricUnhealthy Kind = "FabricUnhealthy"
	// FabricDegraded: the fabric gives the GPU less than its bandwidth.
	FabricDegraded Kind = "FabricDegraded"
	// PCIeDegraded: the PCI Express connection is narrower, or under load slower, than it could be.
	PCIeDegraded Kind = "PCIeDegraded"
	// Overheated: the GPU is so hot that it slows down.
	Overheated Kind = "Overheated"
)
