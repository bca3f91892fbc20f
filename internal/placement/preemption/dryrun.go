package preemption

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// dryRun is the cluster as a gang sees it, from which victims are evicted and to which they are
// restored. A step costs what the pods of its victim touch, and whether the gang fits is mostly
// a matter of counters ([packing.Capacities]), so that a search may take many steps.
type dryRun struct {
	snapshot.Cluster
	view *snapshot.View
	gang placement.Gang
	// kept are the reservations that the gang leaves alone.
	kept []*snapshot.Reserved
	// base are the nodes with nobody evicted, at their positions by name.
	base []*capacity.Node
	at   map[string]int32
	// left is what is left on nodes, by position; evicted counts the victims.
	left    []left
	evicted int
	// stay are those of the victims that placeBeside has not evicted.
	stay []*RunningGang
	// usage is that of the quota tree, nil when there is none.
	usage      *quotaUsage
	capacities *packing.Capacities
	// needed is how many members must fit, neededCharge what these are charged.
	needed       int
	neededCharge quota.Resources
}

// left is what is used of a node from which so many pods were evicted.
type left struct {
	used capacity.Usage
	pods int
}

// newDryRun begins a dry run for a gang.
func newDryRun(v *snapshot.View, g placement.Gang) *dryRun {
	kept, lifted := v.ReservationsFor(&g)
	d := &dryRun{Cluster: v.SeenAfter(nil, kept, lifted), view: v, gang: g, kept: kept}
	d.base, d.Nodes = d.Nodes, slices.Clone(d.Nodes)
	d.at, d.left = make(map[string]int32, len(d.Nodes)), make([]left, len(d.Nodes))
	for i, n := range d.Nodes {
		d.at[n.Name] = int32(i)
	}
	if d.Quota != nil {
		d.Quota = d.Quota.Clone()
		d.usage = newQuotaUsage(v, d.Cluster, kept)
	}
	p := packing.NewPacker(d.Cluster, g)
	d.needed = p.Needed
	if p.Invalid() != nil {
		return d
	}
	d.neededCharge = p.Charge(p.Needed)
	d.capacities = packing.NewCapacities(p)
	return d
}

// evict takes the pods of a victim out.
func (d *dryRun) evict(r *RunningGang) {
	d.evicted++
	d.usage.change(r, -1)
	for _, pod := range r.pods {
		d.Gone[pod.ID] = pod
	}
	d.change(r, -1)
}

// restore puts the pods of a victim back.
func (d *dryRun) restore(r *RunningGang) {
	d.evicted--
	d.usage.change(r, 1)
	for _, pod := range r.pods {
		delete(d.Gone, pod.ID)
	}
	d.change(r, 1)
}

// change charges the pods of a victim to their nodes (sign 1) or takes them off (sign -1).
func (d *dryRun) change(r *RunningGang, sign int) {
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
func (d *dryRun) charge(at int32, pods []*placement.Pod, sign int) {
	whole := d.view.State(d.base[at].Name)
	left := &d.left[at]
	if left.pods == 0 {
		left.used = whole.Used.Clone()
	}
	for _, pod := range pods {
		left.used.Charge(pod, sign)
	}
	left.pods -= sign * len(pods)
	d.Nodes[at] = d.base[at]
	if left.pods > 0 {
		d.Nodes[at] = d.view.Without(whole, left.used, d.Gone, d.kept)
	}
	if d.capacities != nil {
		d.capacities.Set(at, d.Nodes[at].Free)
	}
}

// fitsWithout evicts victims and reports whether the gang fits then.
func (d *dryRun) fitsWithout(victims []*RunningGang) bool {
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
	_, ok := d.planner(d.gang).Find()
	return ok
}

// placeBeside places the members that the gang needs beside those of the victims that stay, nil when they do not fit.
func (d *dryRun) placeBeside(stay []*RunningGang) *placement.Placement {
	already, restored := divide(stay, d.stay)
	_, evicted := divide(d.stay, already)
	for _, r := range restored {
		d.restore(r)
	}
	for _, r := range evicted {
		d.evict(r)
	}
	d.stay = stay
	result, _ := d.planner(d.gang).Place()
	return result.Placement
}

// planner plans the members that a variant of the gang needs.
func (d *dryRun) planner(g placement.Gang) *packing.Packer {
	p := packing.NewPacker(d.Cluster, g)
	p.Elastic = false
	return p
}

// withinQuota reports whether the quota trees allow the members that the gang needs.
func (d *dryRun) withinQuota() bool {
	return !d.LeafMissing(&d.gang) && d.Exceeded(&d.gang, d.neededCharge) == nil
}
