package preemption

import (
	"maps"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Fewest returns gangs whose end is enough for another to fit, none of which can be left
// out: the shortest beginning of the candidates that is enough, less those that it does
// without, the last ones first.
func Fewest(v *snapshot.View, g placement.Gang, candidates []*RunningGang) ([]*RunningGang, bool) {
	d := newDryRun(v, g)
	if !d.fitsWithout(candidates) {
		return nil, false
	}
	evicted := len(candidates)
	first := func(n int) bool {
		for ; evicted < n; evicted++ {
			d.evict(candidates[evicted])
		}
		for ; evicted > n; evicted-- {
			d.restore(candidates[evicted-1])
		}
		return d.fits()
	}
	n := sort.Search(len(candidates), first)
	first(n)
	chosen := slices.Clone(candidates[:n])
	for i := n - 2; i >= 0; i-- {
		d.restore(candidates[i])
		if d.fits() {
			chosen = slices.Delete(chosen, i, i+1)
		} else {
			d.evict(candidates[i])
		}
	}
	return joined(chosen, candidates), true
}

// victimsFor bounds the places that are tried for a nomination.
const victimsFor = 8

// fewestByNodes is [Fewest] for when only some of the victims may go, and those that would go
// first leave no room where it is needed: it looks for a place on a cluster that all have left,
// and takes the victims from the nodes of that place alone; when too few of those may go, it
// looks on other nodes.
func fewestByNodes(v *snapshot.View, empty *dryRun, victims []*RunningGang, allowed func([]*RunningGang) []*RunningGang) ([]*RunningGang, bool) {
	elsewhere := empty.gang
	elsewhere.ExcludeNodes = map[string]bool{}
	maps.Copy(elsewhere.ExcludeNodes, empty.gang.ExcludeNodes)
	for range victimsFor {
		place := empty.place(elsewhere)
		if place == nil {
			break
		}
		nodes := map[string]bool{}
		for _, a := range place.Assignments {
			nodes[a.Node] = true
		}
		if after, ok := Fewest(v, empty.gang, allowed(near(victims, nodes))); ok {
			return after, true
		}
		maps.Copy(elsewhere.ExcludeNodes, nodes)
	}
	return nil, false
}
