package catalog

import "fmt"

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

// PodsPerNode is the number of pods that a planned node is taken to accept: ACK's
// default with Flannel. Other network settings give other numbers on a live node.
const PodsPerNode = 64

// Sizes in bytes, and the system disk of a planned node: the 120 GiB of ACK's default
// pool, of which the file system shows 123722704 KiB.
const (
	kiB = int64(1) << 10
	miB = int64(1) << 20
	giB = int64(1) << 30

	systemDiskBytes = 123722704 * kiB
)

// Allocatable returns what a fresh node of the type offers in the mode. It is an
// estimate for nodes that do not exist yet; a live node's own numbers go first.
// eRDMA devices are counted as set up, which takes the add-on ack-erdma-controller.
// The error says that the mode does not exist.
//
// The reservation follows the sample node in "Alibaba Cloud: ACK resource reservation
// policy" (4 vCPU, 8 GiB), which it reproduces, extended to large machines by the tiers
// that Kubernetes services publish alike (Tencent TKE, Volcengine VKE, older AKS):
//   - CPU: 100m, and 2.5 % of the vCPUs 5–64, 1.25 % of 65–128, 0.5 % above.
//   - The kernel's page descriptors (1/64 of the memory) and 324 MiB are not seen by
//     the kubelet. Of the rest 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the
//     next 8, 6 % up to 128 and 2 % above are reserved, and 300 MiB are kept for eviction.
//   - 10 % of the system disk are kept for eviction.
func Allocatable(it InstanceType, mode string) (Quantities, error) {
	m, ok := LookupMode(mode)
	if !ok {
		return Quantities{}, fmt.Errorf("there is no mode %q for GPU nodes", mode)
	}
	q := Quantities{
		MilliCPU:              milliCPU(it.VCPU),
		MemoryBytes:           memoryBytes(int64(it.MemoryGiB * float64(giB))),
		EphemeralStorageBytes: systemDiskBytes - systemDiskBytes/10,
		Pods:                  PodsPerNode,
		Extended:              map[string]int64{},
	}
	for _, other := range load().modes {
		for name := range other.Resources {
			q.Extended[name] = 0
		}
	}
	counted := map[string]int64{
		"gpus":         int64(it.GPUs),
		"memory_gib":   int64(it.GPUs) * (it.GPUMemoryMiB / 1024),
		"core_percent": int64(it.GPUs) * 100,
	}
	for name, what := range m.Resources {
		q.Extended[name] = counted[what]
	}
	if it.ERDMADevices > 0 {
		q.Extended[ERDMAResource] = int64(it.ERDMADevices) * ERDMASlots
	}
	return q, nil
}

func milliCPU(vcpu int) int64 {
	reserved := 100.0
	reserved += 25 * within(vcpu, 4, 64)
	reserved += 12.5 * within(vcpu, 64, 128)
	reserved += 5 * within(vcpu, 128, vcpu)
	return int64(vcpu)*1000 - int64(reserved+0.5)
}

// within returns how much of total lies between from and to.
func within(total, from, to int) float64 {
	return float64(max(0, min(total, to)-from))
}

func memoryBytes(total int64) int64 {
	seen := total - total/64 - 324*miB
	left, reserved := seen, 300*miB
	for _, tier := range []struct{ size, percent int64 }{
		{4 * giB, 25}, {4 * giB, 20}, {8 * giB, 10}, {112 * giB, 6}, {left, 2},
	} {
		part := min(left, tier.size)
		reserved += part * tier.percent / 100
		left -= part
	}
	return seen - reserved
}
