// Package clusterchoice finds the place that a job has in each of several clusters, and chooses among them.
package clusterchoice

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Offer is the place that one cluster has for a job: one placement for each of its gangs.
type Offer struct {
	Cluster    string
	Placements []placement.Placement
	// Term is the position of the affinity of the job's policy that selects the cluster; the first goes before the others.
	Term int
	// Weight is how much the job's policy prefers the cluster; the higher, the more.
	Weight int64
	// LeftGPUs are the GPUs that stay free on the nodes of the placements.
	LeftGPUs int
	// AsPlanned means that the gangs have a planned place, and that this is it. Promised means that the plan was for this cluster.
	AsPlanned, Promised bool
}

// Best is the position of the best offer, -1 of none: the place that a plan has promised, then the one that the policy prefers, by its affinities and then by its weights, then the one with the fastest slowest ring, then on
// the fewest nodes, then with the fewest GPUs left free beside it, so that what is free elsewhere stays together, then the first by name.
func Best(offers []Offer) int {
	best := -1
	for i := range offers {
		if best < 0 || compare(offers[i], offers[best]) < 0 {
			best = i
		}
	}
	return best
}

func compare(a, b Offer) int {
	return cmp.Or(
		-cmp.Compare(a.kept(), b.kept()),
		cmp.Compare(a.Term, b.Term),
		cmp.Compare(b.Weight, a.Weight),
		cmp.Compare(b.slowestGBps(), a.slowestGBps()),
		cmp.Compare(a.nodes(), b.nodes()),
		cmp.Compare(a.LeftGPUs, b.LeftGPUs),
		natural.Compare(a.Cluster, b.Cluster),
	)
}

// kept is 1 for the place that a plan has promised, else 0.
func (o Offer) kept() int {
	if o.AsPlanned && o.Promised {
		return 1
	}
	return 0
}

// slowestGBps is the bandwidth of the slowest ring of GPUs on one node, in GB/s and one direction; 0 where no node has two of them.
func (o Offer) slowestGBps() (slowest float64) {
	for _, p := range o.Placements {
		for _, a := range p.Assignments {
			if a.Ring.GBps > 0 && (slowest == 0 || a.Ring.GBps < slowest) {
				slowest = a.Ring.GBps
			}
		}
	}
	return slowest
}

func (o Offer) nodes() int {
	var names []string
	for _, p := range o.Placements {
		for _, a := range p.Assignments {
			names = append(names, a.Node)
		}
	}
	slices.Sort(names)
	return len(slices.Compact(names))
}
