package backfill

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// mostPlaces bounds the places on nodes that are waited for: each of them is looked for whenever something changes.
const mostPlaces = 4

// places are those on nodes that are waited for.
type places struct {
	count int
	// disputed are the positions of nodes that those may use for whom they are.
	disputed []int
}

// open reports whether a place for a gang may be waited for: it would fit if nothing else ran, and may use none of the disputed
// nodes.
func (p *places) open(v *snapshot.View, gang *packing.Packer) bool {
	switch {
	case p.count == 0:
		return true
	case p.count == mostPlaces, slices.ContainsFunc(p.disputed, func(at int) bool { return gang.MayUse(gang.Nodes[at]) }):
		return false
	}
	return !planner.Infeasible(v, gang.Gang)
}

// add counts a place that is waited for.
func (p *places) add(gang *packing.Packer) {
	p.count++
	for at, n := range gang.Nodes {
		if gang.MayUse(n) {
			p.disputed = append(p.disputed, at)
		}
	}
}
