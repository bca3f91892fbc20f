package packing

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// backtrackEffort bounds how many nodes are looked at, beyond the first try, for the members
// of a gang with rules about which pods are near each other.
const backtrackEffort = 200_000

// backtracking puts members on nodes one after the other, as rules about which pods are near
// each other demand. It goes back where that leads to no end, within limits: on small
// clusters it finds a placement whenever there is one.
type backtracking struct {
	*Packer
	nodes     []*filling
	remaining []int
	due       int
	steps     []step
	// best is the longest list of steps.
	best []step
	// dead are the states that lead to no end, effort is what is left for going back.
	dead   map[string]bool
	effort int
}

// step is one member's place.
type step struct {
	class int
	node  *filling
}

// backtrack places the wanted members of each class in a domain one after the other.
func (p *Packer) backtrack(d *Domain, want []int) Selection {
	s := &backtracking{Packer: p, nodes: fillings(d, len(p.Classes)), remaining: slices.Clone(want), due: sum(want), dead: map[string]bool{}, effort: backtrackEffort}
	s.place()
	for _, step := range slices.Backward(s.steps) {
		s.Among.put(step.class, step.node.at, -1)
	}
	nodes := fillings(d, len(p.Classes))
	for _, step := range s.best {
		i, _ := slices.BinarySearchFunc(nodes, step.node.at, func(n *filling, at int32) int { return cmp.Compare(n.at, at) })
		nodes[i].room, _ = p.with(nodes[i], step.class)
		nodes[i].Add(step.class, 1, p.Classes[step.class].Request)
	}
	chosen := p.chosen(d, nodes, p.order)
	for _, step := range s.best {
		chosen.order = append(chosen.order, packed{step.class, step.node.at})
	}
	return chosen
}

// with is what is left of a node when one more member of a class is on it, all of them
// in the order in which they get their GPUs; ok is false when they do not fit.
func (p *Packer) with(n *filling, class int) (room *capacity.Capacity, ok bool) {
	room = n.state.Clone()
	for _, i := range p.order {
		r, take := p.Classes[i].Request, n.Take[i]
		if i == class {
			take++
		}
		if room.Fits(r, take) < take {
			return nil, false
		}
		room.Take(r, take, p.choice)
	}
	return room, true
}

// place places the members that remain, and reports whether all have a place.
func (s *backtracking) place() bool {
	if len(s.steps) > len(s.best) {
		s.best = slices.Clone(s.steps)
	}
	if len(s.steps) == s.due {
		return true
	}
	if len(s.dead) > 0 && (s.effort < 0 || s.dead[s.state()]) {
		return false
	}
	for _, class := range s.order {
		if s.remaining[class] == 0 {
			continue
		}
		for _, n := range s.candidates(class) {
			before := *n.filling
			s.put(class, n.filling, n.after)
			if s.place() {
				return true
			}
			s.steps = s.steps[:len(s.steps)-1]
			s.Among.put(class, n.at, -1)
			s.remaining[class]++
			*n.filling = before
			if s.effort < 0 {
				return false
			}
		}
	}
	s.dead[s.state()] = true
	return false
}

// put puts a member on a node.
func (s *backtracking) put(class int, n *filling, room *capacity.Capacity) {
	taken := *n.Packing
	taken.Take = slices.Clone(taken.Take)
	n.Packing, n.room = &taken, room
	n.Add(class, 1, s.Classes[class].Request)
	s.Among.put(class, n.at, 1)
	s.remaining[class]--
	s.steps = append(s.steps, step{class, n})
}

// candidate is a node that takes a member, with what is left of it after that and how
// many of those that remain it could take in all.
type candidate struct {
	*filling
	after *capacity.Capacity
	slots int
}

// candidates are the nodes that take a member of a class now, the best first; of nodes
// that are alike in every respect the first.
func (s *backtracking) candidates(class int) []candidate {
	var list []candidate
	alike := map[string]bool{}
	for _, n := range s.nodes {
		if len(s.dead) > 0 {
			s.effort--
		}
		if s.Limit(n.Key, class, 1, n.Packing) == 0 || s.Among.Rejects(class, n.at).Code != "" {
			continue
		}
		after, ok := s.with(n, class)
		if !ok {
			continue
		}
		key := string(s.describe(n))
		if alike[key] {
			continue
		}
		alike[key] = true
		list = append(list, candidate{n, after, 1 + s.slots(n, after, class, s.remaining[class]-1)})
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(b.near, a.near),
			cmp.Compare(b.weight, a.weight),
			cmp.Compare(rank(b.Members > 0), rank(a.Members > 0)),
			cmp.Compare(b.slots, a.slots),
			cmp.Compare(a.after.Left(), b.after.Left()),
		)
	})
	return list
}

// describe tells nodes apart that are not alike: by their group, what they have taken, and
// the domains that the rules look at. A domain of one node counts by its pods alone.
func (s *backtracking) describe(n *filling) []byte {
	b := binary.AppendVarint(nil, int64(n.number))
	for _, taken := range n.Take {
		b = binary.AppendVarint(b, int64(taken))
	}
	for _, t := range s.Among.tallies {
		d := t.domain[n.at]
		switch {
		case d >= 0 && t.label == Hostname:
			b = binary.AppendVarint(b, int64(t.count[d]))
			if t.eligible != nil {
				b = binary.AppendVarint(b, int64(rank(t.eligible[d])))
			}
		default:
			b = binary.AppendVarint(b, int64(d))
		}
	}
	return b
}

// state describes what has been placed, the same for all orders.
func (s *backtracking) state() string {
	list := make([][]byte, len(s.nodes))
	for i, n := range s.nodes {
		list[i] = s.describe(n)
	}
	slices.SortFunc(list, bytes.Compare)
	return string(bytes.Join(list, []byte{0xff}))
}
