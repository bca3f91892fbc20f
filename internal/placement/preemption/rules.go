package preemption

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// rules say which victims may go together: disruption budgets let them, beside pods that are evicted
// already and that a budget may not have counted yet, and of another leaf those go that it borrows with.
type rules struct {
	view *snapshot.View
	gang string
	// tree is the quota tree that victims of other leaves are charged to, nil when they are of the gang's own.
	tree   *quota.Tree
	needed quota.Resources
	// growth means that members beyond a minimum are placed: a leaf is to use its whole minimum still of what it borrows.
	growth bool
}

// newRules are the rules for the packer's gang.
func newRules(v *snapshot.View, p *packing.Packer, tree *quota.Tree) *rules {
	r := &rules{view: v, gang: p.Gang.ID, needed: p.Charge(p.Needed), growth: p.Gang.More > 0}
	if tree != nil && tree.Entitled(p.Gang.Leaf, r.needed) {
		r.tree = tree
	}
	return r
}

// takes reports whether a leaf borrows with a victim. For members beyond a minimum nobody is evicted whose leaf
// would use less than its minimum then.
func (r *rules) takes(tree *quota.Tree, victim *RunningGang, charge quota.Resources) bool {
	switch {
	case tree == nil:
		return true
	case r.growth:
		return tree.Spares(victim.Leaf, charge, r.needed)
	}
	return tree.Borrows(victim.Leaf, charge, r.needed)
}

// alone drops the victims that may not go even when nobody else does.
func (r *rules) alone(victims []*RunningGang) []*RunningGang {
	evictions := r.view.CountEvictions(r.gang)
	return entire(slices.DeleteFunc(victims, func(victim *RunningGang) bool {
		return !evictions.Allows(victim.pods) || !r.takes(r.tree, victim, placement.ChargeOf(victim.pods))
	}))
}

// together keeps the victims that may go together with those before them. Who may not is not counted as gone.
func (r *rules) together(victims []*RunningGang) []*RunningGang {
	evictions, tree, surplus := r.view.CountEvictions(r.gang), r.tree, map[string]int{}
	if tree != nil {
		tree = tree.Clone()
	}
	var list []*RunningGang
	for _, victim := range victims {
		charge := placement.ChargeOf(victim.pods)
		if victim.surplus > surplus[victim.Gang] || !r.takes(tree, victim, charge) || !evictions.Allow(victim.pods) {
			continue
		}
		if victim.Surplus {
			surplus[victim.Gang]++
		}
		if tree != nil {
			tree.Remove(victim.Leaf, charge, victim.preemptible)
		}
		list = append(list, victim)
	}
	return list
}
