package placement

// assign names the members of a selection and gives them their GPUs, in the gang's order.
func (p *planner) assign(s selection) []Assignment {
	list := make([]Assignment, s.placed)
	places := p.places(s, list)
	d := gpuAssigner{planner: p, list: list, spans: p.spans(s)}
	for _, pick := range s.picks {
		here := make([]int32, 0, pick.packing.members)
		for _, class := range pick.packing.order {
			next, rest := p.handOut(places[class], pick.packing.take[class], list, p.nodes[pick.node])
			here, places[class] = append(here, next...), rest
		}
		d.assign(p.nodes[pick.node], pick.packing, here)
	}
	if p.linked {
		d.joinRack()
	}
	return list
}

// handOut chooses n of the positions in the list for a node: those that were planned there, or
// the first ones.
func (p *planner) handOut(open []int32, n int, list []Assignment, at *node) (next, rest []int32) {
	if p.spots == nil {
		return open[:n], open[n:]
	}
	for _, i := range open {
		if p.spots[list[i].Member].node.Name == at.Name {
			next = append(next, i)
		} else {
			rest = append(rest, i)
		}
	}
	return next, rest
}

// placement is what a selection gives the members.
func (p *planner) placement(s selection) *Placement {
	placed := &Placement{Gang: p.gang.ID, Assignments: p.assign(s)}
	if s.order == nil {
		return placed
	}
	classes := map[string]int{}
	for _, b := range p.due {
		for _, name := range b.names {
			classes[name] = b.class
		}
	}
	type place struct {
		class int
		node  string
	}
	members := map[place][]string{}
	for _, a := range placed.Assignments {
		at := place{classes[a.Member], a.Node}
		members[at] = append(members[at], a.Member)
	}
	for _, t := range s.order {
		at := place{t.class, p.nodes[t.at].Name}
		placed.Order = append(placed.Order, members[at][0])
		members[at] = members[at][1:]
	}
	return placed
}

// spans reports whether the gang is on several nodes with the selection.
func (p *planner) spans(s selection) bool {
	if len(s.picks) != 1 {
		return len(s.picks) > 1
	}
	for name := range p.running {
		if name != p.nodes[s.picks[0].node].Name {
			return true
		}
	}
	return false
}

// places names the first members of each class in the list, as many as the selection
// places, and returns their positions by class.
func (p *planner) places(s selection, list []Assignment) [][]int32 {
	open := s.byClass(len(p.classes))
	places := make([][]int32, len(p.classes))
	for class, n := range open {
		places[class] = make([]int32, 0, n)
	}
	gets := make([]int, len(p.due))
	for i, b := range p.due {
		gets[i] = min(len(b.names), open[b.class])
		open[b.class] -= gets[i]
	}
	next := 0
	for _, i := range p.inOrder() {
		b := p.due[i]
		for _, name := range b.names[:gets[i]] {
			list[next].Member = name
			places[b.class] = append(places[b.class], int32(next))
			next++
		}
	}
	return places
}
