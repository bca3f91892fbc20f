package snapshot

import (
	"reflect"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// elastic is a gang that runs without some of its members, too.
type elastic struct {
	minimum int
	// members are the IDs of all its pods that are members, in the gang's order.
	members []string
	parts   []Part
}

// Part is what a subgroup of an elastic gang needs: so many of its members, by the IDs of their
// pods.
type Part struct {
	Minimum int
	Pods    []string
}

// SetMinimum notes that a gang needs only so many of its members; pods are the IDs of all of
// them, in the gang's order. When others take its places, the members beyond the minimum, the
// last of those that run, go before it goes as a whole, but none that one of its parts needs.
// A gang for which this is not told needs all of its pods, as does one with a minimum of 0.
func (v *View) SetMinimum(gang string, minimum int, pods []string, parts ...Part) {
	before, known := v.elastic[gang]
	if minimum == 0 {
		if known {
			v.changed()
			delete(v.elastic, gang)
		}
		return
	}
	after := elastic{minimum: minimum, members: pods, parts: parts}
	if known && reflect.DeepEqual(before, after) {
		return
	}
	v.changed()
	if v.elastic == nil {
		v.elastic = map[string]elastic{}
	}
	v.elastic[gang] = after
}

// RunsOn reports whether an elastic gang has the members that it needs without those that go.
func (v *View) RunsOn(gang string, goes func(*placement.Pod) bool) bool {
	e, ok := v.elastic[gang]
	stay := func(pods []string) (n int) {
		for _, id := range pods {
			if pod := v.pods[id]; pod != nil && !goes(pod) {
				n++
			}
		}
		return n
	}
	short := func(part Part) bool { return stay(part.Pods) < part.Minimum }
	return ok && stay(e.members) >= e.minimum && !slices.ContainsFunc(e.parts, short)
}

// Surplus returns those of a gang's pods, sorted by their IDs, that it does not need while they run.
func (v *View) Surplus(gang string, pods []string) []*placement.Pod {
	e, ok := v.elastic[gang]
	if !ok {
		return nil
	}
	running := func(members []string) (list []string) {
		for _, id := range members {
			if _, runs := slices.BinarySearch(pods, id); runs {
				list = append(list, id)
			}
		}
		return list
	}
	needed := map[string]bool{}
	for _, part := range e.parts {
		pods := running(part.Pods)
		for _, id := range pods[:min(part.Minimum, len(pods))] {
			needed[id] = true
		}
	}
	members := running(e.members)
	for _, id := range members {
		if len(needed) >= e.minimum {
			break
		}
		needed[id] = true
	}
	var surplus []*placement.Pod
	for _, id := range members {
		if !needed[id] {
			surplus = append(surplus, v.pods[id])
		}
	}
	return surplus
}
