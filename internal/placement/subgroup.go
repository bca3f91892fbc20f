package placement

import (
	"slices"
	"sort"
)

// needFirst puts the members that subgroups need before all others of the members to place,
// and counts them by class.
func (p *planner) needFirst(runs map[string]string) {
	if len(p.gang.Subgroups) == 0 {
		return
	}
	running := make(map[string]bool, len(runs))
	for name := range runs {
		running[name] = true
	}
	open := map[string]*int{}
	for i := range p.gang.Subgroups {
		s := &p.gang.Subgroups[i]
		short := max(s.Minimum-s.running(p.gang.Roles, running), 0)
		for _, role := range s.Roles {
			open[role] = &short
		}
	}
	var first, rest []batch
	p.required = make([]int, len(p.classes))
	for _, b := range p.due {
		n := 0
		if short := open[p.gang.Roles[b.role].Name]; short != nil {
			n = min(*short, len(b.names))
			*short -= n
		}
		p.required[b.class] += n
		if n > 0 {
			first = append(first, batch{names: b.names[:n], class: b.class, role: b.role})
		}
		if n < len(b.names) {
			rest = append(rest, batch{names: b.names[n:], class: b.class, role: b.role})
		}
	}
	p.due = append(first, rest...)
	p.needed = max(p.needed, sum(p.required))
}

// enough reports whether a selection places the members that are needed, of each subgroup, too.
func (p *planner) enough(s selection) bool {
	if s.placed < p.needed {
		return false
	}
	placed := s.byClass(len(p.classes))
	for class, n := range p.required {
		if placed[class] < n {
			return false
		}
	}
	return true
}

// byClass counts the members of each class that the selection places.
func (s *selection) byClass(classes int) []int {
	placed := make([]int, classes)
	for _, pick := range s.picks {
		for class, n := range pick.packing.take {
			placed[class] += n
		}
	}
	return placed
}

// chooseNeeded selects nodes for the members that are needed and no others: those that
// subgroups need, and of the others the first in the gang's order, or where these have no
// place, as many as possible of one class after the other.
func (p *planner) chooseNeeded() selection {
	best := p.choose(p.wanted(p.needed))
	if len(p.gang.Subgroups) == 0 || p.enough(best) {
		return best
	}
	order := slices.Clone(p.order)
	for range 2 {
		slices.Reverse(order)
		if s, ok := p.chooseInOrder(order); ok {
			return s
		}
	}
	return best
}

// chooseMore selects nodes for as many members beyond those that are needed as have room beside
// them, in the gang's order, limit together.
func (p *planner) chooseMore(needed selection, limit int) selection {
	most := needed
	sort.Search(limit-p.needed, func(more int) bool {
		n := p.needed + more + 1
		s := p.choose(p.wanted(n))
		if s.placed == n {
			most = s
		}
		return s.placed < n
	})
	return most
}

// chooseInOrder selects nodes for what subgroups need, and of the classes in turn for as many
// more as fit, until the gang has what it needs.
func (p *planner) chooseInOrder(order []int) (selection, bool) {
	want, most := slices.Clone(p.required), p.wanted(p.total)
	with := func(class, n int) []int {
		more := slices.Clone(want)
		more[class] += n
		return more
	}
	fits := func(want []int) (selection, bool) {
		if p.exceeded(&p.gang, p.chargeOf(want)) != nil {
			return selection{}, false
		}
		s := p.choose(want)
		return s, s.placed == sum(want)
	}
	if _, ok := fits(want); !ok {
		return selection{}, false
	}
	for _, class := range order {
		extra := max(min(p.needed-sum(want), most[class]-want[class]), 0)
		want = with(class, sort.Search(extra, func(n int) bool { _, ok := fits(with(class, n+1)); return !ok }))
	}
	if sum(want) < p.needed {
		return selection{}, false
	}
	return fits(want)
}

// inOrder returns the positions of the batches in the gang's order.
func (p *planner) inOrder() []int {
	order := make([]int, len(p.due))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return p.due[a].role - p.due[b].role })
	return order
}
