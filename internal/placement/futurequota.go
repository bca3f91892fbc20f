package placement

import "github.com/gpuplan/terraform-provider-gpuplan/internal/quota"

// quotaAfter returns the quota tree when pods have gone.
func (v *View) quotaAfter(gone map[string]*Pod) *quota.Tree {
	tree, left := v.quota.Clone(), map[job]int{}
	for _, p := range gone {
		v.takeOff(tree, p, left)
	}
	return tree
}

// takeOff takes off what a pod is charged that goes, and its gang's job with the last pod;
// left counts the pods of each job that have gone.
func (v *View) takeOff(tree *quota.Tree, p *Pod, left map[job]int) {
	tree.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
	if p.Gang == "" {
		return
	}
	left[p.job()]++
	if left[p.job()] == v.jobs[p.job()] {
		tree.RemoveJob(p.Leaf)
	}
}

// laterUsage returns what the usage of the quota tree changes by, beside pods that have gone, when
// reservations are in their places: it may be negative.
func (v *View) laterUsage(gone map[string]*Pod, reservations ...*reserved) *quota.Tree {
	more, left := v.quota.Unused(), map[job]int{}
	for _, p := range gone {
		left[p.job()]++
	}
	for id, p := range v.awaitedBy(reservations...) {
		if gone[id] == nil {
			v.takeOff(more, p, left)
		}
	}
	for _, h := range reservations {
		for _, p := range h.pods() {
			more.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
		}
		if v.jobs[job{h.Gang.ID, h.Gang.Leaf}] == 0 {
			more.AddJob(h.Gang.Leaf)
		}
	}
	return more
}
