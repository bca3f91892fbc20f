package placement

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// maxRules is the number of distinct sets of static constraints in one gang: one bit each.
const maxRules = 64

// bucket hands out the nodes of a group.
type bucket struct {
	*nodePacking
	*group
	// handed counts the nodes that were handed out.
	handed int
}

// packingKey identifies nodes that are alike for this gang.
type packingKey struct {
	state *capacity
	// admitted has bit i set when the nodes meet rules[i].
	admitted uint64
	// host is a node on which members of the gang run, or of which filters let the gang take
	// only so much, nil for all others.
	host *node
}

// nodePacking is how many members of each class a node of the key can take out of those
// that remain, and what that gives.
type nodePacking struct {
	take []int
	// order is the order in which the classes take.
	order   []int
	members int
	gpus    int
	ring    gpu.Ring
	left    int64
	// fragments is how much the members fragment the node, in the unit of [distribution.fragments].
	fragments int64
}

func (p *planner) key(n *node, admitted uint64) packingKey {
	k := packingKey{state: n.free, admitted: admitted}
	if len(p.running) > 0 && len(p.running[n.Name]) > 0 || p.limited(n) {
		k.host = n
	}
	return k
}

// together is how many more members of a role a joint limit allows on a node beside what
// the trial takes.
func (p *planner) together(l *NodeLimit, node, role string, t *nodePacking) int {
	if l.Node != node || !slices.Contains(l.Roles, role) {
		return unlimited
	}
	n := l.Most
	if t != nil {
		for i, taken := range t.take {
			if slices.Contains(l.Roles, p.classes[i].role) {
				n -= taken
			}
		}
	}
	return n
}

// limited reports whether a role may take only so many places of a node.
func (p *planner) limited(n *node) bool {
	return slices.ContainsFunc(p.rules, func(r rules) bool { return r.limits[n.Name] > 0 }) ||
		slices.ContainsFunc(p.gang.Limits, func(l NodeLimit) bool { return l.Node == n.Name })
}

// limit is how many of the remaining members of a class a node may take by count
// alone, beside what the trial takes; a nil trial takes nothing.
func (p *planner) limit(k packingKey, class, remaining int, t *nodePacking) int {
	c := &p.classes[class]
	if k.admitted&(1<<uint(c.rules)) == 0 {
		return 0
	}
	taken, own, apart := 0, 0, 0
	if t != nil {
		taken, own = t.members, t.take[class]
		for i, n := range t.take {
			if c.apart != "" && p.classes[i].apart == c.apart {
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
		if limit, limited := p.rules[c.rules].limits[k.host.Name]; limited {
			n = min(n, limit-own)
		}
		for i := range p.gang.Limits {
			n = min(n, p.together(&p.gang.Limits[i], k.host.Name, c.role, t))
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

// tried returns the trial of the key, the one made before where there is one.
func (p *planner) tried(key packingKey, remaining []int) *nodePacking {
	switch {
	case p.memory != nil && key.host == nil && remaining[0] > 0:
		return p.workload.remember(p.memory, key.state, func() *nodePacking { return p.try(key, remaining) })
	case p.trials == nil:
		return p.try(key, remaining)
	}
	t := p.trials[key]
	if t == nil {
		t = p.try(key, remaining)
		p.trials[key] = t
	}
	return t
}

// try packs the remaining members on a node in the planner's order of classes.
func (p *planner) try(key packingKey, remaining []int) *nodePacking {
	t := &nodePacking{take: make([]int, len(p.classes)), order: p.order}
	room := key.state
	for _, i := range p.order {
		limit := p.limit(key, i, remaining[i], t)
		if limit == 0 {
			continue
		}
		c := &p.classes[i]
		n := room.fits(c.request, limit)
		if n == 0 {
			continue
		}
		t.add(i, n, c.request)
		if len(p.classes) == 1 && p.workload == nil {
			t.left = key.state.left() - int64(n)*c.request.size()
			break
		}
		if room == key.state {
			room = room.clone()
		}
		room.take(c.request, n, p.workload)
		t.left = room.left()
	}
	t.ring = p.ring(key, t.gpus)
	if p.workload != nil && t.members > 0 {
		t.fragments = p.workload.fragments(room) - p.workload.score(key.state)
	}
	return t
}

// ring returns the ring that the gang gets on a node on which it takes more GPUs.
func (p *planner) ring(key packingKey, gpus int) gpu.Ring {
	if key.host == nil || key.state.mode != ModeTopology || gpus == 0 {
		return key.state.ring(gpus)
	}
	running := p.runningGPUs(key.host) &^ key.state.gpus
	set, _ := key.state.table.BestBeside(key.state.gpus, gpus, running, true)
	return key.state.table.Ring(set | running)
}

func (t *nodePacking) add(class, n int, r *Request) {
	t.take[class] += n
	t.members += n
	if r.Mode.whole() {
		t.gpus += n * r.GPUs
	}
}

// stillFits reports whether the trial still holds when fewer members remain: no class
// remains with fewer members than it takes. Packing is greedy in the order of the
// classes, so that it would take the same again.
func (t *nodePacking) stillFits(remaining []int) bool {
	for i, n := range t.take {
		if remaining[i] < n {
			return false
		}
	}
	return true
}

// buckets returns the groups of a domain whose nodes take members.
func (p *planner) buckets(d *domain, want []int) []*bucket {
	list := make([]*bucket, 0, len(d.groups))
	all := make([]bucket, len(d.groups))
	for i, g := range d.groups {
		if t := p.tried(g.packingKey, want); t.members > 0 {
			all[i] = bucket{nodePacking: t, group: g}
			list = append(list, &all[i])
		}
	}
	return list
}

// pack hands members out to nodes: while no node can hold all that remain, the node
// that takes the most; then, of the nodes that can hold the rest, the one with the
// fastest ring, then the tightest, then the first in order. Nodes that are near to
// running members come before all others.
func (p *planner) pack(d *domain, want []int) selection {
	s := selection{domain: d}
	remaining := slices.Clone(want)
	members := sum(want)
	queue := bucketHeap(p.buckets(d, want))
	for _, b := range queue {
		s.room += b.members * b.size
	}
	heap.Init(&queue)
	for members > 0 && len(queue) > 0 {
		b := queue[0]
		if !b.stillFits(remaining) {
			b.nodePacking = p.try(b.packingKey, remaining)
			queue.requeue()
			continue
		}
		if b.members == members-s.placed {
			b = p.bestForRest(queue, remaining, b)
		}
		s.add(b)
		if s.placed == members {
			break
		}
		for i, n := range b.take {
			remaining[i] -= n
		}
		b.handed++
		queue.requeue()
	}
	return s
}

// add puts the members of a bucket's trial on its next node.
func (s *selection) add(b *bucket) {
	s.picks = append(s.picks, pick{node: b.node(), packing: b.nodePacking})
	s.placed += b.members
	s.left += b.left
	s.near += b.near
	s.weight += int64(b.members) * b.weight
	if b.gpus > 0 && (s.GBps == 0 || b.ring.GBps < s.GBps) {
		s.GBps = b.ring.GBps
	}
}

// node is the position of the next node.
func (b *bucket) node() int32 { return b.nodes[b.handed] }

// bestForRest returns the best bucket among those that are as near and whose nodes can
// hold all that remains.
func (p *planner) bestForRest(queue []*bucket, remaining []int, best *bucket) *bucket {
	for _, b := range queue {
		if !b.stillFits(remaining) {
			b.nodePacking = p.try(b.packingKey, remaining)
		}
		if b.near == best.near && b.weight == best.weight && b.members == best.members && b.compareRest(best) < 0 {
			best = b
		}
	}
	return best
}

// compareRest orders buckets that hold the same members.
func (b *bucket) compareRest(o *bucket) int {
	return cmp.Or(
		cmp.Compare(o.ring.GBps, b.ring.GBps),
		cmp.Compare(b.fragments, o.fragments),
		cmp.Compare(b.left, o.left),
		cmp.Compare(b.node(), o.node()),
	)
}

// compare orders buckets by how much their nodes take, and how well.
func (b *bucket) compare(o *bucket) int {
	return cmp.Or(
		cmp.Compare(o.near, b.near),
		cmp.Compare(o.weight, b.weight),
		cmp.Compare(o.gpus, b.gpus),
		cmp.Compare(o.members, b.members),
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
	if b := (*h)[0]; b.members == 0 || b.handed == b.size {
		heap.Pop(h)
	} else {
		heap.Fix(h, 0)
	}
}
