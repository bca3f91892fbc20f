package packing

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// Selection is a choice of nodes with how many members of each class go to each.
type Selection struct {
	Domain *Domain
	Picks  []pick
	Placed int
	// near sums up how near the picked nodes are to the running members.
	near int
	// weight sums up how much the members wish for their nodes.
	weight int64
	// room is how many members all nodes of the domain could take, one node at a time.
	room int
	// left is what stays free on the chosen nodes.
	left int64
	// order is an order in which the members can take their places, nil for any.
	order []packed
	// GBps is the ring bandwidth of the slowest node of the gang.
	GBps float64
}

// packed is that a member of a class takes a place on a node.
type packed struct {
	class int
	at    int32
}

// pick is one node, by its position in the planner's nodes, with what goes to it.
type pick struct {
	Node    int32
	Packing *capacity.Packing
}

// Choose selects nodes for the wanted members of each class. Soft rules are kept when all
// members get a place by them.
func (p *Packer) Choose(want []int) Selection {
	hard := p.Among
	if p.wishes != nil {
		p.Among = p.wishes
		s := p.chooseDomain(want)
		p.Among = hard
		if s.Placed == sum(want) {
			return s
		}
	}
	return p.chooseDomain(want)
}

// chooseDomain is Choose by the rules as they are. Levels of network
// domains are tried from the narrowest preferred one to what is required alone; in
// each level the domain is chosen that places the most, is nearest to running members,
// needs the fewest nodes, has the fastest ring and is the tightest, in this order.
// Where members run already, the others follow: only the domain is tried in which
// most run, until the gang needs more than any preferred domain has.
func (p *Packer) chooseDomain(want []int) Selection {
	required, preferred := p.DomainLabels()
	labels := slices.Concat(required, preferred)
	var best Selection
	for level := len(labels); level >= len(required); level-- {
		domains := p.domains(labels[:level])
		if level > 0 {
			domains = whereItRuns(domains)
		}
		p.trials = nil
		if len(domains) > 1 {
			p.trials = map[Key]*capacity.Packing{}
		}
		best = Selection{Domain: &Domain{Labels: required}}
		for i, d := range domains {
			if s := p.packDomain(d, want); i == 0 || s.compare(&best) < 0 {
				best = s
			}
		}
		if best.Placed == sum(want) {
			return best
		}
	}
	if s, ok := p.chooseByRules(required, want); ok {
		return s
	}
	return best
}

// chooseByRules selects nodes for all wanted members outside the required domains that only
// stand for what the gang's rules about pods near each other demand: these allow several where
// not every role has them, or other pods run that they select.
func (p *Packer) chooseByRules(required []string, want []int) (Selection, bool) {
	strict, ok := p.withoutRules(required)
	if !ok {
		return Selection{}, false
	}
	p.trials = nil
	for _, d := range p.domains(strict) {
		if s := p.packDomain(d, want); s.Placed == sum(want) {
			return s, true
		}
	}
	return Selection{}, false
}

// withoutRules returns the required domains without those that only stand for what the gang's
// rules demand; ok is false when there are none of these.
func (p *Packer) withoutRules(required []string) (strict []string, ok bool) {
	if p.Among == nil {
		return nil, false
	}
	strict = slices.DeleteFunc(slices.Clone(required), p.ruled)
	return strict, len(strict) < len(required)
}

// ruled reports whether a required domain is that of a rule about pods that must be near.
func (p *Packer) ruled(label string) bool {
	return slices.ContainsFunc(p.Classes, func(c Class) bool {
		return slices.ContainsFunc(c.spec.Neighbors, func(n placement.Neighbor) bool { return n.Label == label && !n.Apart })
	})
}

// compare orders selections from the best.
func (s *Selection) compare(o *Selection) int {
	return cmp.Or(
		cmp.Compare(o.Placed, s.Placed),
		cmp.Compare(o.Domain.running, s.Domain.running),
		cmp.Compare(o.near, s.near),
		cmp.Compare(o.weight, s.weight),
		cmp.Compare(len(s.Picks), len(o.Picks)),
		cmp.Compare(o.GBps, s.GBps),
		cmp.Compare(s.room, o.room),
		cmp.Compare(s.left, o.left),
	)
}

// packDomain packs a gang into one domain. A gang that spreads is packed with the
// lowest limit per node that places as many.
func (p *Packer) packDomain(d *Domain, want []int) Selection {
	pack := func() Selection { return p.packClasses(d, want) }
	s := pack()
	if !p.Gang.Spread {
		return s
	}
	most := 0
	for _, pick := range s.Picks {
		most = max(most, pick.Packing.Members+len(p.running[p.Nodes[pick.Node].Name]))
	}
	limited := func(perNode int) Selection {
		p.perNode, p.trials = perNode, nil
		defer func() { p.perNode = capacity.Unlimited }()
		return pack()
	}
	return limited(1 + sort.Search(max(most-1, 0), func(i int) bool { return limited(i+1).Placed == s.Placed }))
}

// packClasses packs node after node, the biggest shapes first. Where that leaves members
// of several classes over, it tries one class after the other, then the smallest shapes
// first, and takes what places the most.
func (p *Packer) packClasses(d *Domain, want []int) Selection {
	best := p.packFreely(d, want)
	if p.Among == nil || best.Placed == 0 {
		return best
	}
	if order, ok := p.Among.order(&best); ok {
		best.order = order
		return best
	}
	return p.backtrack(d, want)
}

// packFreely packs whatever pods are beside each other.
func (p *Packer) packFreely(d *Domain, want []int) Selection {
	best := p.pack(d, want)
	for _, other := range []func(*Domain, []int) Selection{p.packInOrder, p.packSmallest} {
		if len(p.Classes) == 1 || best.Placed == sum(want) {
			break
		}
		if s := other(d, want); s.Placed > best.Placed {
			best = s
		}
	}
	return best
}

// packSmallest is pack with the smallest shapes first.
func (p *Packer) packSmallest(d *Domain, want []int) Selection {
	q := *p
	q.order, q.trials = slices.Clone(p.order), nil
	slices.Reverse(q.order)
	return q.pack(d, want)
}

func sum(list []int) int {
	total := 0
	for _, n := range list {
		total += n
	}
	return total
}

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}
