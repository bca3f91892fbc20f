package placement

import (
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// hold is a reservation that a view keeps.
type hold struct {
	Reservation
	// come are the reserved gang's pods by node; "" when only quota is reserved.
	come map[string][]*Pod
	// places is what they take of each node.
	places map[string]usage
	// after are the IDs of the pods that the reservation waits for, by node.
	after map[string][]string
}

// Hold keeps a reservation's place from now on, in place of any that its gang has. On
// each node the place takes what it needs beyond what the pods that it waits for still
// use, so that it fits at any moment as soon as the last of them has gone, whatever is
// planned in between. A reservation that waits for gangs to end, and does not evict
// them, gives way to gangs of higher priority and to lost members of gangs that run.
// gaveWay tells that a place is not held any more.
func (v *View) Hold(r Reservation) (gaveWay bool) {
	gaveWay = v.drop(func(h *hold) bool { return h.yields(&r.Gang) })
	h := &hold{Reservation: r, come: map[string][]*Pod{}, places: map[string]usage{}, after: map[string][]string{}}
	for _, p := range r.Gang.pods(r.Placement.Assignments) {
		if r.QuotaOnly {
			p.Node = ""
		}
		h.come[p.Node] = append(h.come[p.Node], p)
		used := h.places[p.Node]
		used.charge(p, 1)
		h.places[p.Node] = used
	}
	for _, victim := range r.After {
		for _, id := range victim.Pods {
			if p := v.pods[id]; p != nil {
				h.after[p.Node] = append(h.after[p.Node], id)
			}
		}
	}
	v.changed()
	v.holds = append(v.holds, h)
	v.refreshHeld(h)
	return gaveWay
}

// Release gives up the place that a gang holds, and reports whether it held one.
func (v *View) Release(gang string) bool {
	return v.drop(func(h *hold) bool { return h.Gang.ID == gang })
}

// Held returns the reservation that a gang holds.
func (v *View) Held(gang string) (Reservation, bool) {
	if h := v.held(gang); h != nil {
		return h.Reservation, true
	}
	return Reservation{}, false
}

// Reservations returns all that are held, in the order in which they were made.
func (v *View) Reservations() []Reservation {
	list := make([]Reservation, len(v.holds))
	for i, h := range v.holds {
		list[i] = h.Reservation
	}
	return list
}

func (v *View) held(gang string) *hold {
	for _, h := range v.holds {
		if h.Gang.ID == gang {
			return h
		}
	}
	return nil
}

// drop gives up some places, and reports whether there were any.
func (v *View) drop(which func(*hold) bool) bool {
	var dropped []*hold
	v.holds = slices.DeleteFunc(slices.Clone(v.holds), func(h *hold) bool {
		if !which(h) {
			return false
		}
		dropped = append(dropped, h)
		return true
	})
	for _, h := range dropped {
		v.changed()
		v.refreshHeld(h)
	}
	return len(dropped) > 0
}

func (v *View) refreshHeld(h *hold) {
	for name := range h.places {
		if n := v.nodes[name]; n != nil {
			v.refresh(n)
		}
	}
}

// yields tells that a gang need not leave the held place alone.
func (h *hold) yields(g *Gang) bool {
	switch {
	case h.Gang.ID == g.ID:
		return true
	case h.Evicts:
		return false
	case g.Priority > h.Gang.Priority:
		return true
	}
	return len(g.Running) > 0 && g.Minimum > 0 && g.Lacks() > 0
}

// remaining computes what is left of a node beside what is held on it.
func (v *View) remaining(n *node) *capacity {
	if !slices.ContainsFunc(v.holds, func(h *hold) bool { return h.on(n.Name) }) {
		return n.capacity()
	}
	return v.without(n, n.used, nil, v.holds).free
}

// pods returns the reserved gang's pods.
func (h *hold) pods() []*Pod { return slices.Concat(slices.Collect(maps.Values(h.come))...) }

func (h *hold) on(node string) bool {
	_, ok := h.places[node]
	return ok
}

// without returns a copy of a node that is used so much, once pods of the view have gone, and
// with holds. Where several holds wait for one pod, its room counts for the first of them only.
func (v *View) without(n *node, used usage, gone map[string]*Pod, holds []*hold) *node {
	c := *n
	c.used = used
	counted := map[string]bool{}
	for _, h := range holds {
		if !h.on(n.Name) {
			continue
		}
		var waits usage
		for _, id := range h.after[n.Name] {
			if p := v.pods[id]; p != nil && gone[id] == nil && p.Node == n.Name && !counted[id] {
				waits.charge(p, 1)
				counted[id] = true
			}
		}
		place := h.places[n.Name]
		c.used = c.used.clone()
		c.used.addBeyond(&place, &waits)
	}
	c.free = c.capacity()
	return &c
}

// addBeyond adds what a place takes beyond what others use that it waits for.
func (u *usage) addBeyond(place, waits *usage) {
	beyond := func(a, b int64) int64 { return max(a-max(b, 0), 0) }
	u.milliCPU += beyond(place.milliCPU, waits.milliCPU)
	u.memoryBytes += beyond(place.memoryBytes, waits.memoryBytes)
	u.pods += beyond(place.pods, waits.pods)
	for name, amount := range place.extended {
		u.extended = count(u.extended, name, beyond(amount, waits.extended[name]))
	}
	for port, amount := range place.ports {
		u.ports = count(u.ports, port, max(amount-waits.ports[port], 0))
	}
	u.anonymous += max(place.anonymous-waits.anonymous, 0)
	u.memoryOnly += max(place.memoryOnly-waits.memoryOnly, 0)
	u.withCore += max(place.withCore-waits.withCore, 0)
	for i, card := range place.cards {
		have := u.card(i)
		var w cardUsage
		if i < len(waits.cards) {
			w = waits.cards[i]
		}
		have.owners += max(card.owners-w.owners, 0)
		have.memoryGiB += beyond(card.memoryGiB, w.memoryGiB)
		have.corePercent += beyond(card.corePercent, w.corePercent)
	}
}

// seen returns the cluster as a gang sees it once pods have gone: with all places held
// that it must leave alone.
func (v *View) seen(g *Gang, gone []*Pod) cluster {
	kept, lifted := v.holdsFor(g)
	return v.after(gone, kept, lifted)
}

// holdsFor returns the held places that a gang must leave alone, and the others.
func (v *View) holdsFor(g *Gang) (kept, lifted []*hold) {
	for _, h := range v.holds {
		if h.yields(g) {
			lifted = append(lifted, h)
		} else {
			kept = append(kept, h)
		}
	}
	return kept, lifted
}

// after returns the cluster once pods have gone, with some of the view's holds and
// without the others. It costs only what they touch.
func (v *View) after(gone []*Pod, kept, lifted []*hold) cluster {
	c := v.cluster()
	away := make(map[string]*Pod, len(gone))
	touched := map[string][]*Pod{}
	for _, p := range gone {
		away[p.ID] = p
		touched[p.Node] = append(touched[p.Node], p)
	}
	for _, h := range lifted {
		for name := range h.places {
			touched[name] = append(touched[name], nil...)
		}
	}
	c.gone = away
	if len(touched) > 0 {
		c.nodes = slices.Clone(c.nodes)
		for i, n := range c.nodes {
			if here, ok := touched[n.Name]; ok {
				used := n.used.clone()
				for _, p := range here {
					used.charge(p, -1)
				}
				c.nodes[i] = v.without(n, used, away, kept)
			}
		}
	}
	if c.quota == nil {
		return c
	}
	if len(gone) > 0 {
		c.quota = v.settled(away, nil)
	}
	for _, h := range kept {
		c.later = append(c.later, v.settled(v.awaitedBy(away, h), []*hold{h}))
	}
	if len(kept) > 1 {
		c.later = append(c.later, v.settled(v.awaitedBy(away, kept...), kept))
	}
	return c
}

// awaitedBy returns pods that have gone with those that holds wait for.
func (v *View) awaitedBy(gone map[string]*Pod, holds ...*hold) map[string]*Pod {
	all := maps.Clone(gone)
	for _, h := range holds {
		for _, p := range v.awaited(h) {
			all[p.ID] = p
		}
	}
	return all
}

// settled returns the quota tree when pods have gone and held places are taken.
func (v *View) settled(gone map[string]*Pod, held []*hold) *quota.Tree {
	tree := v.quota.Clone()
	left := map[string]int{}
	for _, p := range gone {
		tree.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
		if p.Gang != "" {
			left[p.Gang]++
			if left[p.Gang] == v.gangs[p.Gang] {
				tree.RemoveJob(p.Leaf)
			}
		}
	}
	for _, h := range held {
		for _, p := range h.pods() {
			tree.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
		}
		if v.gangs[h.Gang.ID] == 0 {
			tree.AddJob(h.Gang.Leaf)
		}
	}
	return tree
}

// refuse explains why a gang has no place, and whose reservation keeps it from one.
func (v *View) refuse(p *planner) Result {
	verdict := p.explain()
	verdict.HeldBy = v.heldBy(&p.gang, func(c cluster) bool {
		_, ok := newPlanner(c, p.gang).place()
		return ok
	})
	return Result{Verdict: verdict}
}

// grown tells of a gang that runs, and for which more members wait than get a place, whose
// reservation keeps it from growing.
func (v *View) grown(p *planner, result Result) Result {
	if p.total > 0 && len(result.Placement.Assignments) == 0 {
		result.Verdict.HeldBy = v.heldBy(&p.gang, func(c cluster) bool {
			more, ok := newPlanner(c, p.gang).place()
			return ok && len(more.Placement.Assignments) > 0
		})
	}
	return result
}

// heldBy returns the gang whose reservation keeps another from a place that it would have
// in the cluster without, "" when that is not what keeps it.
func (v *View) heldBy(g *Gang, fits func(cluster) bool) string {
	kept, lifted := v.holdsFor(g)
	if len(kept) == 0 || !fits(v.after(nil, nil, v.holds)) {
		return ""
	}
	for i, h := range kept {
		others := slices.Delete(slices.Clone(kept), i, i+1)
		if fits(v.after(nil, others, append(slices.Clone(lifted), h))) {
			return h.Gang.ID
		}
	}
	return kept[0].Gang.ID
}
