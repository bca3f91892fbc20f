package placement

import (
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// cluster is what a gang is placed on: a view, or a view with changes that cost
// only what they touch.
type cluster struct {
	// nodes are in the planner's order.
	nodes []*node
	// quota is the tree that limits the gang, nil for none. later is what usage changes by when
	// one of the held reservations is in its place, or at last all of them, which limits the
	// gang too.
	quota *quota.Tree
	later []*quota.Tree
	// jobs counts the pods of each gang in each leaf.
	jobs     map[job]int
	workload *fragmentation
	// pods are those of the view, of which some have gone.
	pods, gone map[string]*Pod
	// linked means that there are nodes in NVLink domains.
	linked bool
	// admissions are those of the view.
	admissions *admissions
}

// cluster returns the cluster as it is, with all reservations.
func (v *View) cluster() cluster {
	if v.admissions == nil {
		v.admissions = &admissions{nodes: len(v.order)}
		for i, n := range v.order {
			n.number = int32(i + 1)
		}
	}
	if v.uncounted && v.workload != nil {
		v.workload.count(v.order)
		v.uncounted = false
	}
	return cluster{nodes: v.order, pods: v.pods, quota: v.quota, jobs: v.jobs, workload: v.workload, linked: v.linked > 0, admissions: v.admissions}
}

// last is the quota tree when held reservations are in their places, nil for none.
func (c cluster) last() *quota.Tree {
	if n := len(c.later); n > 0 {
		return c.quota.With(c.later[n-1])
	}
	return c.quota
}

// exceeded returns the limit that a gang exceeds when it is charged so much more.
func (c cluster) exceeded(g *Gang, charge quota.Resources) *quota.Exceeded {
	if g.Leaf == "" || c.quota == nil {
		return nil
	}
	if e := c.exceededWith(nil, g, charge); e != nil {
		return e
	}
	for _, later := range c.later {
		if e := c.exceededWith(later, g, charge); e != nil {
			return e
		}
	}
	return nil
}

func (c cluster) exceededWith(later *quota.Tree, g *Gang, charge quota.Resources) *quota.Exceeded {
	if c.jobs[job{g.ID, g.Leaf}] == 0 && !strings.Contains(g.ID, OfPod) { // a pod on its own is no job
		if e := c.quota.FitsJobWith(later, g.Leaf); e != nil {
			return e
		}
	}
	return c.quota.FitsWith(later, g.Leaf, charge, g.Preemptible)
}

// leafMissing reports whether a gang's leaf is not in the tree.
func (c cluster) leafMissing(g *Gang) bool {
	return c.quota != nil && g.Leaf != "" && !c.quota.HasLeaf(g.Leaf)
}
