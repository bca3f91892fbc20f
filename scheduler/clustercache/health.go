package clustercache

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Health is how the running members of a gang are.
type Health struct {
	// PodGroup is the gang's PodGroup object, nil when it has none.
	PodGroup *unstructured.Unstructured
	// Running are the members that hold resources of a node, by name of the pod.
	Running []*corev1.Pod
	// Whole means that as many run as the gang needs.
	Whole bool
	// Faults are the GPUs of running members that are not to be used again.
	Faults []Fault
}

// Fault is a GPU of a running member that its node agent reports as unhealthy, or
// no longer reports.
type Fault struct {
	// Member is the name of the member ([inventory.MemberNames]).
	Member string
	Node   string
	// GPU is the NVML index.
	GPU int
	// Reason is the node agent's.
	Reason string
}

// Health looks at the running members of a gang by its key ([inventory.PlanKey]).
func (c *Cache) Health(key string) Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	health := Health{PodGroup: c.state.PodGroup(key), Whole: c.counts(key).Runs()}
	for pod := range c.state.PodsOf(key) {
		if pod.Charged() {
			health.Running = append(health.Running, pod.Now())
		}
	}
	slices.SortFunc(health.Running, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	names := inventory.MemberNames(health.Running)
	for i, p := range health.Running {
		for _, fault := range c.faults(p) {
			fault.Member = names[i]
			health.Faults = append(health.Faults, fault)
		}
	}
	return health
}

// faults lists the faulty GPUs of a bound pod: of those that are recorded for it, and of those that it was given, which the record
// leaves to the node in mode default.
func (c *Cache) faults(p *corev1.Pod) []Fault {
	_, hardware := c.state.Node(p.Spec.NodeName)
	if hardware == nil || len(hardware.Status.GPUs) == 0 {
		return nil
	}
	var gpus []int
	if record, ok, err := contract.AllocationFrom(p.Annotations); ok && err == nil {
		gpus = inventory.RecordedGPUs(record)
	}
	if given, ok := inventory.GivenTo(p); ok {
		gpus = append(gpus, given.GPUs...)
	}
	slices.Sort(gpus)
	var faults []Fault
	for _, gpu := range slices.Compact(gpus) {
		if reason := faultOf(hardware, gpu); reason != "" {
			faults = append(faults, Fault{Node: p.Spec.NodeName, GPU: gpu, Reason: reason})
		}
	}
	return faults
}

// faultOf says why a GPU of a machine must not be used, "" when it may.
func faultOf(hardware *contract.GPUNode, index int) string {
	i := slices.IndexFunc(hardware.Status.GPUs, func(c contract.GPUInfo) bool { return c.Index == index })
	switch {
	case i < 0:
		return "the node agent does not find it any more"
	case hardware.Status.GPUs[i].Health == contract.Healthy:
		return ""
	case hardware.Status.GPUs[i].Reason == "":
		return "no reason given"
	}
	return hardware.Status.GPUs[i].Reason
}

// PodGroup returns a gang's PodGroup object, nil when it has none.
func (c *Cache) PodGroup(key string) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.PodGroup(key)
}

// MembersOn lists the members of gangs that hold resources of a node, by namespace and name.
func (c *Cache) MembersOn(node string) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var members []*corev1.Pod
	for pod := range c.state.PodsOn(node) {
		if _, ok := inventory.GangKey(pod.Now()); ok {
			members = append(members, pod.Now())
		}
	}
	slices.SortFunc(members, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return members
}

// Keys lists the nodes on which pods hold resources, and the keys of all gangs that have
// pods or a PodGroup.
func (c *Cache) Keys() (nodes, gangs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Keys()
}

// NodeObject returns a Node object, nil when the cluster has none of that name.
func (c *Cache) NodeObject(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, _ := c.state.Node(name)
	return node
}

// Holds reports whether a pod still holds resources.
func (c *Cache) Holds(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.state.Pod(uid)
	return ok && pod.Charged()
}
