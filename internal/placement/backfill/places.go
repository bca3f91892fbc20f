package backfill

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
)

// mostPlaces bounds the places on nodes that are waited for: each of them is looked for whenever something changes.
const mostPlaces = 4

// places are those on nodes that are waited for.
type places struct {
	count int
	// disputed are the positions of nodes that those may use for whom they are.
	disputed []int
}

// open reports whether a place for a gang may be waited for: it may use none of the disputed nodes.
func (p *places) open(gang *packing.Packer) bool {
	return p.count < mostPlaces && !slices.ContainsFunc(p.disputed, func(at int) bool { return gang.MayUse(gang.Nodes[at]) })
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
