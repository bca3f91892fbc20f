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
	// kept are the reservations that the gang leaves alone.
	kept []*reserved
	// base are the nodes with nobody evicted, at their positions by name.
	base []*node
	at   map[string]int32
	// left is what is left on nodes, by position; evicted counts the victims.
	left    []left
	evicted int
	// usage is that of the quota tree, nil when there is none.
	usage      *quotaUsage
	capacities *capacities
	// needed is how many members must fit, reservation what these are charged.
	needed      int
	reservation quota.Resources
}

// left is what is used of a node from which so many pods were evicted.
type left struct {
	used usage
	pods int
}

// newDryRun begins a dry run for a gang.
func (v *View) newDryRun(g Gang) *dryRun {
	kept, lifted := v.reservationsFor(&g)
	d := &dryRun{cluster: v.after(nil, kept, lifted), view: v, gang: g, kept: kept}
	d.base, d.nodes = d.nodes, slices.Clone(d.nodes)
	d.at, d.left = make(map[string]int32, len(d.nodes)), make([]left, len(d.nodes))
	for i, n := range d.nodes {
		d.at[n.Name] = int32(i)
	}
	if d.quota != nil {
		d.quota = d.quota.Clone()
		d.usage = v.newQuotaUsage(d.cluster, kept)
	}
	p := newPlanner(d.cluster, g)
	d.needed = p.needed
	if p.invalid() != nil {
		return d
	}
	d.reservation = p.charge(p.needed)
	d.capacities = newCapacities(p)
	return d
}

// evict takes the pods of a victim out.
func (d *dryRun) evict(r *runningGang) {
	d.evicted++
	d.usage.change(r, -1)
	for _, pod := range r.pods {
		d.gone[pod.ID] = pod
	}
	d.change(r, -1)
}

// restore puts the pods of a victim back.
func (d *dryRun) restore(r *runningGang) {
	d.evicted--
	d.usage.change(r, 1)
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
	whole := d.view.state(d.base[at].Name)
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
	case d.evicted == 0, d.capacities == nil, d.needed > 0 && (!d.capacities.Enough() || !d.withinQuota()):
		return false
	case d.capacities.Exact() && d.needed > 0:
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
	return !d.leafMissing(&d.gang) && d.exceeded(&d.gang, d.reservation) == nil
}
