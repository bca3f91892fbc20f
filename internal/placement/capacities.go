package placement

import (
	"reflect"
	"slices"
)

// capacities counts for how many members there is room in each domain in which a gang may be,
// by what they request. Where that is too little the gang does not fit, however it is packed;
// with one request, and no rules about which pods are near each other, it fits where it is
// enough.
type capacities struct {
	shapes []shape
	// levels tell by the position of a node in which domain it is, -1 for none.
	levels [][]int32
	// room is that of each domain by shape, short the number of shapes for which it is too
	// little.
	room  [][]int
	short []int
	// open counts the domains with enough room for all shapes.
	open int
	// exact means that room is all that it takes.
	exact bool
}

// shape is members with equal requests.
type shape struct {
	request *Request
	want    int
	// limit is how many of them a node may take by count alone, slots how many it has room for.
	limit, slots []int
}

// newCapacities counts the room that a planner's cluster has now.
func newCapacities(p *planner) *capacities {
	c := &capacities{exact: len(p.classes) <= 1 && p.among == nil && p.wishes == nil}
	want := p.wanted(p.needed)
	if len(p.gang.Subgroups) > 0 && len(p.classes) > 1 {
		want = p.required // the others may be of any class
	}
	for class := range p.classes {
		c.add(p, class, want[class])
	}
	required, preferred := p.domainLabels()
	most := len(required)
	if len(p.running) > 0 {
		most += len(preferred) // a narrower domain need not be in one where most members run
	}
	for level := len(required); level <= most; level++ {
		labels := slices.Concat(required, preferred)[:level]
		domains := p.domains(labels)
		if level > 0 {
			domains = whereItRuns(domains)
		}
		c.addLevel(p, domains)
	}
	if strict, ok := p.withoutRules(required); ok {
		c.addLevel(p, p.domains(strict))
	}
	for at, n := range p.nodes {
		c.set(int32(at), n.free)
	}
	return c
}

// Enough reports whether a domain has room for each of the members that the gang needs.
func (c *capacities) Enough() bool { return c.open > 0 }

// Exact reports whether the gang fits where there is room for each of its members.
func (c *capacities) Exact() bool { return c.exact }

// add takes in members of a class.
func (c *capacities) add(p *planner, class, want int) {
	i := slices.IndexFunc(c.shapes, func(s shape) bool { return reflect.DeepEqual(*s.request, *p.classes[class].request) })
	if i < 0 {
		i = len(c.shapes)
		c.shapes = append(c.shapes, shape{
			request: p.classes[class].request, limit: make([]int, len(p.nodes)), slots: make([]int, len(p.nodes)),
		})
	}
	s := &c.shapes[i]
	s.want += want
	admitted := p.survey().admitted
	for at, n := range p.nodes {
		s.limit[at] += p.limit(p.key(n, admitted[at]), class, unlimited, nil)
	}
}

// addLevel takes in domains, which have no nodes in common.
func (c *capacities) addLevel(p *planner, domains []*domain) {
	of := slices.Repeat([]int32{-1}, len(p.nodes))
	for _, d := range domains {
		for _, g := range d.groups {
			for _, at := range g.nodes {
				of[at] = int32(len(c.room))
			}
		}
		short := 0
		for _, s := range c.shapes {
			if s.want > 0 {
				short++
			}
		}
		c.room, c.short = append(c.room, make([]int, len(c.shapes))), append(c.short, short)
		if short == 0 {
			c.open++
		}
	}
	c.levels = append(c.levels, of)
}

// set takes in what is left of a node.
func (c *capacities) set(at int32, left *capacity) {
	for i := range c.shapes {
		s := &c.shapes[i]
		slots := 0
		if s.limit[at] > 0 {
			slots = left.fits(s.request, s.limit[at])
		}
		if slots == s.slots[at] {
			continue
		}
		for _, of := range c.levels {
			if d := of[at]; d >= 0 {
				c.change(d, i, slots-s.slots[at])
			}
		}
		s.slots[at] = slots
	}
}

// change changes the room of a domain for a shape.
func (c *capacities) change(d int32, i, by int) {
	want := c.shapes[i].want
	before := c.room[d][i] < want
	c.room[d][i] += by
	after := c.room[d][i] < want
	if before == after {
		return
	}
	switch {
	case after && c.short[d] == 0:
		c.short[d], c.open = 1, c.open-1
	case after:
		c.short[d]++
	default:
		if c.short[d]--; c.short[d] == 0 {
			c.open++
		}
	}
}
