package fragmentation

import "github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"

// Idle measures nodes by the distribution, as [snapshot.View.Idle] says.
func (m *Distribution) Idle(nodes []*capacity.Node) (gpus, unusable float64) {
	type kind struct {
		state    *capacity.Capacity
		eligible uint64
	}
	alike := map[kind]int64{}
	for _, n := range nodes {
		alike[kind{n.Free, m.Eligible(&n.Node)}]++
	}
	var idle, fragments int64
	for k, n := range alike {
		idle += n * idleOf(k.state)
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
func (m *Distribution) unusable(c *capacity.Capacity, eligible uint64) int64 {
	idle := idleOf(c)
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
