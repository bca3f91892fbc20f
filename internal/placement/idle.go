package placement

// Idle measures the view by the workload: how many GPUs are idle, parts of shared GPUs
// included, and how many of these a request of the workload cannot use on average, because
// its node or its GPU has too little left (the fragments of the FGD paper). Without
// members nothing is known to be unusable.
func (w Workload) Idle(v *View) (gpus, unusable float64) {
	m := newDistribution(w)
	type kind struct {
		state    *capacity
		eligible uint64
	}
	nodes := map[kind]int64{}
	for _, n := range v.order {
		nodes[kind{n.free, m.eligible(&n.Node)}]++
	}
	var idle, fragments int64
	for k, n := range nodes {
		idle += n * k.state.idle()
		fragments += n * m.unusable(k.state, k.eligible)
	}
	gpus = float64(idle) / gpuUnit
	var members int64
	for i := range m.groups {
		for _, a := range m.groups[i].amounts {
			members += a.members
		}
	}
	if members > 0 {
		unusable = float64(fragments) / float64(members*gpuUnit)
	}
	return gpus, unusable
}

// unusable is the idle part of the GPUs of a node, which meets some rules about nodes, that
// requests of the workload cannot use, summed over its members, in thousandths of GPUs.
func (m *distribution) unusable(c *capacity, eligible uint64) int64 {
	idle := c.idle()
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range m.groups {
		g := &m.groups[i]
		fit := m.fit(g, c, eligible)
		for _, a := range g.amounts {
			part := fit.small
			if !a.within(c) || fit.slots == 0 {
				part = idle
			}
			total += a.members * part
		}
	}
	return total
}
