package ledger

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// evictedMeanwhile says whom gangs that wait can evict while the plan is carried out: what has
// left by then can be all that they lacked beside others of lower priority, or over their
// quota. A gang that the plan deletes waits until it is.
func (l *Ledger) evictedMeanwhile() []Finding {
	if l.live == nil || !l.decided() {
		return nil
	}
	if l.live.evicts == nil {
		findings := l.findMeanwhile()
		l.live.evicts = &findings
	}
	return *l.live.evicts
}

func (l *Ledger) findMeanwhile() []Finding {
	waiting := slices.DeleteFunc(slices.Clone(l.live.Waiting), func(w Waiting) bool { return !l.mayEvict(w) })
	if len(waiting) == 0 {
		return nil
	}
	found := map[string]map[string]placement.Victim{}
	for view, left := range l.meanwhile() {
		there := slices.DeleteFunc(slices.Clone(waiting), func(w Waiting) bool { return left[w.Job] })
		for id, victims := range l.evictedIn(view, there) {
			if found[id] == nil {
				found[id] = map[string]placement.Victim{}
			}
			for _, v := range victims {
				found[id][v.Gang] = v
			}
		}
	}
	var findings []Finding
	for _, id := range slices.Sorted(maps.Keys(found)) {
		var names []string
		for _, gang := range slices.Sorted(maps.Keys(found[id])) {
			names = append(names, l.live.victim(found[id][gang]))
		}
		findings = append(findings, Finding{
			Kind: Preempts, Jobs: []string{id}, Summary: "Running jobs may be evicted",
			Detail: fmt.Sprintf("Gang %s waits for room already. What this plan frees or adds can be all that it lacks beside others, "+
				"and the scheduler may then evict for it: %s.", id, join(names)),
		})
	}
	return findings
}

// mayEvict reports whether anybody goes on running from whom a gang that waits could take a place.
func (l *Ledger) mayEvict(w Waiting) bool {
	return !w.NeverPreempts && slices.ContainsFunc(l.live.Pods, func(p Pod) bool {
		return p.Preemptible && l.fates[p.Job] != leaves && (p.Priority < w.Priority || l.limits() != nil)
	})
}

// manyLeave is the number of jobs from which on not each of them is looked at as the first to leave.
const manyLeave = 8

// meanwhile yields the cluster as it can be while jobs leave, in one order and the opposite, and
// with each of a few as the first, and the jobs that have left by then. Both are changed once the
// next ones are asked for.
func (l *Ledger) meanwhile() iter.Seq2[*snapshot.View, map[string]bool] {
	var leaving []string
	for _, job := range slices.Sorted(maps.Keys(l.live.jobs)) {
		if l.fates[job] == leaves {
			leaving = append(leaving, job)
		}
	}
	orders := [][]string{leaving}
	if len(leaving) > 1 {
		backward := slices.Clone(leaving)
		slices.Reverse(backward)
		orders = append(orders, backward)
	}
	if len(leaving) <= manyLeave {
		for i := 1; i < len(leaving)-1; i++ {
			orders = append(orders, leaving[i:i+1])
		}
	}
	return func(yield func(*snapshot.View, map[string]bool) bool) {
		for _, order := range orders {
			view, left := l.offered(), map[string]bool{}
			for _, job := range leaving {
				l.live.put(view, job)
			}
			for _, job := range order {
				l.live.take(view, job)
				left[job] = true
				if !yield(view, left) {
					return
				}
			}
		}
		if len(leaving) == 0 {
			yield(l.offered(), nil)
		}
	}
}

// offered is the cluster without those that leave or may, with the pools as they are planned, also such as no job of this walk
// runs on.
func (l *Ledger) offered() *snapshot.View {
	view := l.live.hoped.Clone()
	for _, pool := range slices.Sorted(maps.Keys(l.offers)) {
		if !l.live.joined[pool] {
			l.live.offer(pool, l.offers[pool], []*snapshot.View{view})
		}
	}
	return view
}

// evictedIn is who goes in a state of the cluster for gangs that wait, by the gang. They come in
// their order, and each has what it finds when the next one is looked at.
func (l *Ledger) evictedIn(view *snapshot.View, waiting []Waiting) map[string][]placement.Victim {
	found := map[string][]placement.Victim{}
	var tried trial
	for _, w := range waiting {
		g := l.charged(w.Gang)
		if placed := planner.Place(view, g); placed != nil {
			tried = append(tried, view.Apply(g, *placed))
			continue
		}
		result := preemption.Plan(view, g)
		if result.Reservation == nil {
			continue
		}
		view.AddReservation(*result.Reservation)
		tried = append(tried, func() { view.Release(g.ID) })
		victims := slices.DeleteFunc(result.Victims, func(v placement.Victim) bool {
			return v.Leaving || l.jobs[v.Gang] != nil || l.fates[v.Gang] == leaves
		})
		if len(victims) > 0 {
			found[w.Name] = victims
		}
	}
	tried.undo()
	return found
}
