// Package placement is the planner: a view of the cluster and a gang in, a
// placement of every member or the reasons why there is none out. The provider's
// plan-time check and the scheduler call the same code on the same view.
//
// The package is pure and deterministic: no I/O, no clock, no Kubernetes or
// Terraform types; the same view and gang give the same result on every machine.
package placement

import (
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

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

// Role is a group of members with the same shape.
type Role struct {
	// Name is the role, "master", "worker", "launcher".
	Name string
	// Members are the names of the members in order, unique within the gang.
	Members []string
	Request Request
	// Late marks members that are created after the others run (an MPI launcher):
	// they are no part of the gang's minimum and are not planned.
	Late         bool
	NodeSelector map[string]string
	// Affinity are alternatives: a node must meet all requirements of one of them. nil allows all.
	Affinity [][]Requirement
	// Volumes is what a node must meet to reach the volumes that members have, as Affinity.
	Volumes     [][]Requirement
	Tolerations []Toleration
	// Pools restricts the nodes to these pools; nil allows all.
	Pools []string
	// MaxPerNode is the most members of this role that one node may run, running ones
	// included; 1 keeps them apart (anti-affinity by host name), 0 sets no limit.
	MaxPerNode int
	// Apart keeps members apart whatever their role: a node runs one member at most of
	// all the roles with one value of it (anti-affinity by host name that selects several
	// roles); "" for none.
	Apart string
	// NodeLimits are the most members of this role that the planner may put on a node, beside
	// those that run there: what filters of others let it take, 0 for a node that is refused.
	NodeLimits map[string]int
	// Labels are what selectors of [Selector] find the members by.
	Labels map[string]string
	// Neighbors and Spreads are rules about the pods beside which the members run.
	Neighbors []Neighbor
	Spreads   []TopologySpread
	// Preferred are wishes for nodes. They go before fewer nodes and faster rings.
	Preferred []Preference
}

// Domain is a network domain that node labels describe: nodes with one value of
// Label are close to each other.
type Domain struct {
	// Label is a node label such as "topology.kubernetes.io/zone"; "kubernetes.io/hostname"
	// makes each node a domain.
	Label string
	// Required means that all members must be in one domain; otherwise it is preferred.
	Required bool
}

// OfPod stands in the ID of a pod on its own between its namespace and its name, which may be
// that of a gang as well.
const OfPod = "/pod/"

// NameOf returns "namespace/name" of a gang, or of a pod on its own, by its ID.
func NameOf(id string) string { return strings.Replace(id, OfPod, "/", 1) }

// Gang is a set of members that run all together or not at all.
type Gang struct {
	// ID is "namespace/name", or that of a pod on its own ([OfPod]).
	ID string
	// Roles are sorted by name, so that every adapter describes a gang alike.
	Roles []Role
	// Minimum is the number of members that must run; 0 means all that are not late.
	Minimum int
	// Subgroups are parts of the gang of which so many members must run.
	Subgroups []Subgroup
	// Leaf is the quota leaf that is charged, "" for none.
	Leaf        string
	Priority    int32
	Preemptible bool
	// NeverPreempts keeps the gang from Preemption.
	NeverPreempts bool
	// RequiredDomain is a node label; all members must be on nodes with one value of it. "" for none.
	RequiredDomain string
	// Domains are further levels from the widest to the narrowest (zone, block, rack).
	// Of the preferred ones the narrowest is chosen that holds the whole gang.
	Domains []Domain
	// Spread asks for as many nodes as possible; otherwise the gang takes as few as possible.
	Spread bool
	// Running are members that run already; the planner places the others next to them. What
	// they use is charged by the view's pods, not by this.
	Running []Assignment
	// Limits are the most members of several roles together that nodes take.
	Limits []NodeLimit
	// Planned is where an earlier plan put members. They get these places as long as every
	// member that the gang needs can have its own; else they are planned as if there was none.
	Planned []Planned
	// ExcludeNodes are nodes that no member must use; [Role.NodeLimits] are about one role.
	ExcludeNodes map[string]bool
	// more is how many members beyond its minimum a running gang claims places for.
	more int
}

// NodeLimit is the most members of some roles together that the planner may put on a node,
// beside those that run there.
type NodeLimit struct {
	Node  string
	Roles []string
	Most  int
}

// Assignment is where one member runs.
type Assignment struct {
	Member string
	Node   string
	// Own are the member's GPUs; empty in ModeDefault, where the device plugin picks.
	Own gpu.Set
	// Visible are the GPUs of all the gang's members on this node.
	Visible gpu.Set
	// Shares are the parts of GPUs of a shared request.
	Shares []GPUShare
	// Ring is the best ring among the Visible GPUs; in ModeDefault the worst that can
	// happen. For a gang on several nodes of one NVLink domain it is the ring through the
	// GPUs of all of them ([gpu.Table.Fabric]).
	Ring gpu.Ring
}

// Placement is the assignments of a whole gang, in the order of the gang's members.
type Placement struct {
	Gang        string
	Assignments []Assignment
	// Order are the members in an order in which they can take their places one after the
	// other, by the rules about which pods are near each other; nil when any will do.
	Order []string
}

// Result is what Plan found: exactly one of Placement and Verdict.Reasons is set.
type Result struct {
	Placement *Placement
	Verdict   Verdict
	// Victims are the gangs that must be evicted before Placement can be; only [View.Reclaim] sets them.
	Victims []Victim
	// Reservation is the place to hold until others have gone; nil when Placement can be
	// had now. Only [View.Reclaim] sets it.
	Reservation *Reservation
}
