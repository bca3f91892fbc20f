package packing

import (
	"slices"
	"sort"
)

// part is a subgroup of which members are to be placed: so many of those in batches, which are positions among those due.
type part struct {
	short   int
	batches []int
}

// needFirst puts the members that subgroups need before all others of the members to place,
// and counts them by class: the first of each subgroup, until [Packer.share] finds others that fit.
func (p *Packer) needFirst(runs map[string]string) {
	if len(p.Gang.Subgroups) == 0 {
		return
	}
	running := make(map[string]bool, len(runs))
	for name := range runs {
		running[name] = true
	}
	take := make([]int, len(p.Due))
	p.certain = make([]int, len(p.Classes))
	for i := range p.Gang.Subgroups {
		s := &p.Gang.Subgroups[i]
		of, members := part{short: max(s.Minimum-s.Running(p.Gang.Roles, running), 0)}, make([]int, len(p.Classes))
		left, all := of.short, 0
		for i, b := range p.Due {
			if !slices.Contains(s.Roles, p.Gang.Roles[b.role].Name) {
				continue
			}
			of.batches = append(of.batches, i)
			take[i] = min(left, len(b.Names))
			left -= take[i]
			members[b.Class], all = members[b.Class]+len(b.Names), all+len(b.Names)
		}
		for class, n := range members {
			if n > 0 {
				p.certain[class] += max(of.short-(all-n), 0)
			}
		}
		if of.short > 0 {
			p.parts = append(p.parts, of)
		}
	}
	p.before = p.Due
	p.require(take)
	p.Needed = max(p.Needed, sum(p.required))
}

// require puts so many members of each batch before all others.
func (p *Packer) require(take []int) {
	var first, rest []batch
	p.required = make([]int, len(p.Classes))
	for i, b := range p.before {
		n := take[i]
		p.required[b.Class] += n
		if n > 0 {
			first = append(first, batch{Names: b.Names[:n], Class: b.Class, role: b.role})
		}
		if n < len(b.Names) {
			rest = append(rest, batch{Names: b.Names[n:], Class: b.Class, role: b.role})
		}
	}
	p.Due = append(first, rest...)
}

// share looks for other members that subgroups may have in the place of the first, where these do not fit: in turn
// as many of each class as have room. Subgroups with members of one class, which have no choice, come first.
func (p *Packer) share() bool {
	choices := func(of part) int {
		classes := map[int]bool{}
		for _, i := range of.batches {
			classes[p.before[i].Class] = true
		}
		return len(classes)
	}
	parts := slices.Clone(p.parts)
	slices.SortStableFunc(parts, func(a, b part) int { return choices(a) - choices(b) })
	if len(parts) == 0 || choices(parts[len(parts)-1]) < 2 {
		return false
	}
	want, take := make([]int, len(p.Classes)), make([]int, len(p.before))
	for _, of := range parts {
		for _, i := range of.batches {
			b := p.before[i]
			take[i] = sort.Search(min(of.short, len(b.Names)), func(n int) bool {
				more := slices.Clone(want)
				more[b.Class] += n + 1
				_, ok := p.fits(more)
				return !ok
			})
			want[b.Class] += take[i]
			of.short -= take[i]
		}
		if of.short > 0 {
			return false
		}
	}
	if slices.Equal(want, p.required) {
		return false
	}
	p.require(take)
	return true
}

// fits selects nodes for so many members of each class, and reports whether all of them have one, within the quota.
func (p *Packer) fits(want []int) (Selection, bool) {
	if p.Exceeded(&p.Gang, p.chargeOf(want)) != nil {
		return Selection{}, false
	}
	s := p.Choose(want)
	return s, s.Placed == sum(want)
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
	if p.share() {
		if best = p.Choose(p.Wanted(p.Needed)); p.enough(best) {
			return best
		}
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

// chooseMore selects nodes for members beyond those that are needed, limit together: in the gang's order as many of each
// class as have room beside the others. One that has none keeps out nobody else.
func (p *Packer) chooseMore(most Selection, limit int) Selection {
	want, first := most.ByClass(len(p.Classes)), make([]int, len(p.Classes))
	left := limit
	for _, b := range p.Due {
		n := min(left, len(b.Names))
		first[b.Class], left = first[b.Class]+n, left-n
		known := want[b.Class]
		want[b.Class] += sort.Search(max(min(first[b.Class]-known, limit-sum(want)), 0), func(n int) bool {
			more := slices.Clone(want)
			more[b.Class] = known + n + 1
			s, ok := p.fits(more)
			if ok {
				most = s
			}
			return !ok
		})
	}
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
	if _, ok := p.fits(want); !ok {
		return Selection{}, false
	}
	for _, class := range order {
		extra := max(min(p.Needed-sum(want), most[class]-want[class]), 0)
		want = with(class, sort.Search(extra, func(n int) bool { _, ok := p.fits(with(class, n+1)); return !ok }))
	}
	if sum(want) < p.Needed {
		return Selection{}, false
	}
	return p.fits(want)
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
