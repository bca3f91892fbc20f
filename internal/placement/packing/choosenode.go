package packing

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// maxRules is the number of distinct sets of static constraints in one gang: one bit each.
const maxRules = 64

// bucket hands out the nodes of a group.
type bucket struct {
	*capacity.Packing
	*group
	// handed counts the nodes that were handed out.
	handed int
}

// Key identifies nodes that are alike for this gang.
type Key struct {
	state *capacity.Capacity
	// admitted has bit i set when the nodes meet rules[i].
	admitted uint64
	// host is a node on which members of the gang run, or of which filters let the gang take
	// only so much, nil for all others.
	host *capacity.Node
}

// KeyOf says with which nodes one is alike for the gang, of which it meets these rules.
func (p *Packer) KeyOf(n *capacity.Node, admitted uint64) Key {
	k := Key{state: n.Free, admitted: admitted}
	if len(p.running) > 0 && len(p.running[n.Name]) > 0 || p.Limited(n) {
		k.host = n
	}
	return k
}

// together is how many more members of a role a joint limit allows on a node beside what
// the trial takes.
func (p *Packer) together(l *placement.NodeLimit, node, role string, t *capacity.Packing) int {
	if l.Node != node || !slices.Contains(l.Roles, role) {
		return capacity.Unlimited
	}
	n := l.Most
	if t != nil {
		for i, taken := range t.Take {
			if slices.Contains(l.Roles, p.Classes[i].role) {
				n -= taken
			}
		}
	}
	return n
}

// Limited reports whether a role may take only so many places of a node.
func (p *Packer) Limited(n *capacity.Node) bool {
	return slices.ContainsFunc(p.Rules, func(r admission.Rules) bool { return r.Limits[n.Name] > 0 }) ||
		slices.ContainsFunc(p.Gang.Limits, func(l placement.NodeLimit) bool { return l.Node == n.Name })
}

// Limit is how many of the remaining members of a class a node may take by count
// alone, beside what the trial takes; a nil trial takes nothing.
func (p *Packer) Limit(k Key, class, remaining int, t *capacity.Packing) int {
	c := &p.Classes[class]
	if k.admitted&(1<<uint(c.Rules)) == 0 {
		return 0
	}
	taken, own, apart := 0, 0, 0
	if t != nil {
		taken, own = t.Members, t.Take[class]
		for i, n := range t.Take {
			if c.apart != "" && p.Classes[i].apart == c.apart {
				apart += n
			}
		}
	}
	n := min(remaining, p.perNode-taken)
	held := 0
	if k.host != nil {
		n = min(n, p.perNode-taken-len(p.running[k.host.Name]))
		if p.reserved[k.host.Name] != nil {
			held = p.reserved[k.host.Name][class]
		}
		if limit, limited := p.Rules[c.Rules].Limits[k.host.Name]; limited {
			n = min(n, limit-own)
		}
		for i := range p.Gang.Limits {
			n = min(n, p.together(&p.Gang.Limits[i], k.host.Name, c.role, t))
		}
	}
	if c.perNode > 0 {
		n = min(n, c.perNode-held-own)
	}
	if c.apart != "" {
		n = min(n, 1-held-apart)
	}
	return max(n, 0)
}

// MayUse reports whether a node has room for a member when nothing else runs there.
func (p *Packer) MayUse(n *capacity.Node) bool {
	admitted := p.Admits(n)
	if admitted == 0 {
		return false
	}
	key, empty := p.KeyOf(n, admitted), n.WhenUsed(capacity.Usage{})
	for i := range p.Classes {
		if p.Limit(key, i, 1, nil) > 0 && empty.Fits(p.Classes[i].Request, 1) > 0 {
			return true
		}
	}
	return false
}

// tried returns the trial of the key, the one made before where there is one.
func (p *Packer) tried(key Key, remaining []int) *capacity.Packing {
	switch {
	case p.memory != nil && key.host == nil && remaining[0] > 0:
		return p.Workload.Remember(p.memory, key.state, func() *capacity.Packing { return p.Try(key, remaining) })
	case p.trials == nil:
		return p.Try(key, remaining)
	}
	t := p.trials[key]
	if t == nil {
		t = p.Try(key, remaining)
		p.trials[key] = t
	}
	return t
}

// Try packs the remaining members on a node in the planner's order of classes.
func (p *Packer) Try(key Key, remaining []int) *capacity.Packing {
	t := &capacity.Packing{Take: make([]int, len(p.Classes)), Order: p.order}
	room := key.state
	for _, i := range p.order {
		limit := p.Limit(key, i, remaining[i], t)
		if limit == 0 {
			continue
		}
		c := &p.Classes[i]
		if p.Spots != nil && key.host != nil {
			if room == key.state {
				room = room.Clone()
			}
			if n := p.takeSpots(room, key.host, i, limit); n > 0 {
				t.Add(i, n, c.Request)
				t.Left = room.Left()
			}
			continue
		}
		n := room.Fits(c.Request, limit)
		if n == 0 {
			continue
		}
		t.Add(i, n, c.Request)
		if len(p.Classes) == 1 && p.Workload == nil {
			t.Left = key.state.Left() - int64(n)*capacity.Size(c.Request)
			break
		}
		if room == key.state {
			room = room.Clone()
		}
		room.Take(c.Request, n, p.choice)
		t.Left = room.Left()
	}
	t.Ring = p.ring(key, t.GPUs)
	if p.Workload != nil && t.Members > 0 {
		t.Fragments = p.Workload.Fragments(room) - p.Workload.Score(key.state)
	}
	return t
}

// takeSpots takes what members of a class ask for where they were planned on a node, and returns how many of them have it, up
// to a limit.
func (p *Packer) takeSpots(room *capacity.Capacity, node *capacity.Node, class, limit int) (n int) {
	request := p.Classes[class].Request
	rest := request // what is taken beside these GPUs; the device plugin picks those of other modes
	if request.Mode == placement.ModeTopology || request.Mode.Shared() {
		rest = &placement.Request{Resources: request.Resources, HostPorts: request.HostPorts}
	}
	for _, gpus := range p.spotsAt()[spotKey{node.Name, class}] {
		if n == limit || room.Fits(rest, 1) == 0 || !room.TakeAt(request, gpus) {
			return n
		}
		room.Take(rest, 1, nil)
		n++
	}
	return n
}

// spotKey is a node with a class of which members were planned there.
type spotKey struct {
	node  string
	class int
}

// spotsAt are the GPUs of the members to place by where they were planned, found once.
func (p *Packer) spotsAt() map[spotKey][]gpu.Set {
	if p.spotted != nil {
		return p.spotted
	}
	p.spotted = map[spotKey][]gpu.Set{}
	for _, b := range p.Due {
		for _, name := range b.Names {
			if at, planned := p.Spots[name]; planned {
				key := spotKey{at.Node.Name, b.Class}
				p.spotted[key] = append(p.spotted[key], at.GPUs)
			}
		}
	}
	return p.spotted
}

// ring returns the ring that the gang gets on a node on which it takes more GPUs.
func (p *Packer) ring(key Key, gpus int) gpu.Ring {
	if key.host == nil || key.state.Mode != placement.ModeTopology || gpus == 0 {
		return key.state.Ring(gpus)
	}
	running := p.runningGPUs(key.host) &^ key.state.GPUs
	set, _ := key.state.Table.BestBeside(key.state.GPUs, gpus, running, true)
	return key.state.Table.Ring(set | running)
}

// buckets returns the groups of a domain whose nodes take members.
func (p *Packer) buckets(d *Domain, want []int) []*bucket {
	list := make([]*bucket, 0, len(d.groups))
	all := make([]bucket, len(d.groups))
	for i, g := range d.groups {
		if t := p.tried(g.Key, want); t.Members > 0 {
			all[i] = bucket{Packing: t, group: g}
			list = append(list, &all[i])
		}
	}
	return list
}

// pack hands members out to nodes: while no node can hold all that remain, the node
// that takes the most; then, of the nodes that can hold the rest, the one with the
// fastest ring, then the tightest, then the first in order. Nodes that are near to
// running members come before all others.
func (p *Packer) pack(d *Domain, want []int) Selection {
	s := Selection{Domain: d}
	remaining := slices.Clone(want)
	members := sum(want)
	queue := bucketHeap(p.buckets(d, want))
	for _, b := range queue {
		s.room += b.Members * b.size
	}
	heap.Init(&queue)
	for members > 0 && len(queue) > 0 {
		b := queue[0]
		if !b.StillFits(remaining) {
			b.Packing = p.Try(b.Key, remaining)
			queue.requeue()
			continue
		}
		if b.Members == members-s.Placed {
			b = p.bestForRest(queue, remaining, b)
		}
		s.add(b)
		if s.Placed == members {
			break
		}
		for i, n := range b.Take {
			remaining[i] -= n
		}
		b.handed++
		queue.requeue()
	}
	return s
}

// add puts the members of a bucket's trial on its next node.
func (s *Selection) add(b *bucket) {
	s.Picks = append(s.Picks, pick{Node: b.node(), Packing: b.Packing})
	s.Placed += b.Members
	s.left += b.Left
	s.near += b.near
	s.weight += int64(b.Members) * b.weight
	if b.GPUs > 0 && (s.GBps == 0 || b.Ring.GBps < s.GBps) {
		s.GBps = b.Ring.GBps
	}
}

// node is the position of the next node.
func (b *bucket) node() int32 { return b.nodes[b.handed] }

// bestForRest returns the best bucket among those that are as near and whose nodes can
// hold all that remains.
func (p *Packer) bestForRest(queue []*bucket, remaining []int, best *bucket) *bucket {
	for _, b := range queue {
		if !b.StillFits(remaining) {
			b.Packing = p.Try(b.Key, remaining)
		}
		if b.near == best.near && b.weight == best.weight && b.Members == best.Members && b.compareRest(best) < 0 {
			best = b
		}
	}
	return best
}

// compareRest orders buckets that hold the same members.
func (b *bucket) compareRest(o *bucket) int {
	return cmp.Or(
		cmp.Compare(o.Ring.GBps, b.Ring.GBps),
		cmp.Compare(b.Fragments, o.Fragments),
		cmp.Compare(b.Left, o.Left),
		cmp.Compare(b.node(), o.node()),
	)
}

// compare orders buckets by how much their nodes take, and how well.
func (b *bucket) compare(o *bucket) int {
	return cmp.Or(
		cmp.Compare(o.near, b.near),
		cmp.Compare(o.weight, b.weight),
		cmp.Compare(o.GPUs, b.GPUs),
		cmp.Compare(o.Members, b.Members),
		b.compareRest(o),
	)
}

// bucketHeap orders buckets by how much their nodes take.
type bucketHeap []*bucket

func (h bucketHeap) Len() int      { return len(h) }
func (h bucketHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h bucketHeap) Less(i, j int) bool {
	return h[i].compare(h[j]) < 0
}
func (h *bucketHeap) Push(x any) {
	b, _ := x.(*bucket) // heap.Push of this file pushes nothing else
	*h = append(*h, b)
}
func (h *bucketHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// requeue restores the order after the first bucket changed.
func (h *bucketHeap) requeue() {
	if b := (*h)[0]; b.Members == 0 || b.handed == b.size {
		heap.Pop(h)
	} else {
		heap.Fix(h, 0)
	}
}

// Room is what a trial leaves of a state; a nil trial leaves all.
func (p *Packer) Room(state *capacity.Capacity, t *capacity.Packing) *capacity.Capacity {
	if t == nil {
		return state
	}
	room := state.Clone()
	for _, class := range t.Order {
		room.Take(p.Classes[class].Request, t.Take[class], p.choice)
	}
	return room
}
