package packing

import (
	"fmt"
	"math"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// among are the rules of a gang about which pods are near each other, with the pods that
// they count, while members are put on nodes one after the other.
type among struct {
	tallies []*tally
	// classes are the rules of each class.
	classes []classRules
}

// classRules are the rules of one class.
type classRules struct {
	// near must have a pod in the member's domain, each of them, unless there is no such pod
	// anywhere and the member is one itself.
	near []*tally
	self bool
	// apart must have no pod in the member's domain.
	apart []*tally
	even  []evenness
}

// evenness is a [placement.TopologySpread] of a class.
type evenness struct {
	*tally
	spread *placement.TopologySpread
	self   int
}

// tally counts pods by domain.
type tally struct {
	label string
	// domain is that of each node by position, -1 for none; count is by domain.
	domain []int32
	count  []int
	total  int
	// adds tells by class whether a member is counted.
	adds []bool
	// eligible are the domains that a spread looks at, nodes those that it counts on; nil for all.
	eligible []bool
	nodes    []bool
	// lowest is the least count of an eligible domain; it is -1 while it is not known.
	lowest int
}

// terms compiles what the gang's rules say about other pods, nil when they say nothing.
func (p *Packer) terms(soft bool) *among {
	if !slices.ContainsFunc(p.Classes, func(c Class) bool { return c.spec.Neighborly(soft) }) {
		return nil
	}
	b := amongBuilder{Packer: p, namespace: placement.NamespaceOf(p.Gang.ID), position: make(map[string]int32, len(p.Nodes)), labels: map[string][]int32{}}
	for i, n := range p.Nodes {
		b.position[n.Name] = int32(i)
	}
	b.rules.classes = make([]classRules, len(p.Classes))
	for i := range p.Classes {
		b.add(i, soft)
	}
	return &b.rules
}

// amongBuilder compiles the rules.
type amongBuilder struct {
	*Packer
	rules     among
	namespace string
	// position is that of a node by its name, labels the domain of each node by label.
	position map[string]int32
	labels   map[string][]int32
}

// add compiles the rules of a class.
func (b *amongBuilder) add(class int, soft bool) {
	role, rules := b.Classes[class].spec, &b.rules.classes[class]
	rules.self = role.MustBeNear(b.namespace, role.Labels)
	for i := range role.Neighbors {
		term := &role.Neighbors[i]
		if !term.Apart {
			t := b.tally(term.Label)
			b.count(t, role.MustBeNear, true)
			rules.near = append(rules.near, t)
			continue
		}
		t := b.tally(term.Label)
		b.count(t, term.Pods.Selects, true)
		rules.apart = append(rules.apart, t)
		// The term keeps the pods away from the member, too, when it comes first.
		bearers := b.tally(term.Label)
		bearers.adds[class] = true
		for other := range b.Classes {
			if t.adds[other] {
				b.rules.classes[other].apart = append(b.rules.classes[other].apart, bearers)
			}
		}
	}
	b.addSpreads(class, soft)
}

// addSpreads compiles the spreads of a class. They look at nodes that have the labels of
// all hard ones.
func (b *amongBuilder) addSpreads(class int, soft bool) {
	role, rules := b.Classes[class].spec, &b.rules.classes[class]
	for i := range role.Spreads {
		spread := &role.Spreads[i]
		if spread.Soft && !soft {
			continue
		}
		t := b.tally(spread.Label)
		t.eligible, t.nodes = make([]bool, len(t.count)), make([]bool, len(b.Nodes))
		for j, n := range b.Nodes {
			if t.domain[j] < 0 || !b.counts(class, spread, n) {
				continue
			}
			t.nodes[j], t.eligible[t.domain[j]] = true, true
		}
		b.count(t, spread.Pods.Selects, false)
		rules.even = append(rules.even, evenness{tally: t, spread: spread, self: rank(t.adds[class])})
	}
}

// counts reports whether a spread of a class looks at a node.
func (b *amongBuilder) counts(class int, spread *placement.TopologySpread, n *capacity.Node) bool {
	for _, other := range b.Classes[class].spec.Spreads {
		if _, ok := n.Labels[other.Label]; !ok && (!other.Soft || spread.Soft) {
			return false
		}
	}
	rules := &b.Packer.Rules[b.Classes[class].Rules]
	return (spread.AnyAffinity || rules.Matches(&n.Node)) && (!spread.HonorTaints || rules.Tolerates(&n.Node) == nil)
}

// tally makes one over the domains of a label.
func (b *amongBuilder) tally(label string) *tally {
	domain, ok := b.labels[label]
	if !ok {
		domain = make([]int32, len(b.Nodes))
		known := map[string]int32{}
		for i, n := range b.Nodes {
			value, ok := n.Labels[label]
			if !ok {
				domain[i] = -1
				continue
			}
			if _, ok := known[value]; !ok {
				known[value] = int32(len(known))
			}
			domain[i] = known[value]
		}
		b.labels[label] = domain
	}
	number := int32(0)
	for _, d := range domain {
		number = max(number, d+1)
	}
	t := &tally{label: label, domain: domain, count: make([]int, number), adds: make([]bool, len(b.Classes)), lowest: -1}
	b.rules.tallies = append(b.rules.tallies, t)
	return t
}

// count notes which members a tally counts, and counts the pods that run.
func (b *amongBuilder) count(t *tally, selects func(namespace string, labels map[string]string) bool, leaving bool) {
	for i := range b.Classes {
		t.adds[i] = selects(b.namespace, b.Classes[i].spec.Labels)
	}
	for id, pod := range b.Pods {
		at, ok := b.position[pod.Node]
		if ok && b.Gone[id] == nil && (leaving || !pod.Leaving) && selects(pod.Namespace, pod.Labels) {
			t.add(at, 1)
		}
	}
}

func (t *tally) add(at int32, by int) {
	d := t.domain[at]
	if d < 0 || t.nodes != nil && !t.nodes[at] {
		return
	}
	t.count[d] += by
	t.total += by
	t.lowest = -1
}

// in is how many pods run in the domain of a node.
func (t *tally) in(at int32) int {
	if d := t.domain[at]; d >= 0 {
		return t.count[d]
	}
	return 0
}

// fewest is the least number of pods in an eligible domain.
func (e *evenness) fewest() int {
	if e.lowest >= 0 {
		return e.lowest
	}
	lowest, domains := math.MaxInt, 0
	for d, count := range e.count {
		if e.eligible[d] {
			lowest = min(lowest, count)
			domains++
		}
	}
	if domains < e.spread.MinDomains {
		lowest = 0
	}
	e.lowest = lowest
	return lowest
}

// put notes that a member of a class is on a node (by 1), or is not any more (by -1).
func (a *among) put(class int, at int32, by int) {
	for _, t := range a.tallies {
		if by != 0 && t.adds[class] {
			t.add(at, by)
		}
	}
}

// Rejects says which rule keeps a member of a class from a node now.
func (a *among) Rejects(class int, at int32) placement.Rejection {
	rules := &a.classes[class]
	for _, t := range rules.apart {
		if t.in(at) > 0 {
			return placement.Rejection{Code: placement.KeptApart, Detail: t.label}
		}
	}
	if first := rules.self && !slices.ContainsFunc(rules.near, func(t *tally) bool { return t.total > 0 }); !first || len(rules.near) == 0 {
		for _, t := range rules.near {
			if t.in(at) == 0 {
				return placement.Rejection{Code: placement.NotNear, Detail: t.label}
			}
		}
	} else if i := slices.IndexFunc(rules.near, func(t *tally) bool { return t.domain[at] < 0 }); i >= 0 {
		return placement.Rejection{Code: placement.NotNear, Detail: rules.near[i].label}
	}
	for i := range rules.even {
		e := &rules.even[i]
		if e.domain[at] < 0 || e.in(at)+e.self-e.fewest() > e.spread.MaxSkew {
			return placement.Rejection{Code: placement.Uneven, Detail: fmt.Sprintf("%s (max skew %d)", e.label, e.spread.MaxSkew)}
		}
	}
	return placement.Rejection{}
}

// order is an order in which the members of a selection can take their places; ok is
// false when none was found.
func (a *among) order(s *Selection) (order []packed, ok bool) {
	var due []packed
	for _, pick := range s.Picks {
		for class, n := range pick.Packing.Take {
			due = append(due, slices.Repeat([]packed{{class, pick.Node}}, n)...)
		}
	}
	defer func() {
		for _, t := range order {
			a.put(t.class, t.at, -1)
		}
	}()
	for len(due) > 0 {
		var later []packed
		for _, t := range due {
			if a.Rejects(t.class, t.at).Code != "" {
				later = append(later, t)
				continue
			}
			a.put(t.class, t.at, 1)
			order = append(order, t)
		}
		if len(later) == len(due) {
			return order, false
		}
		due = later
	}
	return order, true
}

// Take notes that the members of a selection are on their nodes (by 1), or not any more (by -1).
func (a *among) Take(s *Selection, by int) {
	for _, pick := range s.Picks {
		for class, n := range pick.Packing.Take {
			a.put(class, pick.Node, by*n)
		}
	}
}
