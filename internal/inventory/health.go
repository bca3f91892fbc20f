package inventory

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Health is how the running members of a gang are.
type Health struct {
	// PodGroup is the gang's PodGroup object, nil when it has none.
	PodGroup *unstructured.Unstructured
	// Running are the members that have a reservation, by name of the pod.
	Running []*corev1.Pod
	// Whole means that as many run as the gang needs.
	Whole bool
	// Faults are the GPUs of running members that are not to be used again.
	Faults []Fault
}

// Fault is a GPU of a running member that its node agent reports as unhealthy, or
// no longer reports.
type Fault struct {
	// Member is the name of the member ([MemberNames]).
	Member string
	Node   string
	// GPU is the NVML index.
	GPU int
	// Reason is the node agent's.
	Reason string
}

// Health looks at the running members of a gang by its key ([PlanKey]).
func (c *Cache) Health(key string) Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	health := Health{PodGroup: c.podGroups[key], Whole: c.counts(key).runs()}
	for _, state := range c.gangs[key] {
		if state.charged() {
			health.Running = append(health.Running, state.now())
		}
	}
	slices.SortFunc(health.Running, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	names := MemberNames(health.Running)
	for i, p := range health.Running {
		for _, fault := range c.faults(p) {
			fault.Member = names[i]
			health.Faults = append(health.Faults, fault)
		}
	}
	return health
}

// Lose notes that pods are about to be failed, because their node is lost: they are no
// members of their gangs any more, and nobody is planned beside them. They hold what they
// have until the API server shows them failed.
func (c *Cache) Lose(pods []*corev1.Pod) {
	c.lock()
	defer c.unlock()
	for _, p := range pods {
		if state, ok := c.pods[p.UID]; ok {
			state.lost = true
			c.update(state)
		}
	}
}

// faults lists the faulty GPUs of a bound pod.
func (c *Cache) faults(p *corev1.Pod) []Fault {
	node, ok := c.nodes[p.Spec.NodeName]
	if !ok || node.hardware == nil || len(node.hardware.Status.GPUs) == 0 {
		return nil
	}
	record, ok, err := contract.AllocationFrom(p.Annotations)
	if !ok || err != nil {
		return nil
	}
	gpus := slices.Clone(record.GPUs)
	for _, share := range record.Shares {
		gpus = append(gpus, share.GPU)
	}
	var faults []Fault
	for _, gpu := range gpus {
		if reason := faultOf(node.hardware, gpu); reason != "" {
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
	return c.podGroups[key]
}

// MembersOn lists the members of gangs that have a reservation on a node, by namespace and name.
func (c *Cache) MembersOn(node string) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.nodes[node]
	if !ok {
		return nil
	}
	var members []*corev1.Pod
	for _, pod := range state.pods {
		if _, ok := GangKey(pod.now()); ok {
			members = append(members, pod.now())
		}
	}
	slices.SortFunc(members, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return members
}

// Keys lists the nodes on which pods have a reservation, and the keys of all gangs that have
// pods or a PodGroup.
func (c *Cache) Keys() (nodes, gangs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, state := range c.nodes {
		if len(state.pods) > 0 {
			nodes = append(nodes, name)
		}
	}
	gangs = slices.AppendSeq(slices.Collect(maps.Keys(c.gangs)), maps.Keys(c.podGroups))
	slices.Sort(nodes)
	slices.Sort(gangs)
	return nodes, slices.Compact(gangs)
}

// NodeObject returns a Node object, nil when the cluster has none of that name.
func (c *Cache) NodeObject(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state, ok := c.nodes[name]; ok {
		return state.node
	}
	return nil
}

// Holds reports whether a pod still has a reservation.
func (c *Cache) Holds(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.pods[uid]
	return ok && state.charged()
}
