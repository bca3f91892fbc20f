package nodepool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// giveWay deletes a pool that this apply has just created, and says whose the name is, when another
// configuration has created a pool of that name at the same time and before it: the service lets both
// be. gone means that the pool is deleted.
func (r *pool) giveWay(ctx context.Context, client *acs.Client, m model, poolID string) (gone bool, diags diag.Diagnostics) {
	pools, err := client.ListNodePools(ctx, r.Session.ClusterID)
	if err != nil {
		diags.AddWarning("Node pools were not looked at again", fmt.Sprintf(
			"Whether another configuration has created a node pool of the same name at the same time is not known. %s", session.Sentence(err)))
		return false, diags
	}
	own := slices.IndexFunc(pools, func(p acs.NodePool) bool { return p.Info.ID == poolID })
	if own < 0 {
		return false, nil
	}
	first := r.before(pools, pools[own])
	if first == nil {
		return false, nil
	}
	return r.giveBack(ctx, pools[own], *first, m)
}

// before is a pool of another configuration that has the name of a pool, and was not created after it; nil when
// there is none.
func (r *pool) before(pools []acs.NodePool, own acs.NodePool) *acs.NodePool {
	first := slices.IndexFunc(pools, func(p acs.NodePool) bool {
		return p.Info.Name == own.Info.Name && !leaving(p.Status.State) && !r.Session.Mine(p.Tag(contract.OwnerTag)) && !later(p, own)
	})
	if first < 0 {
		return nil
	}
	return &pools[first]
}

// giveBack deletes a pool for another one that has its name.
func (r *pool) giveBack(ctx context.Context, own, first acs.NodePool, m model) (gone bool, diags diag.Diagnostics) {
	taken := r.foreign(&acs.PoolExistsError{ClusterID: r.Session.ClusterID, Pool: first})
	m.NodePoolID, m.ID = types.StringValue(own.Info.ID), types.StringValue(r.Session.ClusterID+"/"+own.Info.ID)
	if err := r.deletePool(ctx, m); err != nil {
		diags.AddError("Node pool must go", fmt.Sprintf("Another one has its name, and it could not be deleted yet: %s %s", session.Sentence(taken), session.Sentence(err)))
		return false, diags
	}
	diags.AddError("Node pool was not created", session.Sentence(taken))
	return true, diags
}

// unreturned is the pool that an apply of this configuration was killed before it gave way with it (see giveWay), and the one
// which has its name; both are nil where err tells of no such two, or the state has ours, as it may where a plan is about a
// part of the configuration (-target).
func (r *pool) unreturned(err error) (own, first *acs.NodePool) {
	var namesakes *acs.NamesakesError
	if !errors.As(err, &namesakes) || r.Session.Targets {
		return nil, nil
	}
	for i, p := range namesakes.Pools {
		switch id := r.Session.ClusterID + "/" + p.Info.ID; {
		case !r.Session.Mine(p.Tag(contract.OwnerTag)):
		case own != nil || r.Session.Ledger.VisitedPool(id) || r.Session.Ledger.Owns(id):
			return nil, nil
		default:
			own = &namesakes.Pools[i]
		}
	}
	if own == nil {
		return nil, nil
	}
	if first = r.before(namesakes.Pools, *own); first == nil {
		return nil, nil
	}
	return own, first
}

// giveBackLate gives back a pool that an earlier apply has left, unless jobs run on it by now.
func (r *pool) giveBackLate(ctx context.Context, own, first acs.NodePool, m model) (started acs.Started, diags diag.Diagnostics) {
	pods, diags := r.podsOn(ctx, model{NodePoolID: types.StringValue(own.Info.ID)})
	if len(pods) > 0 && !m.AllowDisruption.ValueBool() {
		diags.AddError("Running jobs would lose their nodes", refusal(fmt.Sprintf("deletes node pool %s (%s), as another one has its name", own.Info.Name, own.Info.ID), "set allow_disruption = true", pods))
	}
	if diags.HasError() {
		return started, diags
	}
	gone, more := r.giveBack(ctx, own, first, m)
	if !gone {
		started.PoolID = own.Info.ID
	}
	return started, append(diags, more...)
}

// later reports whether a pool was created after another one; of two for which that cannot be told
// neither was.
func later(a, b acs.NodePool) bool {
	at, errA := time.Parse(time.RFC3339, a.Info.Created)
	bt, errB := time.Parse(time.RFC3339, b.Info.Created)
	return errA == nil && errB == nil && at.After(bt)
}
