package promises

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// The oracle decides by trying every distribution of a gang's members over the nodes.
// It shares nothing with the planner: what is free comes from the pods' requests alone.

// room is what is free on one node.
type room struct {
	cpu, memory, pods int64 // thousandths of a core, bytes, count
	// gpus are whole GPUs that are free and healthy, in the exclusive modes.
	gpus int
	// parts are the GPUs of a node in a shared mode.
	parts []part
	// memoryOnly and withCore tell which kinds of shared pods are there: never both.
	memoryOnly, withCore bool
	ports                map[int32]bool
	// given means that the job's pools have the node, open that pods without tolerations may run there.
	given, open bool
}

// part is what is free of one shared GPU.
type part struct{ memoryGiB, corePercent int64 }

// need is what one member asks for.
type need struct {
	cpu                    int64
	gpus                   int
	memoryGiB, corePercent int64
	port                   int32 // of the host, 0 for none
	foreign                bool  // of a pod that tolerates nothing, and runs in any pool
}

// needs are the requests of the members that must run together.
func (i instance) needs() []need {
	n := need{cpu: int64(i.cpu) * 1000, gpus: i.gpus, memoryGiB: int64(i.memoryGiB), corePercent: int64(i.corePercent)}
	if i.mode == "shared" {
		n.gpus = 0
	}
	count := i.members()
	if i.minimum > 0 {
		count = i.minimum
	}
	all := slices.Repeat([]need{n}, count)
	if i.hostNetwork {
		for k := range all {
			all[k].port = int32(contract.PyTorchPort + k)
		}
	}
	return all
}

// fits tries to place the members of a job on the nodes of its pools, those that the
// configuration adds included, when the pods for which gone is true have left, and beside
// pods that wait.
func (l *live) fits(t *testing.T, i instance, c configuration, gone func(corev1.Pod) bool, waiting ...corev1.Pod) bool {
	t.Helper()
	pods := slices.DeleteFunc(l.running(t), gone)
	if !i.withinQuota(c, slices.Concat(pods, waiting)) {
		return false
	}
	sick := l.sick(t)
	var rooms []room
	own, _ := c.pool(i.pools[0])
	for _, p := range c.pools {
		if p.mode != own.mode {
			continue
		}
		existing := 0
		for _, node := range l.nodes(t) {
			if node.Labels[contract.NodePoolNameLabel] != p.name {
				continue
			}
			existing++
			r := roomOf(node, pods, sick[node.Name])
			r.given, r.open = slices.Contains(i.pools, p.name) && i.accepts(node, p), instance{}.accepts(node, p)
			rooms = append(rooms, r)
		}
		if p.size < existing && slices.Contains(i.pools, p.name) {
			return false // nobody knows which nodes stay
		}
		for range p.size - existing {
			r := plannedRoom(t, p)
			r.given, r.open = slices.Contains(i.pools, p.name) && i.acceptsPlanned(p), instance{}.acceptsPlanned(p)
			rooms = append(rooms, r)
		}
	}
	needs := i.needs()
	if i.cpu == 0 {
		for k := range needs {
			needs[k].cpu = l.requested(t, i.namespace)
		}
	}
	for _, p := range waiting {
		needs = append(needs, needOf(p))
	}
	return place(needs, rooms)
}

// waiting are the pods that wait of the gangs that a diagnostic names.
func (l *live) waiting(t *testing.T, d diagnostic) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(l.pods(t), func(p corev1.Pod) bool { return p.Spec.NodeName != "" || !d.names(p.Namespace+"/"+gangOf(p)) })
}

// needOf is what a pod that waits asks for.
func needOf(p corev1.Pod) need {
	requests := p.Spec.Containers[0].Resources.Requests
	asks := func(name corev1.ResourceName) int64 { q := requests[name]; return q.Value() }
	return need{
		cpu: requests.Cpu().MilliValue(), gpus: int(asks(contract.ResourceTopologyGPU) + asks(contract.ResourceDefaultGPU)),
		memoryGiB: asks(contract.ResourceGPUMemory), corePercent: asks(contract.ResourceCorePercent), foreign: p.Labels[foreignLabel] != "",
	}
}

// withinQuota reports whether the leaf of a job allows its members beside the pods.
func (i instance) withinQuota(c configuration, pods []corev1.Pod) bool {
	at := slices.IndexFunc(c.leaves, func(l leaf) bool { return l.name == i.leaf || i.leaf == "" && l.namespace == i.namespace })
	if at < 0 || i.mode == "shared" {
		return true
	}
	l, name := c.leaves[at], corev1.ResourceName(contract.ResourceTopologyGPU)
	if i.mode == "default" {
		name = contract.ResourceDefaultGPU
	}
	used := l.used(name, pods)
	for _, n := range i.needs() {
		used += n.gpus
	}
	return used <= l.max
}

// used is how much of a resource pods use that are charged to the leaf.
func (l leaf) used(name corev1.ResourceName, pods []corev1.Pod) (used int) {
	for _, p := range pods {
		named := p.Labels[contract.QuotaLabel]
		if named != l.name && (named != "" || l.namespace != p.Namespace) {
			continue
		}
		for _, container := range p.Spec.Containers {
			q := container.Resources.Requests[name]
			used += int(q.Value())
		}
	}
	return used
}

// running are the pods that hold what they ask for.
func (l *live) running(t *testing.T) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(l.pods(t), func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// accepts reports whether a node of a pool may have the job, once the plan has repaired what
// the pool gives to it, and has taken away what the pool gives no more.
func (i instance) accepts(node corev1.Node, p pool) bool {
	node.Labels = maps.Clone(node.Labels)
	if node.Labels[labelKey] == ofPool {
		delete(node.Labels, labelKey)
	}
	maps.Copy(node.Labels, p.labels)
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: i.selector}}).Match(&node)
	if err != nil || !match || node.Spec.Unschedulable || p.tainted && !i.tolerates {
		return false
	}
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && taint.Value != ofPool && (!i.tolerates || taint.Key != taintKey)
	})
}

func (i instance) acceptsPlanned(p pool) bool {
	for key, value := range i.selector {
		if p.labels[key] != value {
			return false
		}
	}
	return !p.tainted || i.tolerates
}

func roomOf(node corev1.Node, pods []corev1.Pod, sick map[int]bool) room {
	offers := func(name string) int64 { q := node.Status.Allocatable[corev1.ResourceName(name)]; return q.Value() }
	r := room{
		cpu: node.Status.Allocatable.Cpu().MilliValue(), memory: node.Status.Allocatable.Memory().Value(), pods: node.Status.Allocatable.Pods().Value(),
		gpus: int(offers(contract.ResourceTopologyGPU)+offers(contract.ResourceDefaultGPU)) - len(sick), ports: map[int32]bool{},
	}
	if count := offers(contract.ResourceGPUCount); count > 0 && offers(contract.ResourceGPUMemory) > 0 {
		for position := range count {
			p := part{memoryGiB: offers(contract.ResourceGPUMemory) / count, corePercent: 100}
			if sick[int(position)] {
				p = part{}
			}
			r.parts = append(r.parts, p)
		}
	}
	for _, p := range pods {
		if p.Spec.NodeName == node.Name {
			r.take(p, sick)
		}
	}
	return r
}

// take charges a pod that runs on the node.
func (r *room) take(p corev1.Pod, sick map[int]bool) {
	r.pods--
	for _, container := range p.Spec.Containers {
		asks := func(name corev1.ResourceName) int64 { q := container.Resources.Requests[name]; return q.Value() }
		r.cpu -= container.Resources.Requests.Cpu().MilliValue()
		r.memory -= container.Resources.Requests.Memory().Value()
		r.gpus -= int(asks(contract.ResourceTopologyGPU) + asks(contract.ResourceDefaultGPU))
		for _, port := range container.Ports {
			r.ports[port.HostPort] = true
		}
	}
	record, _, _ := contract.AllocationFrom(p.Annotations)
	for _, gpu := range record.GPUs {
		if sick[gpu] {
			r.gpus++ // it was counted as lost already
		}
	}
	for _, share := range record.Shares {
		r.parts[share.GPU].memoryGiB -= share.MemoryGiB
		r.parts[share.GPU].corePercent -= share.CorePercent
		r.memoryOnly = r.memoryOnly || share.CorePercent == 0
		r.withCore = r.withCore || share.CorePercent > 0
	}
}

func plannedRoom(t *testing.T, p pool) room {
	t.Helper()
	it, ok := catalog.Lookup(p.instanceType)
	require.True(t, ok)
	q, err := catalog.Allocatable(it, p.mode, catalog.Setup{})
	require.NoError(t, err)
	r := room{cpu: q.MilliCPU, memory: q.MemoryBytes, pods: q.Pods, ports: map[int32]bool{}}
	switch p.mode {
	case "core_mem":
		for range it.GPUs {
			r.parts = append(r.parts, part{q.Extended[contract.ResourceGPUMemory] / int64(it.GPUs), 100})
		}
	default:
		r.gpus = it.GPUs
	}
	return r
}

// place tries every distribution of the members over the rooms.
func place(members []need, rooms []room) bool {
	if len(members) == 0 {
		return true
	}
	for i := range rooms {
		for _, with := range rooms[i].with(members[0]) {
			rest := slices.Clone(rooms)
			rest[i] = with
			if place(members[1:], rest) {
				return true
			}
		}
	}
	return false
}

// with returns what may be left of a room once it has the member: one way for whole
// GPUs, one for each GPU that can be shared.
func (r room) with(n need) []room {
	if n.foreign && !r.open || !n.foreign && !r.given {
		return nil
	}
	if r.cpu < n.cpu || r.pods < 1 || r.gpus < n.gpus || n.port != 0 && r.ports[n.port] {
		return nil
	}
	r.cpu, r.pods, r.gpus = r.cpu-n.cpu, r.pods-1, r.gpus-n.gpus
	if n.memoryGiB == 0 {
		return []room{r}
	}
	if n.corePercent > 0 && r.memoryOnly || n.corePercent == 0 && r.withCore {
		return nil
	}
	r.memoryOnly, r.withCore = n.corePercent == 0, n.corePercent > 0
	var ways []room
	for k, p := range r.parts {
		if p.memoryGiB < n.memoryGiB || p.corePercent < n.corePercent || slices.Contains(r.parts[:k], p) {
			continue // a GPU in the same state was tried already
		}
		way := r
		way.parts = slices.Clone(r.parts)
		way.parts[k] = part{p.memoryGiB - n.memoryGiB, p.corePercent - n.corePercent}
		ways = append(ways, way)
	}
	return ways
}
