package promises

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// The oracle decides by trying every distribution of gangs' members over the nodes. It shares
// nothing with the planner: what is free comes from the pods' requests alone. What it says is
// proved: where there are too many distributions to try, it says nothing of them.

// snapshot is the cluster as a plan finds it, and what the plan is to make of it.
type snapshot struct {
	current, next configuration
	// plan is what was planned, as far as the plan has come.
	plan planned
	// reserves means that the scheduler keeps capacity for gangs that have waited for long.
	reserves bool
	// part means that the plan is about a part of the configuration, and rest are jobs that it may leave out.
	part bool
	rest []instance
	// replaced is the ID of the job that -replace replaces, which Terraform says too late to count as one that leaves.
	replaced string
	nodes    []corev1.Node
	pods     []corev1.Pod
	sick     map[string]map[int]bool
	// requested is what admission gives to containers that ask for no CPU, by namespace.
	requested map[string]int64
	// kept are the namespaces in which a disruption budget forbids the eviction of pods of others.
	kept map[string]bool
	// fresh are nodes to come, by their pool.
	fresh map[string]room
}

// look is the snapshot of a plan that leads from one configuration to another.
func (w *world) look(t *testing.T, current, next configuration) *snapshot {
	t.Helper()
	s := &snapshot{
		current: current, next: next, nodes: w.nodes(t), pods: w.pods(t), sick: w.sick(t),
		requested: map[string]int64{}, kept: w.keeping(t), fresh: map[string]room{}, reserves: reserves(),
	}
	for _, namespace := range namespaces() {
		s.requested[namespace] = w.requested(t, namespace)
	}
	for _, p := range next.pools {
		s.fresh[p.name] = plannedRoom(t, p)
	}
	return s
}

// holding are the pods that hold what they ask for, without those for which gone is true.
func (s *snapshot) holding(gone func(corev1.Pod) bool) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(s.pods), func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || gone(p)
	})
}

// left tells which pods are gone once the next configuration is there.
func (s *snapshot) left(p corev1.Pod) bool {
	is, stays := s.next.find(idOf(p))
	return s.deleted(p) || stays && is.suspended
}

// deleted is left without those that are suspended alone, which Terraform does later than what their job depends on.
func (s *snapshot) deleted(p corev1.Pod) bool {
	was, known := s.current.find(idOf(p))
	is, stays := s.next.find(idOf(p))
	return known && (!stays || is.key != was.key || is.image != was.image || is.workers != was.workers)
}

// leftFor is left to a job, for which its own pods have left, too, when it is written again.
func (s *snapshot) leftFor(i instance) func(corev1.Pod) bool {
	return func(p corev1.Pod) bool { return s.left(p) || s.own(i)(p) }
}

// own tells which pods are those of a job, by its new name or the old one.
func (s *snapshot) own(i instance) func(corev1.Pod) bool {
	ids := []string{i.id}
	for _, was := range s.current.instances() {
		if was.address == i.address {
			ids = append(ids, was.id)
		}
	}
	return func(p corev1.Pod) bool { return slices.Contains(ids, idOf(p)) }
}

// room is what is free on one node.
type room struct {
	name string // of the node, or "pool[ordinal]" of one to come
	pool pool
	node *corev1.Node // nil for one to come
	free
}

type free struct {
	cpu, memory, pods int64 // thousandths of a core, bytes, count
	// gpus are whole GPUs that are free and healthy, in the exclusive modes.
	gpus int
	// unknown means that someone has some of the GPUs of a node in mode topology, and nobody knows which: none is given out.
	unknown bool
	// parts are the GPUs of a node in a shared mode.
	parts []part
	// memoryOnly and withCore tell which kinds of shared pods are there: never both.
	memoryOnly, withCore bool
	ports                map[int32]bool
}

// part is what is free of one shared GPU.
type part struct{ memoryGiB, corePercent int64 }

// need is what one member asks for.
type need struct {
	cpu                    int64
	gpus                   int
	memoryGiB, corePercent int64
	port                   int32 // of the host, 0 for none
}

// gang is what starts together.
type gang struct {
	needs []need
	// more are members that need not start, and do where there is room.
	more []need
	on   func(room) bool
	// at is where they are planned, in the order of needs, nil for anywhere.
	at []spot
}

// gang is that of a job: what must run together, or all of it.
func (s *snapshot) gang(i instance, all bool) gang {
	members := i.needs(s.requested[i.namespace])
	required := len(members)
	if i.minimum > 0 && !all {
		required = i.minimum
	}
	return gang{needs: members[:required], more: members[required:], on: i.mayUse}
}

// held is the gang of a job in its planned place; where that is open it may be anywhere.
func (s *snapshot) held(i instance) gang {
	promise, made := s.promise(i)
	if !made {
		return s.gang(i, false)
	}
	members := i.needs(s.requested[i.namespace])
	g := gang{on: i.mayUse}
	for k, name := range i.memberNames() {
		if at, planned := promise[name]; planned {
			g.needs, g.at = append(g.needs, members[k]), append(g.at, at)
		}
	}
	return g
}

// promise is what the plan says of a job that it starts.
func (s *snapshot) promise(i instance) (p promise, made bool) {
	change := s.plan.changes[i.address]
	if !change.starts(i) {
		return nil, false
	}
	p, made, err := promiseOf(change)
	return p, made && err == nil
}

// launcher is what starts once the members of a job run, wherever it finds room.
func (s *snapshot) launcher(i instance) []gang {
	if i.framework != "mpi" && !i.bare {
		return nil
	}
	return []gang{{needs: []need{{cpu: cmp.Or(int64(i.lateCPU)*1000, s.requested[i.namespace])}}, on: i.accepts}}
}

// pending are the gangs that wait of those that a diagnostic names.
func (s *snapshot) pending(d diagnostic) (gangs []gang) {
	byName := map[string][]corev1.Pod{}
	for _, p := range s.pods {
		if name := idOf(p); p.Spec.NodeName == "" && d.names(name) {
			byName[name] = append(byName[name], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var g gang
		for _, p := range byName[name] {
			g.needs = append(g.needs, needOf(p))
		}
		g.on = instance{}.accepts
		if i, ours := s.current.find(name); ours {
			g.on = i.mayUse
		}
		gangs = append(gangs, g)
	}
	return gangs
}

// needOf is what a pod that waits asks for.
func needOf(p corev1.Pod) need {
	requests := p.Spec.Containers[0].Resources.Requests
	asks := func(name corev1.ResourceName) int64 { q := requests[name]; return q.Value() }
	port := int32(0)
	for _, of := range p.Spec.Containers[0].Ports {
		port = of.HostPort
	}
	return need{
		port: port,
		cpu:  requests.Cpu().MilliValue(), gpus: int(asks(contract.ResourceTopologyGPU) + asks(contract.ResourceDefaultGPU)),
		memoryGiB: asks(contract.ResourceGPUMemory), corePercent: asks(contract.ResourceCorePercent),
	}
}

// needs are the requests of a job's members, the first ones of those that must run together, where
// admission gives those that ask for no CPU so much.
func (i instance) needs(requested int64) []need {
	n := need{cpu: cmp.Or(int64(i.cpu)*1000, requested), gpus: i.gpus, memoryGiB: int64(i.memoryGiB), corePercent: int64(i.corePercent)}
	if i.mode == "shared" {
		n.gpus = 0
	}
	all := slices.Repeat([]need{n}, i.members())
	if i.hostNetwork {
		for k := range all {
			all[k].port = int32(cmp.Or(i.port, contract.PyTorchPort) + min(k, 1))
		}
	}
	return all
}

// memberNames are the names of a job's members, in the order of their needs.
func (i instance) memberNames() (names []string) {
	if i.framework == "pytorch" && !i.bare {
		names = append(names, "master-0")
	}
	for k := range i.workers {
		names = append(names, fmt.Sprintf("worker-%d", k))
	}
	return names
}

// mayUse reports whether the job's pools have the node, and the job may run there. Without pools it may use the nodes of its
// mode that are there.
func (i instance) mayUse(r room) bool {
	given := slices.Contains(i.pools, r.pool.name)
	if len(i.pools) == 0 {
		given = r.node != nil && (r.pool.mode == i.mode || r.pool.mode == "core_mem" && i.mode == "shared")
	}
	return given && i.accepts(r)
}

// accepts reports whether a node may have the job, once the plan has repaired what the pool gives
// to it, and has taken away what the pool gives no more.
func (i instance) accepts(r room) bool {
	if r.node == nil {
		for key, value := range i.selector {
			if r.pool.labels[key] != value {
				return false
			}
		}
		return !r.pool.tainted || i.tolerates
	}
	node := *r.node
	node.Labels = maps.Clone(node.Labels)
	if node.Labels[labelKey] == ofPool {
		delete(node.Labels, labelKey)
	}
	maps.Copy(node.Labels, r.pool.labels)
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: i.selector}}).Match(&node)
	if err != nil || !match || node.Spec.Unschedulable || r.pool.tainted && !i.tolerates {
		return false
	}
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && taint.Value != ofPool && (!i.tolerates || taint.Key != taintKey)
	})
}

// charge is what a job takes of the quota tree.
type charge struct {
	leaf     string
	resource corev1.ResourceName
	gpus     int
}

// charge is that of some members of a job.
func (c configuration) charge(i instance, members []need) charge {
	of := charge{leaf: i.leaf, resource: contract.ResourceTopologyGPU}
	for _, l := range c.leaves {
		if i.leaf == "" && l.namespace == i.namespace {
			of.leaf = l.name
		}
	}
	if i.mode == "default" {
		of.resource = contract.ResourceDefaultGPU
	}
	for _, n := range members {
		of.gpus += n.gpus
	}
	return of
}

// within reports whether the quota tree has room for what is charged beside the pods.
func (c configuration) within(pods []corev1.Pod, charges ...charge) bool {
	for _, resource := range []corev1.ResourceName{contract.ResourceTopologyGPU, contract.ResourceDefaultGPU} {
		above, askedAbove := 0, 0
		for _, l := range c.leaves {
			asked, used := 0, l.used(resource, pods)
			for _, of := range charges {
				if of.leaf == l.name && of.resource == resource {
					asked += of.gpus
				}
			}
			if asked > 0 && used+asked > l.max {
				return false
			}
			above, askedAbove = above+used, askedAbove+asked
		}
		if askedAbove > 0 && c.above.name != "" && above+askedAbove > c.above.max {
			return false
		}
	}
	return true
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

// asItIs is the snapshot without what the plan adds to pools that no job before these names, and changes on nodes that exist:
// jobs that name no pools are checked against these.
func (s *snapshot) asItIs(jobs []instance) *snapshot {
	is := *s
	is.next = s.next.clone()
	for k, p := range is.next.pools {
		ordered := func(i instance) bool {
			return slices.ContainsFunc(s.before(i), func(b instance) bool { return slices.Contains(b.pools, p.name) })
		}
		if slices.ContainsFunc(jobs, ordered) {
			continue
		}
		was, _ := s.current.pool(p.name)
		is.next.pools[k].size, is.next.pools[k].tainted, is.next.pools[k].labels = min(was.size, p.size), was.tainted, was.labels
	}
	return &is
}

// grounds are the nodes that the plan leaves, once the pods have left for which gone is true. Of a
// pool that shrinks nobody knows which go, so that there is one of each choice.
func (s *snapshot) grounds(gone func(corev1.Pod) bool) [][]room {
	pods := s.holding(gone)
	grounds := [][]room{nil}
	for _, p := range s.next.pools {
		var there []room
		for k := range s.nodes {
			if s.nodes[k].Labels[contract.NodePoolNameLabel] == p.name {
				there = append(there, roomOf(&s.nodes[k], p, pods, s.sick[s.nodes[k].Name]))
			}
		}
		for k := len(there); k < p.size; k++ {
			fresh := s.fresh[p.name]
			fresh.name = fmt.Sprintf("%s[%d]", p.name, k)
			there = append(there, fresh)
		}
		var longer [][]room
		for _, ground := range grounds {
			for _, some := range choices(there, p.size) {
				longer = append(longer, slices.Concat(ground, some))
			}
		}
		grounds = longer
	}
	return grounds
}

// choices are the ways to keep so many of some rooms.
func choices(all []room, size int) [][]room {
	if len(all) <= size {
		return [][]room{all}
	}
	var ways [][]room
	for k := range all {
		ways = append(ways, choices(slices.Concat(all[:k], all[k+1:]), size)...)
	}
	return ways
}

func roomOf(node *corev1.Node, p pool, pods []corev1.Pod, sick map[int]bool) room {
	offers := func(name string) int64 { q := node.Status.Allocatable[corev1.ResourceName(name)]; return q.Value() }
	r := room{name: node.Name, pool: p, node: node, free: free{
		cpu: node.Status.Allocatable.Cpu().MilliValue(), memory: node.Status.Allocatable.Memory().Value(), pods: node.Status.Allocatable.Pods().Value(),
		gpus: int(offers(contract.ResourceTopologyGPU)+offers(contract.ResourceDefaultGPU)) - len(sick), ports: map[int32]bool{},
	}}
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
	whole := 0
	for _, container := range p.Spec.Containers {
		asks := func(name corev1.ResourceName) int64 { q := container.Resources.Requests[name]; return q.Value() }
		r.cpu -= container.Resources.Requests.Cpu().MilliValue()
		r.memory -= container.Resources.Requests.Memory().Value()
		whole += int(asks(contract.ResourceTopologyGPU) + asks(contract.ResourceDefaultGPU))
		for _, port := range container.Ports {
			r.ports[port.HostPort] = true
		}
	}
	r.gpus -= whole
	record, _, _ := contract.AllocationFrom(p.Annotations)
	r.unknown = r.unknown || r.pool.mode == "topology" && whole > 0 && len(record.GPUs) == 0
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
	r := room{pool: p, free: free{cpu: q.MilliCPU, memory: q.MemoryBytes, pods: q.Pods, ports: map[int32]bool{}}}
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

// with returns what may be left of a room once it has the member: one way for whole
// GPUs, one for each GPU that can be shared, where none is planned.
func (r room) with(n need, planned string) []room {
	if r.cpu < n.cpu || r.pods < 1 || r.gpus < n.gpus || r.unknown && n.gpus > 0 || n.port != 0 && r.ports[n.port] {
		return nil
	}
	r.cpu, r.pods, r.gpus = r.cpu-n.cpu, r.pods-1, r.gpus-n.gpus
	if n.port != 0 {
		r.ports = maps.Clone(r.ports)
		r.ports[n.port] = true
	}
	if n.memoryGiB == 0 {
		return []room{r}
	}
	if n.corePercent > 0 && r.memoryOnly || n.corePercent == 0 && r.withCore {
		return nil
	}
	r.memoryOnly, r.withCore = n.corePercent == 0, n.corePercent > 0
	var ways []room
	for k, p := range r.parts {
		if p.memoryGiB < n.memoryGiB || p.corePercent < n.corePercent || planned != "" && planned != strconv.Itoa(k) ||
			planned == "" && slices.Contains(r.parts[:k], p) {
			continue // a GPU in the same state was tried already
		}
		way := r
		way.parts = slices.Clone(r.parts)
		way.parts[k] = part{p.memoryGiB - n.memoryGiB, p.corePercent - n.corePercent}
		ways = append(ways, way)
	}
	return ways
}

// mostTried is how many distributions a search tries.
const mostTried = 30_000

// search tries the ways in which gangs can be placed in rooms.
type search struct {
	gangs []gang
	// kinds tells the rooms apart by which gangs may use them.
	kinds []string
	left  int
	known map[string]bool
}

func newSearch(rooms []room, gangs []gang) *search {
	s := &search{gangs: gangs, left: mostTried, known: map[string]bool{}}
	for _, r := range rooms {
		var kind strings.Builder
		for _, g := range gangs {
			fmt.Fprintf(&kind, "%t ", g.on(r))
			if slices.ContainsFunc(g.at, func(at spot) bool { return at.node == r.name }) {
				kind.WriteString(r.name)
			}
		}
		s.kinds = append(s.kinds, kind.String())
	}
	return s
}

// state is alike for rooms that offer the gangs the same.
func (s *search) state(rooms []room) string {
	keys := make([]string, len(rooms))
	for k, r := range rooms {
		keys[k] = fmt.Sprint(s.kinds[k], r.free)
	}
	slices.Sort(keys)
	return strings.Join(keys, "\n")
}

// add are the ways in which one more member can be placed, those that come to the same once.
func (s *search) add(states [][]room, g gang, n need, at *spot) (ways [][]room) {
	seen := map[string]bool{}
	for _, rooms := range states {
		tried := map[string]bool{}
		for k, r := range rooms {
			alike := fmt.Sprint(s.kinds[k], r.free)
			if !g.on(r) || at != nil && at.node != r.name || tried[alike] {
				continue
			}
			tried[alike] = true
			planned := ""
			if at != nil {
				planned = at.gpus
			}
			for _, with := range r.with(n, planned) {
				if s.left--; s.left < 0 {
					return nil
				}
				way := slices.Clone(rooms)
				way[k] = with
				if state := s.state(way); !seen[state] {
					seen[state] = true
					ways = append(ways, way)
				}
			}
		}
	}
	return ways
}

// ways are those in which a gang can be placed.
func (s *search) ways(rooms []room, g gang) [][]room {
	states := [][]room{rooms}
	for k, n := range g.needs {
		var at *spot
		if g.at != nil {
			at = &g.at[k]
		}
		states = s.add(states, g, n, at)
	}
	all := states
	for _, n := range g.more {
		states = s.add(states, g, n, nil)
		all = append(all, states...)
	}
	return all
}

// always reports whether gangs have room, in any order that before allows, whichever way those are
// placed that come first.
func (s *search) always(rooms []room, gangs []int, before func(a, b int) bool) (ok bool) {
	if len(gangs) == 0 {
		return true
	}
	key := fmt.Sprint(gangs, s.state(rooms))
	if known, tried := s.known[key]; tried {
		return known
	}
	defer func() { s.known[key] = ok && s.left >= 0 }()
	for at, k := range gangs {
		if slices.ContainsFunc(gangs, func(other int) bool { return before(other, k) }) {
			continue
		}
		ways := s.ways(rooms, s.gangs[k])
		rest := slices.Concat(gangs[:at], gangs[at+1:])
		if len(ways) == 0 || slices.ContainsFunc(ways, func(way []room) bool { return !s.always(way, rest, before) }) {
			return false
		}
	}
	return s.left >= 0
}

// ever reports whether gangs have room beside each other in some way.
func (s *search) ever(rooms []room, gangs []gang) bool {
	if len(gangs) == 0 {
		return true
	}
	return slices.ContainsFunc(s.ways(rooms, gang{needs: gangs[0].needs, on: gangs[0].on, at: gangs[0].at}), func(way []room) bool { return s.ever(way, gangs[1:]) })
}

// always reports whether it is proved that gangs have room, one after the other, whichever way those are placed that
// come first, once the pods have left for which gone is true.
func (s *snapshot) always(gone func(corev1.Pod) bool, gangs ...gang) bool {
	return s.inAnyOrder(gone, func(a, b int) bool { return a < b }, gangs...)
}

// inAnyOrder is always for gangs that come in any order but that of before.
func (s *snapshot) inAnyOrder(gone func(corev1.Pod) bool, before func(a, b int) bool, gangs ...gang) bool {
	var all []int
	for k := range gangs {
		all = append(all, k)
	}
	return !slices.ContainsFunc(s.grounds(gone), func(rooms []room) bool { return !newSearch(rooms, gangs).always(rooms, all, before) })
}

// ever reports whether it is proved that gangs have room beside each other in some way, once the pods have left for
// which gone is true.
func (s *snapshot) ever(gone func(corev1.Pod) bool, gangs ...gang) bool {
	return !slices.ContainsFunc(s.grounds(gone), func(rooms []room) bool { return !newSearch(rooms, gangs).ever(rooms, gangs) })
}
