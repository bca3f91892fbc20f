package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// mib is a mebibyte in bytes.
const mib = int64(1) << 20

// Pool describes the nodes of a pool, whether they exist or not.
type Pool struct {
	Name         string
	InstanceType string
	// Fallbacks are instance types that nodes may have as well; those with other GPUs do not count.
	Fallbacks []string
	Mode      string
	GPUPolicy string
	// Labels and Taints are what the user gave the pool.
	Labels map[string]string
	Taints []Taint
	// Reserved is what kubelets are told to keep from pods.
	Reserved Reserved
	// SystemDiskGiB is the size of the nodes' system disk in GiB, 0 where nothing is said.
	SystemDiskGiB int64
	// AsIs means that another configuration has the pool: no apply of this one gives nodes the labels back that they lack.
	AsIs bool
}

// Reserved is what the kubelet of a node keeps from pods.
type Reserved struct {
	MilliCPU, MemoryBytes, EphemeralStorageBytes int64
	// MaxPods is the most pods of a node, 0 where nothing is said.
	MaxPods int64
}

// Planned returns the capacity of the pool with size nodes: those of existing, as they
// are, and new ones for the rest. The last of more existing nodes go. New ones offer what
// existing ones do, or without those what the catalogue says.
// The error says that the instance type or mode is not in the catalogue.
func (p Pool) Planned(existing Capacity, size int) (Capacity, error) {
	template, err := p.template()
	if err != nil {
		return Capacity{}, err
	}
	fresh, err := p.fresh(template)
	if err != nil {
		return Capacity{}, err
	}
	next := leastOf(existing.Nodes, template, fresh)
	c := p.empty()
	c.LiveLabels = p.beside(existing.LiveLabels)
	c.Nodes = slices.Clone(existing.Nodes[:min(size, len(existing.Nodes))])
	for i := range c.Nodes {
		c.Nodes[i].Labels = p.beside(c.Nodes[i].Labels)
	}
	if placement.Mode(c.Mode) == placement.ModeDefault && existing.Mode != c.Mode {
		c.forgetGPUs()
	}
	for i := len(c.Nodes); i < size; i++ {
		next.Name = placement.PlannedName(p.Name, i)
		c.Nodes = append(c.Nodes, next)
	}
	return c.counted(), nil
}

// leastOf is a node that offers of CPU, memory, disk and pods what all of these do, apart from those that offer
// nothing yet; without any it is a fresh one. Devices come with a node, and are not those of others.
func leastOf(nodes []Node, template placement.Node, fresh Node) (next Node) {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.MilliCPU != nil && *n.MilliCPU == 0 })
	if len(nodes) == 0 {
		return fresh
	}
	least := func(amount func(Node) *int64, fresh int64) *int64 {
		of := func(a, b Node) int { return cmp.Compare(given(amount(a), fresh), given(amount(b), fresh)) }
		return amount(slices.MinFunc(nodes, of))
	}
	next = Node{
		MilliCPU:     least(func(n Node) *int64 { return n.MilliCPU }, template.Allocatable.MilliCPU),
		MemoryMiB:    least(func(n Node) *int64 { return n.MemoryMiB }, template.Allocatable.MemoryBytes/mib),
		Pods:         least(func(n Node) *int64 { return n.Pods }, template.Allocatable.Pods),
		GPUMemoryMiB: least(func(n Node) *int64 { return n.GPUMemoryMiB }, smallest(template.GPUs)),
	}
	var disks []int64
	for _, n := range nodes {
		if value(n.HeadroomMiB) > value(next.HeadroomMiB) {
			next.HeadroomMiB = n.HeadroomMiB
		}
		if has := n.disk(template); has > 0 {
			disks = append(disks, has)
		}
	}
	if len(disks) > 0 {
		next.Extended = withDisk(template, slices.Min(disks))
	}
	return next
}

// Short says in words what a node that exists offers less of than the first nodes of its pool are
// planned with, "" for nothing.
func (p Pool) Short(node *corev1.Node) (string, error) {
	template, err := p.template()
	if err != nil {
		return "", err
	}
	planned, err := p.fresh(template)
	if err != nil {
		return "", err
	}
	live, err := inventory.Node(node, nil)
	if err != nil {
		return "", err
	}
	var parts []string
	say := func(have *int64, fresh int64, format string) {
		if have != nil && *have < fresh {
			parts = append(parts, fmt.Sprintf(format, *have, fresh))
		}
	}
	n := p.node(live, template, nil)
	say(n.MilliCPU, given(planned.MilliCPU, template.Allocatable.MilliCPU), "%dm CPU instead of %dm")
	say(n.MemoryMiB, given(planned.MemoryMiB, template.Allocatable.MemoryBytes/mib), "%d MiB memory instead of %d")
	say(n.Pods, given(planned.Pods, template.Allocatable.Pods), "room for %d pods instead of %d")
	say(n.GPUMemoryMiB, smallest(template.GPUs), "%d MiB memory per GPU instead of %d")
	if disk := n.disk(template) >> 30; disk > 0 {
		say(&disk, planned.disk(template)>>30, "%d GiB disk instead of %d")
	}
	return strings.Join(parts, ", "), nil
}

// fresh says in what a new node of the pool differs from one of which the user has said nothing. How much
// of the reservation is what the catalogue's estimate keeps anyway is not known, so it counts beside that.
func (p Pool) fresh(template placement.Node) (n Node, err error) {
	q, err := p.quantities(catalog.Setup{Pods: p.Reserved.MaxPods, SystemDiskGiB: p.SystemDiskGiB})
	if err != nil {
		return n, err
	}
	left := func(offered, reserved int64) int64 { return max(0, offered-reserved) }
	n.MilliCPU = differing(left(q.MilliCPU, p.Reserved.MilliCPU), template.Allocatable.MilliCPU)
	n.MemoryMiB = differing(left(q.MemoryBytes, p.Reserved.MemoryBytes)/mib, template.Allocatable.MemoryBytes/mib)
	n.Pods = differing(q.Pods, template.Allocatable.Pods)
	n.Extended = withDisk(template, left(q.EphemeralStorageBytes, p.Reserved.EphemeralStorageBytes))
	return n, nil
}

// diskResource is the local disk of a node in bytes.
const diskResource = string(corev1.ResourceEphemeralStorage)

// disk is what the node offers of its local disk in bytes, 0 where its kubelet does not say.
func (n Node) disk(template placement.Node) int64 {
	if n.Extended == nil {
		return template.Allocatable.Extended[diskResource]
	}
	return n.Extended[diskResource]
}

// withDisk are the other resources of a node like the template apart from its local disk, nil where that is the same.
func withDisk(template placement.Node, bytes int64) map[string]int64 {
	if bytes == template.Allocatable.Extended[diskResource] {
		return nil
	}
	extended := maps.Clone(template.Allocatable.Extended)
	extended[diskResource] = bytes
	return extended
}

// Rebased says of the nodes of a capacity in what they differ from a fresh node of p, where it says in
// what they differ from one of another description of the pool. The error says that an instance type
// or mode is not in the catalogue.
func (p Pool) Rebased(from Pool, c Capacity) (Capacity, error) {
	before, err := from.template()
	if err != nil {
		return c, err
	}
	after, err := p.template()
	if err != nil {
		return c, err
	}
	c.Nodes = slices.Clone(c.Nodes)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Name == placement.PlannedName(c.Pool, i) {
			continue // it is fresh, whatever that means
		}
		n.MilliCPU = differing(given(n.MilliCPU, before.Allocatable.MilliCPU), after.Allocatable.MilliCPU)
		n.MemoryMiB = differing(given(n.MemoryMiB, before.Allocatable.MemoryBytes/mib), after.Allocatable.MemoryBytes/mib)
		n.Pods = differing(given(n.Pods, before.Allocatable.Pods), after.Allocatable.Pods)
		if n.Extended == nil {
			n.Extended = before.Allocatable.Extended
		}
		if maps.Equal(n.Extended, after.Allocatable.Extended) {
			n.Extended = nil
		}
		n.Labels = rebasedType(*n, c.LiveLabels, before.Labels, after.Labels)
	}
	c.LiveLabels = maps.Clone(c.LiveLabels)
	delete(c.LiveLabels, contract.InstanceTypeLabel)
	return c, nil
}

// rebasedType are the labels of a node in which the label of the instance type is said where a
// fresh node has it not, or another one.
func rebasedType(n Node, live map[string]*string, before, after map[string]string) map[string]*string {
	const key = contract.InstanceTypeLabel
	have, said := n.Labels[key]
	if !said {
		have, said = live[key]
	}
	if was, ok := before[key]; ok && !said {
		have = &was
	}
	labels := maps.Clone(n.Labels)
	delete(labels, key)
	if fresh, ok := after[key]; ok != (have != nil) || ok && *have != fresh {
		if labels == nil {
			labels = map[string]*string{}
		}
		labels[key] = have
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// Live returns the capacity of nodes that exist, which must be the pool's and in the
// planner's order. pods returns what holds resources of a node.
func (p Pool) Live(nodes []placement.Node, pods func(node string) []placement.Pod) (Capacity, error) {
	template, err := p.template()
	if err != nil {
		return Capacity{}, err
	}
	c := p.empty()
	for _, n := range nodes {
		c.Nodes = append(c.Nodes, p.node(n, template, pods(n.Name)))
	}
	c.LiveLabels = shared(c.Nodes)
	return c.counted(), nil
}

func (p Pool) quantities(setup catalog.Setup) (catalog.Quantities, error) {
	it, ok := catalog.Lookup(p.InstanceType)
	if !ok {
		return catalog.Quantities{}, fmt.Errorf("instance type %q is not in the catalogue", p.InstanceType)
	}
	q, err := catalog.Allocatable(it, p.Mode, setup)
	for _, other := range p.fallbacks() {
		o, more := catalog.Allocatable(other, p.Mode, setup)
		err = errors.Join(err, more)
		q = least(q, o)
	}
	return q, err
}

// fallbacks are the types that a node may have instead.
func (p Pool) fallbacks() (types []catalog.InstanceType) {
	for _, name := range p.Fallbacks {
		if it, ok := catalog.Lookup(name); ok && name != p.InstanceType && catalog.SameGPUs(p.InstanceType, name) {
			types = append(types, it)
		}
	}
	return types
}

// least is what nodes of both types offer.
func least(a, b catalog.Quantities) catalog.Quantities {
	extended := map[string]int64{}
	for name, count := range a.Extended {
		if other, ok := b.Extended[name]; ok {
			extended[name] = min(count, other)
		}
	}
	return catalog.Quantities{
		MilliCPU: min(a.MilliCPU, b.MilliCPU), MemoryBytes: min(a.MemoryBytes, b.MemoryBytes),
		EphemeralStorageBytes: min(a.EphemeralStorageBytes, b.EphemeralStorageBytes), Pods: min(a.Pods, b.Pods), Extended: extended,
	}
}

// NodeLabels returns the labels of every node of the pool: the user's, those that the
// provider and the cloud set, and those of the kubelet that are the same on all of them.
func (p Pool) NodeLabels() map[string]string {
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, p.OwnLabels())
	if len(p.fallbacks()) == 0 {
		labels[contract.InstanceTypeLabel] = p.InstanceType
	}
	labels[corev1.LabelOSStable] = "linux"
	labels[corev1.LabelArchStable] = "amd64"
	if it, ok := catalog.Lookup(p.InstanceType); ok {
		labels[contract.GPUModelLabel] = strings.ReplaceAll(it.GPUModel, " ", "-")
		labels[contract.GPUMemoryLabel] = strconv.FormatInt(it.GPUMemoryMiB, 10) + "MiB"
		labels[contract.GPUCountLabel] = strconv.Itoa(it.GPUs)
	}
	return labels
}

// OwnLabels returns the labels that the provider itself gives to the pool's nodes.
func (p Pool) OwnLabels() map[string]string {
	labels := map[string]string{
		contract.NodePoolNameLabel: p.Name,
		contract.NodeModeLabel:     p.Mode,
	}
	if p.GPUPolicy != "" {
		labels[contract.NodeGPUPolicyLabel] = p.GPUPolicy
	}
	return labels
}

// template is a fresh node of the pool in the planner's terms. It goes through the
// same translation as a node that exists.
func (p Pool) template() (placement.Node, error) {
	q, err := p.quantities(catalog.Setup{})
	if err != nil {
		return placement.Node{}, err
	}
	allocatable := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(q.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(q.MemoryBytes, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(q.Pods, resource.DecimalSI),

		corev1.ResourceEphemeralStorage: *resource.NewQuantity(q.EphemeralStorageBytes, resource.BinarySI),
	}
	for name, count := range q.Extended {
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	labels := p.NodeLabels()
	_, oneType := labels[contract.InstanceTypeLabel]
	labels[contract.InstanceTypeLabel] = p.InstanceType // whose GPUs all have
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Status:     corev1.NodeStatus{Allocatable: allocatable, Capacity: allocatable},
	}
	for _, t := range p.Taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	fresh, err := inventory.Node(node, nil)
	if !oneType {
		delete(fresh.Labels, contract.InstanceTypeLabel)
	}
	return fresh, err
}

func (p Pool) empty() Capacity {
	c := Capacity{
		Pool:         p.Name,
		InstanceType: p.InstanceType,
		Fallbacks:    p.Fallbacks,
		Mode:         p.Mode,
		GPUPolicy:    p.GPUPolicy,
		Labels:       p.NodeLabels(),
		Taints:       p.Taints,
	}
	if it, ok := catalog.Lookup(p.InstanceType); ok {
		c.GPUModel, c.Wiring, c.GPUsPerNode = it.GPUModel, it.Wiring, int64(it.GPUs)
	}
	return c
}

// counted fills in the sums.
func (c Capacity) counted() Capacity {
	c.GPUs, c.FreeGPUs = c.GPUsPerNode*int64(len(c.Nodes)), 0
	for _, n := range c.Nodes {
		c.FreeGPUs += n.freeGPUs(c)
	}
	return c
}

// freeGPUs counts the healthy GPUs that nobody uses.
func (n Node) freeGPUs(c Capacity) int64 {
	out := map[int64]bool{}
	for index := range n.SickGPUs {
		if i, err := strconv.ParseInt(index, 10, 64); err == nil {
			out[i] = true
		}
	}
	unrecorded := int64(0)
	for _, h := range n.Held {
		unrecorded += value(h.UnrecordedGPUs)
		for _, i := range h.gpus() {
			out[i] = true
		}
	}
	switch free := c.GPUsPerNode - int64(len(out)); {
	case unrecorded == 0:
		return free
	case placement.Mode(c.Mode) == placement.ModeDefault:
		return max(0, free-unrecorded)
	}
	return 0 // nobody wrote down which are taken
}

// since orders the nodes of a capacity in the planner: by their place in the list,
// with the planned ones behind all others.
func since(n Node, pool string, place int) int64 {
	if n.Name == placement.PlannedName(pool, place) {
		return math.MaxInt64
	}
	return int64(place)
}
