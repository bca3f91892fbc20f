package placement

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// cluster is what a gang is placed on: a view, or a view with changes that cost
// only what they touch.
type cluster struct {
	// nodes are in the planner's order.
	nodes []*node
	// quota is the tree that limits the gang, later a second one that limits it too; nil for none.
	quota, later *quota.Tree
	// gangs counts the pods of each gang.
	gangs map[string]int
	mix   *Mix
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
	return cluster{nodes: v.order, quota: v.quota, gangs: v.gangs, mix: v.mix, admissions: v.admissions}
}

// changed returns the cluster after pods have gone and others have come. Gangs of
// pods that go are gone as a whole.
func (v *View) changed(gone []*Pod, come []*Pod) cluster {
	c := v.cluster()
	c.nodes = slices.Clone(v.order)
	if c.quota != nil {
		c.quota = c.quota.Clone()
	}
	touched := map[string]*node{}
	jobs := map[string]bool{}
	charge := func(p *Pod, sign int) {
		if n := v.nodes[p.Node]; n != nil && n.present {
			copied := touched[p.Node]
			if copied == nil {
				copied = &node{Node: n.Node, present: true, used: n.used.clone()}
				touched[p.Node] = copied
			}
			copied.used.charge(p, sign)
		}
		if c.quota == nil {
			return
		}
		job := p.Gang != "" && !jobs[p.Gang]
		jobs[p.Gang] = true
		switch {
		case sign > 0:
			c.quota.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
			if job && v.gangs[p.Gang] == 0 {
				c.quota.AddJob(p.Leaf)
			}
		default:
			c.quota.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
			if job {
				c.quota.RemoveJob(p.Leaf)
			}
		}
	}
	for _, p := range gone {
		charge(p, -1)
	}
	for _, p := range come {
		charge(p, 1)
	}
	for i, n := range c.nodes {
		if copied := touched[n.Name]; copied != nil {
			copied.free = copied.capacity()
			c.nodes[i] = copied
		}
	}
	return c
}

// both returns the cluster that has only what is free in both: a placement in it
// holds in either.
func (c cluster) both(o cluster) cluster {
	c.later = o.quota
	c.nodes = slices.Clone(c.nodes)
	for i, n := range c.nodes {
		if other := o.nodes[i]; other.free != n.free {
			copied := *n
			copied.free = n.free.both(other.free)
			c.nodes[i] = &copied
		}
	}
	return c
}

// both is what is left in either of two states of one node.
func (c *capacity) both(o *capacity) *capacity {
	d := c.clone()
	d.milliCPU = min(c.milliCPU, o.milliCPU)
	d.memoryBytes = min(c.memoryBytes, o.memoryBytes)
	d.pods = min(c.pods, o.pods)
	for name, amount := range o.extended {
		d.extended[name] = min(c.extended[name], amount)
	}
	for port := range o.ports {
		if d.ports == nil {
			d.ports = map[string]bool{}
		}
		d.ports[port] = true
	}
	d.cards = c.cards & o.cards
	d.whole = min(c.whole, o.whole)
	if c.mode == ModeTopology {
		d.whole = d.cards.Len()
	}
	for i, room := range o.shares {
		d.shares[i] = cardRoom{min(c.shares[i].memoryGiB, room.memoryGiB), min(c.shares[i].corePercent, room.corePercent)}
	}
	d.memoryOnly, d.withCore = max(c.memoryOnly, o.memoryOnly), max(c.withCore, o.withCore)
	return d
}

// pods returns the pods that a placement of the gang makes.
func (g *Gang) pods(assignments []Assignment) []*Pod {
	requests := map[string]*Request{}
	for i := range g.Roles {
		for _, member := range g.Roles[i].Members {
			requests[member] = &g.Roles[i].Request
		}
	}
	var pods []*Pod
	for _, a := range assignments {
		if request := requests[a.Member]; request != nil {
			pods = append(pods, &Pod{
				ID: g.ID + "/" + a.Member, Node: a.Node, Request: *request, Own: a.Own, Shares: a.Shares,
				Gang: g.ID, Leaf: g.Leaf, Priority: g.Priority, Preemptible: g.Preemptible, EndsAt: g.EndsAt,
			})
		}
	}
	return pods
}

// held returns the cards of the pod, whole or in part.
func (p *Pod) held() gpu.Set {
	s := p.Own
	for _, share := range p.Shares {
		s |= gpu.SetOf(share.Card)
	}
	return s
}
