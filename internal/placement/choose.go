package placement

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// selection is a choice of nodes with how many members of each class go to each.
type selection struct {
	domain *domain
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
	// order is the order in which the classes take from the node.
	order []int
}

// domain is a set of nodes on which all members must be.
type domain struct {
	// labels make the domain, value is what they are on its nodes.
	labels   []string
	value    string
	nodes    []*node
	admitted []uint64
	// running counts the members of the gang that run in the domain.
	running int
}

// String names the domain by its labels: "zone=a, rack=r7".
func (d *domain) String() string {
	parts := strings.Split(d.value, "\x00")
	for i, label := range d.labels {
		parts[i] = label + "=" + parts[i]
	}
	return strings.Join(parts, ", ")
}

// has reports whether a node belongs to the domain.
func (d *domain) has(n *node) bool {
	value, ok := domainOf(n, d.labels)
	return ok && value == d.value
}

// domainOf returns the values of the labels on a node; ok is false when it lacks one.
func domainOf(n *node, labels []string) (value string, ok bool) {
	for i, label := range labels {
		v, ok := n.Labels[label]
		if !ok {
			return "", false
		}
		if i > 0 {
			v = value + "\x00" + v
		}
		value = v
	}
	return value, true
}

// choose selects nodes for the wanted members of each class. Levels of network
// domains are tried from the narrowest preferred one to what is required alone; in
// each level the domain is chosen that places the most, has most running members, is
// nearest to them, needs the fewest nodes, has the fastest ring and is the tightest,
// in this order.
func (p *planner) choose(want []int) selection {
	p.trials = map[trialKey]*trial{}
	required, preferred := p.domainLabels()
	admitted := make([]uint64, len(p.nodes))
	for i, n := range p.nodes {
		admitted[i] = p.admits(n)
	}
	var best selection
	for level := len(preferred); level >= 0; level-- {
		domains := p.domains(slices.Concat(required, preferred[:level]), admitted)
		if len(required) > 0 {
			domains = whereItRuns(domains)
		}
		best = selection{domain: &domain{labels: required}}
		for i, d := range domains {
			if s := p.packDomain(d, want); i == 0 || s.compare(&best) < 0 {
				best = s
			}
		}
		if best.placed == sum(want) {
			break
		}
	}
	return best
}

// compare orders selections from the best.
func (s *selection) compare(o *selection) int {
	return cmp.Or(
		cmp.Compare(o.placed, s.placed),
		cmp.Compare(o.domain.running, s.domain.running),
		cmp.Compare(o.near, s.near),
		cmp.Compare(len(s.picks), len(o.picks)),
		cmp.Compare(o.GBps, s.GBps),
		cmp.Compare(s.room, o.room),
		cmp.Compare(s.left, o.left),
	)
}

// domainLabels returns the labels of the required and of the preferred domains, the widest first.
func (p *planner) domainLabels() (required, preferred []string) {
	if p.gang.RequiredDomain != "" {
		required = append(required, p.gang.RequiredDomain)
	}
	for _, d := range p.gang.Domains {
		if d.Required {
			required = append(required, d.Label)
		} else {
			preferred = append(preferred, d.Label)
		}
	}
	return required, preferred
}

// domains returns the domains that labels make, in the order of their first nodes;
// one with all nodes when there are no labels.
func (p *planner) domains(labels []string, admitted []uint64) []*domain {
	if len(labels) == 0 {
		return []*domain{{nodes: p.nodes, admitted: admitted}}
	}
	index := map[string]*domain{}
	var list []*domain
	for i, n := range p.nodes {
		value, ok := domainOf(n, labels)
		if !ok {
			continue
		}
		d := index[value]
		if d == nil {
			d = &domain{labels: labels, value: value}
			index[value] = d
			list = append(list, d)
		}
		d.nodes = append(d.nodes, n)
		d.admitted = append(d.admitted, admitted[i])
		d.running += len(p.running[n.Name])
	}
	return list
}

// whereItRuns keeps the domain in which most members of the gang run: a required
// domain holds all members, those that run already too.
func whereItRuns(domains []*domain) []*domain {
	if len(domains) == 0 {
		return nil
	}
	most := slices.MaxFunc(domains, func(a, b *domain) int { return cmp.Compare(a.running, b.running) })
	if most.running == 0 {
		return domains
	}
	return []*domain{most}
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

// packDomain packs a gang into one domain. A gang that spreads is packed with the
// lowest limit per node that places as many.
func (p *planner) packDomain(d *domain, want []int) selection {
	pack := func() selection { return p.packClasses(d, want) }
	s := pack()
	if !p.gang.Spread {
		return s
	}
	most := 0
	for _, pick := range s.picks {
		most = max(most, sum(pick.take)+len(p.running[pick.node.Name]))
	}
	limited := func(perNode int) selection {
		p.perNode, p.trials = perNode, map[trialKey]*trial{}
		defer func() { p.perNode, p.trials = unlimited, map[trialKey]*trial{} }()
		return pack()
	}
	return limited(1 + sort.Search(max(most-1, 0), func(i int) bool { return limited(i+1).placed == s.placed }))
}

// packClasses packs node after node, the biggest shapes first. Where that leaves members
// of several classes over, it tries one class after the other, then the smallest shapes
// first, and takes what places the most.
func (p *planner) packClasses(d *domain, want []int) selection {
	best := p.pack(d, want)
	for _, other := range []func(*domain, []int) selection{p.packInTurn, p.packSmallest} {
		if len(p.classes) == 1 || best.placed == sum(want) {
			break
		}
		if s := other(d, want); s.placed > best.placed {
			best = s
		}
	}
	return best
}

// packSmallest is pack with the smallest shapes first.
func (p *planner) packSmallest(d *domain, want []int) selection {
	q := *p
	q.order, q.trials = slices.Clone(p.order), map[trialKey]*trial{}
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
