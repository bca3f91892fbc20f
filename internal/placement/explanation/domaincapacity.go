package explanation

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// DomainCapacity is how much of a gang one part of the cluster could take by itself.
type DomainCapacity struct {
	// Where names the part: its network domain "rack=r7", or its pool "pool v100".
	Where string
	Nodes int
	// GPUs are the whole GPUs that are healthy, not used by anybody, and not reserved from
	// the gang; GiB is the same of the memory of GPUs that are given away in parts.
	GPUs int
	GiB  int64
	// Fit is how many of the members without a place fit there at once, whatever the
	// quota tree says.
	Fit int
	// Reasons are the constraints that stop the next member there, the most common
	// first; none when all members fit.
	Reasons []placement.Reason
}

// DomainCapacities says for each part of the cluster how many of the gang's members fit there,
// and what stops the next one: for each network domain when the gang has any, at the
// narrowest level, else for each pool. They come in the planner's order of nodes.
func DomainCapacities(v *snapshot.View, g placement.Gang) []DomainCapacity {
	seen := v.Seen(&g, nil)
	whole := packing.NewPacker(seen, g)
	if whole.Invalid() != nil || whole.Total == 0 {
		return nil
	}
	var capacities []DomainCapacity
	for _, part := range parts(whole) {
		c := seen
		c.Nodes, c.Quota, c.Later = part.nodes, nil, nil
		p := packing.NewPacker(c, g)
		chosen := p.Choose(p.Wanted(p.Total))
		room := DomainCapacity{Where: part.name, Nodes: len(part.nodes), Fit: chosen.Placed}
		for _, n := range part.nodes {
			room.GPUs += n.Free.Whole
			for _, share := range n.Free.Shares {
				room.GiB += share.MemoryGiB
			}
		}
		if chosen.Placed < p.Total {
			room.Reasons = nodeReasons(p, nextMember(p, chosen), chosen)
		}
		capacities = append(capacities, room)
	}
	return capacities
}

// part is a group of nodes with a name.
type part struct {
	name  string
	nodes []*capacity.Node
}

// parts divides the nodes by the gang's domains, else by pool, in the order of their
// first nodes. Nodes that lack a label of a domain are in no part.
func parts(p *packing.Packer) []part {
	required, preferred := p.DomainLabels()
	labels := slices.Concat(required, preferred)
	var list []part
	index := map[string]int{}
	for _, n := range p.Nodes {
		value, ok := packing.DomainOf(n, labels)
		if !ok || p.Gang.HiddenNodes[n.Name] {
			continue
		}
		name := (&packing.Domain{Labels: labels, Value: value}).String()
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
