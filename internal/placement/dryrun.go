package placement

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// dryRun is the cluster as a gang sees it, from which victims are evicted and to which they are
// restored. A step costs what the pods of its victim touch, and whether the gang fits is mostly
// a matter of counters ([capacities]), so that a search may take many steps.
type dryRun struct {
	cluster
	view *View
	gang Gang
	// kept are the holds that the gang leaves alone.
	kept []*reserved
	// base are the nodes with nobody evicted, at their positions by name.
	base []*node
	at   map[string]int32
	// left is what is left on nodes, by position; evicted counts the victims.
	left    []left
	evicted int
	// quotas are those of the quota trees: of the cluster's, then of the later ones.
	quotas     []*quotaUsage
	capacities *capacities
	// needed is how many members must fit, claim what these are charged; exact tells that they
	// fit where there is room for each.
	needed      int
	reservation quota.Resources
	exact       bool
}

// left is what is used of a node from which so many pods were evicted.
type left struct {
	used usage
	pods int
}

// newDryRun begins a dry run for a gang.
func (v *View) newDryRun(g Gang) *dryRun {
	kept, lifted := v.reservationsFor(&g)
	d := &dryRun{
		cluster: v.after(nil, kept, lifted), view: v, gang: g, kept: kept,
	}
	d.base, d.nodes = d.nodes, slices.Clone(d.nodes)
	d.at, d.left = make(map[string]int32, len(d.nodes)), make([]left, len(d.nodes))
	for i, n := range d.nodes {
		d.at[n.Name] = int32(i)
	}
	if d.quota != nil {
		d.quota = d.quota.Clone()
		d.quotas = d.quotaUsages()
	}
	p := newPlanner(d.cluster, g)
	d.needed = p.needed
	if p.invalid() != nil {
		return d
	}
	d.reservation = p.charge(p.needed)
	d.exact = len(p.classes) <= 1 && p.among == nil && p.wishes == nil
	d.capacities = newCapacities(p)
	return d
}

// evict takes the pods of a victim out, restore puts them back.
func (d *dryRun) evict(r *runningGang) {
	d.evicted++
	for _, b := range d.quotas {
		b.change(r, -1)
	}
	for _, pod := range r.pods {
		d.gone[pod.ID] = pod
	}
	d.change(r, -1)
}

func (d *dryRun) restore(r *runningGang) {
	d.evicted--
	for _, b := range d.quotas {
		b.change(r, 1)
	}
	for _, pod := range r.pods {
		delete(d.gone, pod.ID)
	}
	d.change(r, 1)
}

// change charges the pods of a victim to their nodes (sign 1) or takes them off (sign -1).
func (d *dryRun) change(r *runningGang, sign int) {
	for i := 0; i < len(r.pods); {
		name := r.pods[i].Node
		here := i
		for i < len(r.pods) && r.pods[i].Node == name {
			i++
		}
		if at, ok := d.at[name]; ok {
			d.charge(at, r.pods[here:i], sign)
		}
	}
}

// charge charges pods to their node or takes them off.
func (d *dryRun) charge(at int32, pods []*Pod, sign int) {
	whole := d.view.nodes[d.base[at].Name]
	left := &d.left[at]
	if left.pods == 0 {
		left.used = whole.used.clone()
	}
	for _, pod := range pods {
		left.used.charge(pod, sign)
	}
	left.pods -= sign * len(pods)
	d.nodes[at] = d.base[at]
	if left.pods > 0 {
		d.nodes[at] = d.view.without(whole, left.used, d.gone, d.kept)
	}
	if d.capacities != nil {
		d.capacities.set(at, d.nodes[at].free)
	}
}

// fitsWithout evicts victims and reports whether the gang fits then.
func (d *dryRun) fitsWithout(victims []*runningGang) bool {
	for _, r := range victims {
		d.evict(r)
	}
	return d.fits()
}

// fits reports whether the gang fits now that some victims were evicted.
func (d *dryRun) fits() bool {
	switch {
	case d.evicted == 0, d.capacities == nil, d.needed > 0 && (d.capacities.open == 0 || !d.withinQuota()):
		return false
	case d.exact && d.needed > 0:
		return true
	}
	_, ok := d.planner(d.gang).find()
	return ok
}

// place places the members that a variant of the gang needs, nil when they do not fit.
func (d *dryRun) place(g Gang) *Placement {
	result, _ := d.planner(g).place()
	return result.Placement
}

// planner plans the members that a variant of the gang needs.
func (d *dryRun) planner(g Gang) *planner {
	p := newPlanner(d.cluster, g)
	p.elastic = false
	return p
}

// withinQuota reports whether the quota trees allow the members that the gang needs.
func (d *dryRun) withinQuota() bool {
	p := planner{cluster: d.cluster, gang: d.gang}
	return !p.leafMissing() && p.exceeded(d.reservation) == nil
}

// quotaUsage keeps a quota tree in line with what is evicted.
type quotaUsage struct {
	tree *quota.Tree
	// away are pods that are not charged whoever is evicted.
	away map[string]*Pod
	// left counts the pods of each gang that are not charged, pods those that run.
	left, pods map[string]int
	known      map[*runningGang]*charges
}

// charges are what the pods of a victim are charged, and how many pods are.
type charges struct {
	list []charged
	pods int
}

type charged struct {
	leaf        string
	preemptible bool
	amounts     quota.Resources
}

// quotaUsages returns the books of the cluster's trees, in the order in which [View.after] makes
// the later ones.
func (d *dryRun) quotaUsages() []*quotaUsage {
	open := func(tree *quota.Tree, reservations ...*reserved) *quotaUsage {
		b := &quotaUsage{tree: tree, pods: d.gangs, left: map[string]int{}, known: map[*runningGang]*charges{}}
		b.away = d.view.awaitedBy(map[string]*Pod{}, reservations...)
		for _, pod := range b.away {
			b.left[pod.Gang]++
		}
		return b
	}
	quotas := []*quotaUsage{open(d.quota)}
	for i, tree := range d.later {
		if i < len(d.kept) {
			quotas = append(quotas, open(tree, d.kept[i]))
		} else {
			quotas = append(quotas, open(tree, d.kept...))
		}
	}
	return quotas
}

// of returns what a victim is charged.
func (b *quotaUsage) of(r *runningGang) *charges {
	if known := b.known[r]; known != nil {
		return known
	}
	c := &charges{}
	for _, pod := range r.pods {
		if b.away[pod.ID] != nil {
			continue
		}
		c.pods++
		i := slices.IndexFunc(c.list, func(o charged) bool { return o.leaf == pod.Leaf && o.preemptible == pod.Preemptible })
		if i < 0 {
			i = len(c.list)
			c.list = append(c.list, charged{leaf: pod.Leaf, preemptible: pod.Preemptible, amounts: quota.Resources{}})
		}
		for name, amount := range pod.Request.Charge() {
			c.list[i].amounts[name] += amount
		}
	}
	b.known[r] = c
	return c
}

// change charges a victim (sign 1) or takes off what it is charged (sign -1).
func (b *quotaUsage) change(r *runningGang, sign int) {
	c, tree := b.of(r), b.tree
	charge, count := tree.Remove, tree.RemoveJob
	if sign > 0 {
		charge, count = tree.Add, tree.AddJob
	}
	for _, charged := range c.list {
		charge(charged.leaf, charged.amounts, charged.preemptible)
	}
	gang := r.pods[0].Gang
	if gang == "" || c.pods == 0 {
		return
	}
	before := b.left[gang] == b.pods[gang]
	b.left[gang] -= sign * c.pods
	if after := b.left[gang] == b.pods[gang]; before != after {
		count(r.pods[0].Leaf)
	}
}
