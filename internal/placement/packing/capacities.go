package packing

import (
	"reflect"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// Capacities counts for how many members there is room in each domain in which a gang may be,
// by what they request. Where that is too little the gang does not fit, however it is packed;
// with one request, and no rules about which pods are near each other, it fits where it is
// enough.
type Capacities struct {
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
	request *placement.Request
	want    int
	// limit is how many of them a node may take by count alone, slots how many it has room for.
	limit, slots []int
}

// NewCapacities counts the room that a planner's cluster has now.
func NewCapacities(p *Packer) *Capacities {
	c := &Capacities{exact: len(p.Classes) <= 1 && p.Among == nil && p.wishes == nil}
	want := p.Wanted(p.Needed)
	if len(p.Gang.Subgroups) > 0 && len(p.Classes) > 1 {
		want = p.certain // the others may be of any class
	}
	for class := range p.Classes {
		c.add(p, class, want[class])
	}
	required, preferred := p.DomainLabels()
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
	for at, n := range p.Nodes {
		c.Set(int32(at), n.Free)
	}
	return c
}

// Enough reports whether a domain has room for each of the members that the gang needs.
func (c *Capacities) Enough() bool { return c.open > 0 }

// Exact reports whether the gang fits where there is room for each of its members.
func (c *Capacities) Exact() bool { return c.exact }

// add takes in members of a class.
func (c *Capacities) add(p *Packer, class, want int) {
	i := slices.IndexFunc(c.shapes, func(s shape) bool { return reflect.DeepEqual(*s.request, *p.Classes[class].Request) })
	if i < 0 {
		i = len(c.shapes)
		c.shapes = append(c.shapes, shape{
			request: p.Classes[class].Request, limit: make([]int, len(p.Nodes)), slots: make([]int, len(p.Nodes)),
		})
	}
	s := &c.shapes[i]
	s.want += want
	admitted := p.Survey().Admitted
	for at, n := range p.Nodes {
		s.limit[at] += p.Limit(p.KeyOf(n, admitted[at]), class, capacity.Unlimited, nil)
	}
}

// addLevel takes in domains, which have no nodes in common.
func (c *Capacities) addLevel(p *Packer, domains []*Domain) {
	of := slices.Repeat([]int32{-1}, len(p.Nodes))
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

// Set takes in what is left of a node.
func (c *Capacities) Set(at int32, left *capacity.Capacity) {
	for i := range c.shapes {
		s := &c.shapes[i]
		slots := 0
		if s.limit[at] > 0 {
			slots = left.Fits(s.request, s.limit[at])
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
func (c *Capacities) change(d int32, i, by int) {
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
