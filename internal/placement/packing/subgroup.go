package packing

import (
	"slices"
	"sort"
)

// needFirst puts the members that subgroups need before all others of the members to place,
// and counts them by class.
func (p *Packer) needFirst(runs map[string]string) {
	if len(p.Gang.Subgroups) == 0 {
		return
	}
	running := make(map[string]bool, len(runs))
	for name := range runs {
		running[name] = true
	}
	open := map[string]*int{}
	for i := range p.Gang.Subgroups {
		s := &p.Gang.Subgroups[i]
		short := max(s.Minimum-s.Running(p.Gang.Roles, running), 0)
		for _, role := range s.Roles {
			open[role] = &short
		}
	}
	var first, rest []batch
	p.required = make([]int, len(p.Classes))
	for _, b := range p.Due {
		n := 0
		if short := open[p.Gang.Roles[b.role].Name]; short != nil {
			n = min(*short, len(b.Names))
			*short -= n
		}
		p.required[b.Class] += n
		if n > 0 {
			first = append(first, batch{Names: b.Names[:n], Class: b.Class, role: b.role})
		}
		if n < len(b.Names) {
			rest = append(rest, batch{Names: b.Names[n:], Class: b.Class, role: b.role})
		}
	}
	p.Due = append(first, rest...)
	p.Needed = max(p.Needed, sum(p.required))
}

// enough reports whether a selection places the members that are needed, of each subgroup, too.
func (p *Packer) enough(s Selection) bool {
	if s.Placed < p.Needed {
		return false
	}
	placed := s.ByClass(len(p.Classes))
	for class, n := range p.required {
		if placed[class] < n {
			return false
		}
	}
	return true
}

// ByClass counts the members of each class that the selection places.
func (s *Selection) ByClass(classes int) []int {
	placed := make([]int, classes)
	for _, pick := range s.Picks {
		for class, n := range pick.Packing.Take {
			placed[class] += n
		}
	}
	return placed
}

// chooseNeeded selects nodes for the members that are needed and no others: those that
// subgroups need, and of the others the first in the gang's order, or where these have no
// place, as many as possible of one class after the other.
func (p *Packer) chooseNeeded() Selection {
	best := p.Choose(p.Wanted(p.Needed))
	if len(p.Gang.Subgroups) == 0 || p.enough(best) {
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
func (p *Packer) chooseMore(needed Selection, limit int) Selection {
	most := needed
	sort.Search(limit-p.Needed, func(more int) bool {
		n := p.Needed + more + 1
		s := p.Choose(p.Wanted(n))
		if s.Placed == n {
			most = s
		}
		return s.Placed < n
	})
	return most
}

// chooseInOrder selects nodes for what subgroups need, and of the classes in turn for as many
// more as fit, until the gang has what it needs.
func (p *Packer) chooseInOrder(order []int) (Selection, bool) {
	want, most := slices.Clone(p.required), p.Wanted(p.Total)
	with := func(class, n int) []int {
		more := slices.Clone(want)
		more[class] += n
		return more
	}
	fits := func(want []int) (Selection, bool) {
		if p.Exceeded(&p.Gang, p.chargeOf(want)) != nil {
			return Selection{}, false
		}
		s := p.Choose(want)
		return s, s.Placed == sum(want)
	}
	if _, ok := fits(want); !ok {
		return Selection{}, false
	}
	for _, class := range order {
		extra := max(min(p.Needed-sum(want), most[class]-want[class]), 0)
		want = with(class, sort.Search(extra, func(n int) bool { _, ok := fits(with(class, n+1)); return !ok }))
	}
	if sum(want) < p.Needed {
		return Selection{}, false
	}
	return fits(want)
}

// inOrder returns the positions of the batches in the gang's order.
func (p *Packer) inOrder() []int {
	order := make([]int, len(p.Due))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return p.Due[a].role - p.Due[b].role })
	return order
}
