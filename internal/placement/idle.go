package placement

// Idle measures the view by the workload: how many GPUs are idle, parts of shared GPUs
// included, and how many of these a request of the workload cannot use on average, because
// its node or its GPU has too little left (the fragments of the FGD paper). Without
// members nothing is known to be unusable.
func (w Workload) Idle(v *View) (gpus, unusable float64) {
	m := newDistribution(w)
	var idle, fragments int64
	for _, state := range v.states {
		idle += int64(state.nodes) * state.idle()
		fragments += int64(state.nodes) * m.unusable(state.capacity)
	}
	gpus = float64(idle) / gpuUnit
	var members int64
	for i := range m.groups {
		if g := &m.groups[i]; g.GPUs > 0 {
			members += g.members[len(g.members)-1]
		}
	}
	if members > 0 {
		unusable = float64(fragments) / float64(members*gpuUnit)
	}
	return gpus, unusable
}

// unusable is the idle part of a node's GPUs that requests of the workload cannot
// use, summed over its members, in thousandths of GPUs. Requests without GPUs
// are no measure of GPUs.
func (m *distribution) unusable(c *capacity) int64 {
	idle := c.idle()
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range m.groups {
		g := &m.groups[i]
		if g.GPUs == 0 {
			continue
		}
		fit := c.suits(&g.Demand)
		var before int64
		for j, milliCPU := range g.milliCPU {
			part := fit.small
			if milliCPU > c.milliCPU || fit.slots == 0 {
				part = idle
			}
			total += (g.members[j] - before) * part
			before = g.members[j]
		}
	}
	return total
}
