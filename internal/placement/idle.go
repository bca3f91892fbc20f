package placement

// Idle measures the view by the mix: how many GPUs are idle, parts of shared GPUs
// included, and how many of these a request of the mix cannot use on average, because
// its node or its GPU has too little left (the fragments of the FGD paper). Without
// arrivals nothing is known to be unusable.
func (m *Workload) Idle(v *View) (gpus, unusable float64) {
	var idle, fragments int64
	for _, state := range v.states {
		idle += int64(state.nodes) * state.idle()
		fragments += int64(state.nodes) * m.unusable(state.capacity)
	}
	gpus = float64(idle) / gpuUnit
	var arrivals int64
	for i := range m.groups {
		if g := &m.groups[i]; g.gpus > 0 {
			arrivals += g.arrivals[len(g.arrivals)-1]
		}
	}
	if arrivals > 0 {
		unusable = float64(fragments) / float64(arrivals*gpuUnit)
	}
	return gpus, unusable
}

// unusable is the idle part of a node's GPUs that requests of the mix cannot use,
// summed over the weighed arrivals, in thousandths of GPUs. Requests without GPUs
// are no measure of GPUs.
func (m *Workload) unusable(c *capacity) int64 {
	idle := c.idle()
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range m.groups {
		g := &m.groups[i]
		if g.gpus == 0 {
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
