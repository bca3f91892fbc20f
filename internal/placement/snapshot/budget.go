package snapshot

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// SetBudget tells how many of the pods that name a disruption budget may be evicted
// now. A budget that was never set allows none.
func (v *View) SetBudget(name string, allowed int) {
	v.changed()
	if v.budgets == nil {
		v.budgets = map[string]int{}
	}
	v.budgets[name] = allowed
}

// RemoveBudget forgets a disruption budget.
func (v *View) RemoveBudget(name string) {
	v.changed()
	delete(v.budgets, name)
}

// Evictions counts pods that are evicted by the disruption budgets that cover them.
type Evictions struct{ allowed, used map[string]int }

// CountEvictions begins with the pods that reservations evict already, and that a budget may not
// have counted yet. A gang that is planned gives up the reservation that it holds itself: of those pods it counts
// who is going already.
func (v *View) CountEvictions(gang string) *Evictions {
	e := &Evictions{allowed: v.budgets, used: map[string]int{}}
	for _, h := range v.reservations {
		if !h.Evicts {
			continue
		}
		pods := v.Awaited(h)
		if h.Gang.ID == gang {
			pods = slices.DeleteFunc(pods, func(p *placement.Pod) bool { return !p.Leaving })
		}
		e.count(pods, 1)
	}
	return e
}

// Allow counts pods, unless a budget does not let them go together with those before them.
func (e *Evictions) Allow(pods []*placement.Pod) bool {
	within := e.count(pods, 1)
	if !within {
		e.count(pods, -1)
	}
	return within
}

// Allows reports whether Allow would count the pods.
func (e *Evictions) Allows(pods []*placement.Pod) bool {
	within := e.count(pods, 1)
	e.count(pods, -1)
	return within
}

func (e *Evictions) count(pods []*placement.Pod, by int) (within bool) {
	within = true
	for _, p := range pods {
		for _, budget := range p.Budgets {
			e.used[budget] += by
			within = within && e.used[budget] <= e.allowed[budget]
		}
	}
	return within
}
