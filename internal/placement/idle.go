package placement

// Idle measures the view by the mix: how many cards are idle, parts of shared cards
// included, and how many of these a request of the mix cannot use on average, because
// its node or its card has too little left (the fragments of the FGD paper). Without
// arrivals nothing is known to be unusable.
func (m *Mix) Idle(v *View) (cards, unusable float64) {
	var idle, fragments int64
	for _, state := range v.states {
		idle += int64(state.nodes) * state.idle()
		fragments += int64(state.nodes) * m.unusable(state.capacity)
	}
	cards = float64(idle) / cardUnit
	var arrivals int64
	for i := range m.groups {
		if g := &m.groups[i]; g.cards > 0 {
			arrivals += g.arrivals[len(g.arrivals)-1]
		}
	}
	if arrivals > 0 {
		unusable = float64(fragments) / float64(arrivals*cardUnit)
	}
	return cards, unusable
}

// unusable is the idle part of a node's cards that requests of the mix cannot use,
// summed over the weighed arrivals, in thousandths of cards. Requests without cards
// are no measure of cards.
func (m *Mix) unusable(c *capacity) int64 {
	idle := c.idle()
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range m.groups {
		g := &m.groups[i]
		if g.cards == 0 {
			continue
		}
		fit := c.suits(&g.demand)
		var before int64
		for j, milliCPU := range g.milliCPU {
			part := fit.small
			if milliCPU > c.milliCPU || fit.slots == 0 {
				part = idle
			}
			total += (g.arrivals[j] - before) * part
			before = g.arrivals[j]
		}
	}
	return total
}
