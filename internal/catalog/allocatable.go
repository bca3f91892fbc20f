package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"strings"
)

// Mode is one way in which a node offers its GPUs (node label ack.node.gpu.schedule).
// A node has one mode; the resources of the other modes are 0 on it.
type Mode struct {
	Name string `json:"name"`
	// Title says in a few words what the mode does.
	Title string `json:"title"`
	// Shared means that several pods can have parts of one GPU.
	Shared bool `json:"shared"`
	// Resources maps the extended resources of the mode to what they count: "GPUs",
	// "memory_gib" (whole GiB of GPU memory) or "core_percent" (100 per GPU).
	Resources map[string]string `json:"resources"`
	Source    string            `json:"source"`
	Date      string            `json:"date"`
}

// Modes returns all modes, the exclusive ones first.
func Modes() []Mode { return append([]Mode(nil), load().modes...) }

// LookupMode returns a mode by its name.
func LookupMode(name string) (Mode, bool) {
	for _, m := range load().modes {
		if m.Name == name {
			return m, true
		}
	}
	return Mode{}, false
}

// Offers returns the amounts of the mode's resources on a node with so many GPUs of so much memory.
func (m Mode) Offers(gpus int, memoryMiB int64) map[string]int64 {
	counted := map[string]int64{
		"gpus":         int64(gpus),
		"memory_gib":   int64(gpus) * (memoryMiB / 1024),
		"core_percent": int64(gpus) * 100,
	}
	offers := map[string]int64{}
	for name, what := range m.Resources {
		offers[name] = counted[what]
	}
	return offers
}

// ERDMAResource is the extended resource of eRDMA devices, [ERDMASlots] per device.
// It is a token for sharing the device, no part of its bandwidth (device plugin of
// AliyunContainerService/alibabacloud-erdma-controller).
const (
	ERDMAResource = "aliyun/erdma"
	ERDMASlots    = 200
)

// Quantities are what a node offers to pods.
type Quantities struct {
	MilliCPU              int64
	MemoryBytes           int64
	EphemeralStorageBytes int64
	// Pods is the number of pods that the node takes.
	Pods int64
	// Extended holds the extended resources by name. Those of the other modes are
	// present with 0, as ACK's device plugins leave them on the node.
	Extended map[string]int64
}

// Setup is what the user may say of nodes that changes what they offer. What is 0 is ACK's default.
type Setup struct {
	// Pods is the number of pods that the node takes.
	Pods int64
	// SystemDiskGiB is the size of the system disk in GiB.
	SystemDiskGiB int64
}

// PodsPerNode is the number of pods that a planned node is taken to accept: ACK's
// default with Flannel. Other network settings give other numbers on a live node.
const PodsPerNode = 64

// Sizes in bytes, and the system disk of a planned node: the 120 GiB of ACK's default
// pool, of which the file system shows 123722704 KiB, and as much in proportion of another one.
const (
	kiB = int64(1) << 10
	miB = int64(1) << 20
	giB = int64(1) << 30

	systemDiskGiB   = 120
	systemDiskBytes = 123722704 * kiB
)

// Allocatable returns what a fresh node of the type, set up like that, offers in the mode. It is an
// estimate for nodes that do not exist yet; a live node's own numbers go first.
// eRDMA devices are counted as set up, which takes the add-on ack-erdma-controller.
// The error says that the mode does not exist.
//
// The reservation is that of ACK since Kubernetes 1.28 ("Alibaba Cloud: ACK resource
// reservation policy"):
//   - CPU: 6 % of the first vCPU, 1 % of the second, 0.5 % of the third and fourth and
//     0.25 % of all others.
//   - Memory: 11 MiB for each pod that the node takes and 255 MiB, and no more than a
//     quarter of what the kubelet sees. 300 MiB more are kept for eviction.
//   - 10 % of the system disk are kept for eviction.
//
// What the kubelet does not see of the memory is fitted to nodes that the vendor's pages
// show, and never less than there:
//   - virtual machines: 34 of each 1024 MiB and 180 MiB (gn8is of 128 GiB in "Submit
//     eRDMA-accelerated PyTorch jobs", the node of 8 GiB in the reservation policy);
//   - bare metal: 1/64, which are the kernel's page descriptors, and 1 GiB (ebmgn7 of
//     768 GiB in "Use MIG").
func Allocatable(it InstanceType, mode string, setup Setup) (Quantities, error) {
	m, ok := LookupMode(mode)
	if !ok {
		return Quantities{}, fmt.Errorf("there is no mode %q for GPU nodes", mode)
	}
	pods, disk := cmp.Or(setup.Pods, PodsPerNode), systemDiskBytes*cmp.Or(setup.SystemDiskGiB, systemDiskGiB)/systemDiskGiB
	q := Quantities{
		MilliCPU:              milliCPU(it.VCPU),
		MemoryBytes:           memoryBytes(it, pods),
		EphemeralStorageBytes: disk - disk/10,
		Pods:                  pods,
		Extended:              map[string]int64{},
	}
	for _, other := range load().modes {
		for name := range other.Resources {
			q.Extended[name] = 0
		}
	}
	maps.Copy(q.Extended, m.Offers(it.GPUs, it.GPUMemoryMiB))
	if it.ERDMADevices > 0 {
		q.Extended[ERDMAResource] = int64(it.ERDMADevices) * ERDMASlots
	}
	return q, nil
}

func milliCPU(vcpu int) int64 {
	reserved := 60*within(vcpu, 0, 1) + 10*within(vcpu, 1, 2) + 5*within(vcpu, 2, 4) + 2.5*within(vcpu, 4, vcpu)
	return int64(vcpu)*1000 - int64(math.Ceil(reserved))
}

// within returns how much of total lies between from and to.
func within(total, from, to int) float64 {
	return float64(max(0, min(total, to)-from))
}

func memoryBytes(it InstanceType, pods int64) int64 {
	seen := seenBytes(it)
	pods = min(pods, seen/miB) // with more it is the quarter anyway
	return seen - min((11*pods+255)*miB, seen/4) - 300*miB
}

// seenBytes is the memory that the kubelet of a node of the type sees.
func seenBytes(it InstanceType) int64 {
	total := int64(it.MemoryGiB * float64(giB))
	if strings.HasPrefix(it.Family, "ecs.ebm") {
		return total - total/64 - giB
	}
	return total - total*34/1024 - 180*miB
}
