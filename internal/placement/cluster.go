package placement

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
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

// pods returns the pods that a placement of the gang makes.
func (g *Gang) pods(assignments []Assignment) []*Pod {
	roles := map[string]*Role{}
	for i := range g.Roles {
		for _, member := range g.Roles[i].Members {
			roles[member] = &g.Roles[i]
		}
	}
	var pods []*Pod
	for _, a := range assignments {
		if role := roles[a.Member]; role != nil {
			pods = append(pods, &Pod{
				ID: g.ID + "/" + a.Member, Node: a.Node, Request: role.Request, Own: a.Own, Shares: a.Shares,
				Namespace: namespaceOf(g.ID), Labels: role.Labels,
				Gang: g.ID, Leaf: g.Leaf, Priority: g.Priority, Preemptible: g.Preemptible,
			})
		}
	}
	return pods
}

// reserved returns the GPUs of the pod, whole or in part.
func (p *Pod) reserved() gpu.Set {
	s := p.Own
	for _, share := range p.Shares {
		s |= gpu.SetOf(share.GPU)
	}
	return s
}
