// Package placement is the model of the planner: nodes, pods, gangs and what they ask for, and
// the placements, verdicts and reservations that planning comes to. What plans is in the
// packages below it; planner.Plan is where to begin.
//
// The planner is pure and deterministic: no I/O, no clock, no Kubernetes or Terraform types;
// the same view and gang give the same result on every machine. The provider's plan-time check
// and the scheduler call the same code on the same view.
package placement

import "github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"

// Mode is how a node offers its GPUs (label ack.node.gpu.schedule) and how a
// role asks for them.
type Mode string

// Modes that the planner places. A node in any other mode offers no GPUs.
const (
	// ModeNone: the node has no GPUs, or the role asks for none.
	ModeNone Mode = ""
	// ModeDefault: whole GPUs, counted; the device plugin on the node picks which (nvidia.com/gpu).
	ModeDefault Mode = "default"
	// ModeTopology: whole GPUs, picked by the planner by the links between them (aliyun.com/gpu).
	ModeTopology Mode = "topology"
	// ModeCoreMem: parts of GPUs by memory and core percentage (aliyun.com/gpu-mem, gpu-core.percentage).
	ModeCoreMem Mode = "core_mem"
	// ModeShare: parts of GPUs by memory, without isolation (aliyun.com/gpu-mem).
	ModeShare Mode = "share"
	// ModeCGPU: parts of GPUs by memory, with isolated memory (aliyun.com/gpu-mem).
	ModeCGPU Mode = "cgpu"
	// ModeMPS: parts of GPUs by memory under MPS (aliyun.com/gpu-mem).
	ModeMPS Mode = "mps"
)

// GPUPolicy is how shared GPUs fill up on a node (label ack.node.gpu.placement).
type GPUPolicy string

// GPU policies.
const (
	Binpack GPUPolicy = "binpack"
	Spread  GPUPolicy = "spread"
)

// Resources are amounts on a node or of a member.
type Resources struct {
	MilliCPU    int64
	MemoryBytes int64
	// Pods counts pods; a member needs 1, which the planner adds itself.
	Pods int64
	// Extended counts other resources by name, such as "aliyun/erdma". GPUs are not among them.
	Extended map[string]int64
}

// Taint keeps members away from a node that do not tolerate it. Effects
// PreferNoSchedule are left out by the adapters.
type Taint struct{ Key, Value, Effect string }

// Toleration matches taints: an empty Key with Exists matches every taint, an
// empty Effect every effect. Operator is "Equal" (default), "Exists".
type Toleration struct{ Key, Operator, Value, Effect string }

// FieldName is the key of a requirement on a node's name. No label has such a key.
const FieldName = "field:metadata.name"

// Requirement is one term of a node selector or affinity: Operator is "In",
// "NotIn", "Exists", "DoesNotExist", "Gt" or "Lt". Key is a label, or [FieldName].
type Requirement struct {
	Key      string
	Operator string
	Values   []string
}

// Node is one node of the view.
type Node struct {
	Name string
	// Pool groups nodes of one node pool, "" when unknown. Equal candidates are taken
	// in the order of Pool, Since, natural order of Name.
	Pool string
	// Since orders nodes of a pool by age: Unix seconds of creation; math.MaxInt64 for a planned node.
	Since         int64
	Labels        map[string]string
	Taints        []Taint
	Unschedulable bool
	Mode          Mode
	GPUPolicy     GPUPolicy
	// GPUs is the node's hardware, nil for a node without GPUs. Nodes with equal hardware share one table.
	GPUs *gpu.Table
	// NVLinkDomain names the NVLink domain that the node shares with others: the rack in
	// which all GPUs are on the same NVLink switches. "" for a node by itself.
	NVLinkDomain string
	// HeadroomMiB is memory of each GPU in MiB that shared requests must leave to
	// the driver. What remains is rounded down to whole GiB.
	HeadroomMiB int64
	Allocatable Resources
	// Delegated are the extended resources that others allocate where the node has none of them itself: it has room
	// for any number of them, as far as the planner knows.
	Delegated Delegated
}

// Request is what one member asks for.
type Request struct {
	Resources
	Mode Mode
	// GPUs is the number of whole GPUs (ModeDefault, ModeTopology), or the number
	// of GPUs that a shared request is spread over (0 means 1).
	GPUs int
	// MemoryGiB is the GPU memory of a shared request in GiB, over all its GPUs.
	MemoryGiB int64
	// CorePercent is the compute share of a shared request, 100 per GPU.
	CorePercent int64
	// HostPorts are ports that only one pod of a node can have, "TCP/23456", or
	// "TCP/23456@127.0.0.1" of one address of the node.
	HostPorts []string
}

// GPUShare is a part of one GPU.
type GPUShare struct {
	GPU         int
	MemoryGiB   int64
	CorePercent int64
}

// Shared reports whether the mode gives parts of GPUs.
func (m Mode) Shared() bool {
	return m == ModeCoreMem || m == ModeShare || m == ModeCGPU || m == ModeMPS
}

// Whole reports whether the mode gives whole GPUs.
func (m Mode) Whole() bool { return m == ModeDefault || m == ModeTopology }
