package snapshot

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/fragmentation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Cluster is what a gang is placed on: a view, or a view with changes that cost
// only what they touch.
type Cluster struct {
	// Nodes are in the planner's order.
	Nodes []*capacity.Node
	// Quota is the tree that limits the gang, nil for none. Later is what usage changes by when
	// one of the held reservations is in its place, or at last all of them, which limits the
	// gang too.
	Quota *quota.Tree
	Later []*quota.Tree
	// Jobs counts the pods of each gang in each leaf.
	Jobs     map[Job]int
	Workload *fragmentation.Scorer
	// Pods are those of the view, of which some have gone.
	Pods, Gone map[string]*placement.Pod
	// Linked means that there are nodes in NVLink domains.
	Linked bool
	// Admissions are those of the view.
	Admissions *admission.Memory
}

// Cluster returns the cluster as it is, with all reservations.
func (v *View) Cluster() Cluster {
	if v.admissions == nil {
		v.admissions = &admission.Memory{Nodes: len(v.order)}
		for i, n := range v.order {
			n.Number = int32(i + 1)
		}
	}
	if v.uncounted && v.workload != nil {
		v.workload.SetPrices(v.order)
		v.uncounted = false
	}
	return Cluster{Nodes: v.order, Pods: v.pods, Quota: v.quota, Jobs: v.jobs, Workload: v.workload, Linked: v.linked > 0, Admissions: v.admissions}
}

// LastQuota is the quota tree when held reservations are in their places, nil for none.
func (c Cluster) LastQuota() *quota.Tree {
	if n := len(c.Later); n > 0 {
		return c.Quota.With(c.Later[n-1])
	}
	return c.Quota
}

// Exceeded returns the limit that a gang exceeds when it is charged so much more.
func (c Cluster) Exceeded(g *placement.Gang, charge quota.Resources) *quota.Exceeded {
	if g.Leaf == "" || c.Quota == nil {
		return nil
	}
	if e := c.exceededWith(nil, g, charge); e != nil {
		return e
	}
	for _, later := range c.Later {
		if e := c.exceededWith(later, g, charge); e != nil {
			return e
		}
	}
	return nil
}

func (c Cluster) exceededWith(later *quota.Tree, g *placement.Gang, charge quota.Resources) *quota.Exceeded {
	if c.Jobs[Job{g.ID, g.Leaf}] == 0 && !g.OnItsOwn() { // a pod on its own is no job
		if e := c.Quota.FitsJobWith(later, g.Leaf); e != nil {
			return e
		}
	}
	return c.Quota.FitsWith(later, g.Leaf, charge, g.Preemptible)
}

// LeafMissing reports whether a gang's leaf is not in the tree.
func (c Cluster) LeafMissing(g *placement.Gang) bool {
	return c.Quota != nil && g.Leaf != "" && !c.Quota.HasLeaf(g.Leaf)
}
