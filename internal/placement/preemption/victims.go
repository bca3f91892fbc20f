package preemption

import (
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

// triesFor bounds the sets of victims that are looked at for a nomination.
const triesFor = 32

// search looks for victims when not all may go together, and those that would go first leave no room where it is
// needed: it looks for a place on a cluster that all have left, and takes the victims from the nodes of that place
// alone. When too few of those may go, it looks again with some that stay where they are: first with all that may not
// go beside the others, then with each by itself.
func (r *rules) search(
	victims []*RunningGang, place func(stay []*RunningGang) *placement.Placement, fewest func([]*RunningGang) ([]*RunningGang, bool),
) ([]*RunningGang, bool) {
	var tried [][]*RunningGang
	for open := [][]*RunningGang{nil}; len(open) > 0 && len(tried) < triesFor; {
		stay, going := divide(victims, open[0])
		open = open[1:]
		if slices.ContainsFunc(tried, func(o []*RunningGang) bool { return slices.Equal(o, stay) }) {
			continue
		}
		tried = append(tried, stay)
		found := place(stay)
		if found == nil {
			continue
		}
		list := near(going, found)
		together := r.together(list)
		after, ok := fewest(together)
		if !ok && len(together) == len(list) {
			_, others := divide(going, list)
			list = append(list, others...) // on other nodes they leave quota
			together = r.together(list)
			after, ok = fewest(together)
		}
		if ok {
			return after, true
		}
		if _, refused := divide(list, together); len(refused) > 0 {
			open = slices.Insert(open, 0, append(refused, stay...))
		}
		for i := 0; i < len(list) && len(open) < triesFor; i++ {
			open = append(open, append([]*RunningGang{list[i]}, stay...))
		}
	}
	return nil, false
}

// divide divides a list into those that are among some, and the others.
func divide(list, some []*RunningGang) (among, others []*RunningGang) {
	is := map[*RunningGang]bool{}
	for _, r := range some {
		is[r] = true
	}
	for _, r := range list {
		if is[r] {
			among = append(among, r)
		} else {
			others = append(others, r)
		}
	}
	return among, others
}
