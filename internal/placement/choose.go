package placement

import (
	"cmp"
	"container/heap"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// maxRules is the number of distinct sets of static constraints in one gang: one bit each.
const maxRules = 64

// selection is a choice of nodes with how many members of each class go to each.
type selection struct {
	// domain is the value of the required domain's label.
	domain string
	picks  []pick
	placed int
	// near counts the picks on nodes where members of the gang run already.
	near int
	// room is how many members all nodes of the domain could take, one node at a time.
	room int
	// left is what stays free on the chosen nodes.
	left int64
	// GBps is the ring bandwidth of the slowest node of the gang.
	GBps float64
}

// pick is one node with the number of members of each class that go to it.
type pick struct {
	node *node
	take []int
}

// bucket holds nodes that are alike for this gang: same state, same admitted rules.
type bucket struct {
	*trial
	nodes []*node
	// near tells that members of the gang run on the nodes already.
	near bool
}

// trialKey identifies nodes that are alike for this gang.
type trialKey struct {
	state *capacity
	// admitted has bit i set when the nodes meet rules[i].
	admitted uint64
}

// trial is how many members of each class a node of the key can take out of those
// that remain, and what that gives.
type trial struct {
	key     trialKey
	take    []int
	members int
	cards   int
	ring    gpu.Ring
	left    int64
}

// choose selects nodes for the wanted members of each class: in each domain by
// itself, then the domain that places the most, is nearest to running members, needs
// the fewest nodes, has the fastest ring and is the tightest, in this order.
func (p *planner) choose(want []int) selection {
	p.trials = map[trialKey]*trial{}
	var best selection
	for i, d := range p.domains() {
		if s := p.pack(d.nodes, d.admitted, want); i == 0 || s.compare(&best) < 0 {
			best = s
			best.domain = d.value
		}
	}
	return best
}

// compare orders selections from the best.
func (s *selection) compare(o *selection) int {
	return cmp.Or(
		cmp.Compare(o.placed, s.placed),
		cmp.Compare(o.near, s.near),
		cmp.Compare(len(s.picks), len(o.picks)),
		cmp.Compare(o.GBps, s.GBps),
		cmp.Compare(s.room, o.room),
		cmp.Compare(s.left, o.left),
	)
}

// domain is a set of nodes on which all members must be.
type domain struct {
	value    string
	nodes    []*node
	admitted []uint64
}

// domains returns the domains in the order of their first nodes; one with all nodes
// when the gang requires none.
func (p *planner) domains() []*domain {
	all := &domain{nodes: p.nodes, admitted: make([]uint64, len(p.nodes))}
	for i, n := range p.nodes {
		all.admitted[i] = p.admits(n)
	}
	label := p.gang.RequiredDomain
	if label == "" {
		return []*domain{all}
	}
	index := map[string]*domain{}
	var list []*domain
	for i, n := range p.nodes {
		value, ok := n.Labels[label]
		if !ok {
			continue
		}
		d := index[value]
		if d == nil {
			d = &domain{value: value}
			index[value] = d
			list = append(list, d)
		}
		d.nodes = append(d.nodes, n)
		d.admitted = append(d.admitted, all.admitted[i])
	}
	return list
}

// admits returns the rules that a node meets, one bit each.
func (p *planner) admits(n *node) uint64 {
	if p.gang.ExcludeNodes[n.Name] {
		return 0
	}
	var admitted uint64
	for i := range p.rules {
		if p.rules[i].refuses(&n.Node) == (refusal{}) {
			admitted |= 1 << uint(i)
		}
	}
	return admitted
}

// try packs the remaining members on a node, the biggest shapes first.
func (p *planner) try(key trialKey, remaining []int) *trial {
	t := &trial{key: key, take: make([]int, len(p.classes))}
	room := key.state
	for i := range p.classes {
		c := &p.classes[i]
		if remaining[i] == 0 || key.admitted&(1<<uint(c.rules)) == 0 {
			continue
		}
		n := room.fits(c.request, remaining[i])
		if n == 0 {
			continue
		}
		if room == key.state {
			room = room.clone()
		}
		room.take(c.request, n)
		t.take[i] = n
		t.members += n
		if c.request.Mode.whole() {
			t.cards += n * c.request.Cards
		}
	}
	t.ring = key.state.ring(t.cards)
	t.left = room.left()
	return t
}

// holds tells that the trial still holds when fewer members remain: no class
// remains with fewer members than it takes. Packing is greedy in the order of the
// classes, so that it would take the same again.
func (t *trial) holds(remaining []int) bool {
	for i, n := range t.take {
		if remaining[i] < n {
			return false
		}
	}
	return true
}

// buckets sorts nodes into groups that are alike for this gang.
func (p *planner) buckets(nodes []*node, admitted []uint64, want []int) []*bucket {
	type key struct {
		trialKey
		near bool
	}
	index := map[key]*bucket{}
	var list []*bucket
	for i, n := range nodes {
		if admitted[i] == 0 {
			continue
		}
		k := key{trialKey{n.free, admitted[i]}, len(p.running[n.Name]) > 0}
		b := index[k]
		if b == nil {
			t := p.trials[k.trialKey]
			if t == nil {
				t = p.try(k.trialKey, want)
				p.trials[k.trialKey] = t
			}
			b = &bucket{trial: t, near: k.near}
			index[k] = b
			if t.members > 0 {
				list = append(list, b)
			}
		}
		b.nodes = append(b.nodes, n)
	}
	return list
}

// pack hands members out to nodes: while no node can hold all that remain, the node
// that takes the most; then, of the nodes that can hold the rest, the one with the
// fastest ring, then the tightest, then the first in order.
func (p *planner) pack(nodes []*node, admitted []uint64, want []int) selection {
	remaining := append([]int(nil), want...)
	members := 0
	for _, n := range want {
		members += n
	}
	var s selection
	queue := bucketHeap(p.buckets(nodes, admitted, want))
	for _, b := range queue {
		s.room += b.members * len(b.nodes)
	}
	heap.Init(&queue)
	for s.placed < members && len(queue) > 0 {
		b := queue[0]
		if !b.holds(remaining) {
			b.trial = p.try(b.key, remaining)
			p.requeue(&queue)
			continue
		}
		if b.members == members-s.placed && !b.near {
			b = p.bestForRest(queue, remaining, b)
		}
		s.picks = append(s.picks, pick{node: b.nodes[0], take: b.take})
		s.placed += b.members
		for i, n := range b.take {
			remaining[i] -= n
		}
		if b.cards > 0 && (s.GBps == 0 || b.ring.GBps < s.GBps) {
			s.GBps = b.ring.GBps
		}
		if b.near {
			s.near++
		}
		s.left += b.left
		b.nodes = b.nodes[1:]
		p.requeue(&queue)
	}
	return s
}

// requeue restores the order after the first bucket changed.
func (p *planner) requeue(queue *bucketHeap) {
	if b := (*queue)[0]; b.members == 0 || len(b.nodes) == 0 {
		heap.Pop(queue)
	} else {
		heap.Fix(queue, 0)
	}
}

// bestForRest returns the best bucket among those whose nodes can hold all that remains.
func (p *planner) bestForRest(queue []*bucket, remaining []int, best *bucket) *bucket {
	for _, b := range queue {
		if !b.holds(remaining) {
			b.trial = p.try(b.key, remaining)
		}
		if b.members == best.members && b.compareRest(best) < 0 {
			best = b
		}
	}
	return best
}

// compareRest orders buckets that hold the same members.
func (b *bucket) compareRest(o *bucket) int {
	return cmp.Or(
		cmp.Compare(o.ring.GBps, b.ring.GBps),
		cmp.Compare(b.left, o.left),
		compareNodes(&b.nodes[0].Node, &o.nodes[0].Node),
	)
}

// bucketHeap orders buckets by how much their nodes take.
type bucketHeap []*bucket

func (h bucketHeap) Len() int      { return len(h) }
func (h bucketHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h bucketHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.near != b.near {
		return a.near
	}
	return cmp.Or(
		cmp.Compare(b.cards, a.cards),
		cmp.Compare(b.members, a.members),
		a.compareRest(b),
	) < 0
}
func (h *bucketHeap) Push(x any) { *h = append(*h, x.(*bucket)) }
func (h *bucketHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
