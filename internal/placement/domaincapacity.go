package placement

import "slices"

// DomainCapacity is how much of a gang one part of the cluster could take by itself.
type DomainCapacity struct {
	// Where names the part: its network domain "rack=r7", or its pool "pool v100".
	Where string
	Nodes int
	// GPUs are the whole GPUs that are healthy and not used by anybody; GiB is the
	// free memory of GPUs that are given away in parts.
	GPUs int
	GiB  int64
	// Fit is how many of the members without a place fit there at once, whatever the
	// quota tree says.
	Fit int
	// Reasons are the constraints that stop the next member there, the most common
	// first; none when all members fit.
	Reasons []Reason
}

// DomainCapacities says for each part of the cluster how many of the gang's members fit there,
// and what stops the next one: for each network domain when the gang has any, at the
// narrowest level, else for each pool. They come in the planner's order of nodes.
func (v *View) DomainCapacities(g Gang) []DomainCapacity {
	whole := newPlanner(v.cluster(), g)
	if whole.invalid() != nil || whole.total == 0 {
		return nil
	}
	var capacities []DomainCapacity
	for _, part := range whole.parts() {
		c := v.cluster()
		c.nodes, c.quota = part.nodes, nil
		p := newPlanner(c, g)
		chosen := p.choose(p.wanted(p.total))
		room := DomainCapacity{Where: part.name, Nodes: len(part.nodes), Fit: chosen.placed}
		for _, n := range part.nodes {
			room.GPUs += n.free.whole
			for _, share := range n.free.shares {
				room.GiB += share.memoryGiB
			}
		}
		if chosen.placed < p.total {
			room.Reasons = p.nodeReasons(p.next(chosen), chosen)
		}
		capacities = append(capacities, room)
	}
	return capacities
}

// part is a group of nodes with a name.
type part struct {
	name  string
	nodes []*node
}

// parts divides the nodes by the gang's domains, else by pool, in the order of their
// first nodes. Nodes that lack a label of a domain are in no part.
func (p *planner) parts() []part {
	required, preferred := p.domainLabels()
	labels := slices.Concat(required, preferred)
	var list []part
	index := map[string]int{}
	for _, n := range p.nodes {
		value, ok := domainOf(n, labels)
		if !ok {
			continue
		}
		name := (&domain{labels: labels, value: value}).String()
		if len(labels) == 0 {
			name = "no pool"
			if n.Pool != "" {
				name = "pool " + n.Pool
			}
		}
		i, known := index[name]
		if !known {
			i = len(list)
			index[name] = i
			list = append(list, part{name: name})
		}
		list[i].nodes = append(list[i].nodes, n)
	}
	return list
}
