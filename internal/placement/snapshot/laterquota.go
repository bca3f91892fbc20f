package snapshot

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// quotaAfter returns the quota tree when pods have gone.
func (v *View) quotaAfter(gone map[string]*placement.Pod) *quota.Tree {
	tree, left := v.quota.Clone(), map[Job]int{}
	for _, p := range gone {
		v.takeOff(tree, p, left)
	}
	return tree
}

// takeOff takes off what a pod is charged that goes, and its gang's job with the last pod;
// left counts the pods of each job that have gone.
func (v *View) takeOff(tree *quota.Tree, p *placement.Pod, left map[Job]int) {
	tree.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
	if p.Gang == "" {
		return
	}
	left[JobOf(p)]++
	if left[JobOf(p)] == v.jobs[JobOf(p)] {
		tree.RemoveJob(p.Leaf)
	}
}

// laterUsage returns what the usage of the quota tree changes by, beside pods that have gone, when
// reservations are in their places: it may be negative.
func (v *View) laterUsage(gone map[string]*placement.Pod, reservations ...*Reserved) *quota.Tree {
	more, left := v.quota.Unused(), map[Job]int{}
	for _, p := range gone {
		left[JobOf(p)]++
	}
	for id, p := range v.AwaitedBy(reservations...) {
		if gone[id] == nil {
			v.takeOff(more, p, left)
		}
	}
	for _, h := range reservations {
		more.Add(h.Gang.Leaf, h.Charge(&h.Gang), h.Gang.Preemptible)
		if v.jobs[Job{h.Gang.ID, h.Gang.Leaf}] == 0 {
			more.AddJob(h.Gang.Leaf)
		}
	}
	return more
}

// laterUsages returns [View.laterUsage] with each of some reservations in its place, and with all of
// them at last.
func (v *View) laterUsages(gone map[string]*placement.Pod, reservations []*Reserved) []*quota.Tree {
	var later []*quota.Tree
	for _, h := range reservations {
		later = append(later, v.laterUsage(gone, h))
	}
	if len(reservations) > 1 {
		later = append(later, v.laterUsage(gone, reservations...))
	}
	return later
}

// laterMemory remembers of [View.laterUsages] what some reservations change of each amount, until pods come or go
// that these wait for. Others come and go all the time.
type laterMemory struct {
	reservations []*Reserved
	usages       []*quota.Tree
}

// changed forgets what is not true any more when a pod comes or goes.
func (m *laterMemory) changed(pod string) {
	if slices.ContainsFunc(m.reservations, func(h *Reserved) bool { return h.waits[pod] }) {
		*m = laterMemory{}
	}
}

// laterBeside is laterUsages as things are, but for jobs. It must not be changed.
func (v *View) laterBeside(reservations []*Reserved) []*quota.Tree {
	if !slices.Equal(v.later.reservations, reservations) {
		v.later = laterMemory{reservations, v.laterUsages(nil, reservations)}
	}
	return v.later.usages
}
