package nodepool

import (
	"context"
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
	first := slices.IndexFunc(pools, func(p acs.NodePool) bool {
		return p.Info.Name == pools[own].Info.Name && !leaving(p.Status.State) && !r.Session.Mine(p.Tag(contract.OwnerTag)) && !later(p, pools[own])
	})
	if first < 0 {
		return false, nil
	}
	taken := r.foreign(&acs.PoolExistsError{ClusterID: r.Session.ClusterID, Pool: pools[first]})
	m.NodePoolID, m.ID = types.StringValue(poolID), types.StringValue(r.Session.ClusterID+"/"+poolID)
	if err := r.deletePool(ctx, m); err != nil {
		diags.AddError("Node pool must go", fmt.Sprintf("Another one has its name, and it could not be deleted yet: %s %s", session.Sentence(taken), session.Sentence(err)))
		return false, diags
	}
	diags.AddError("Node pool was not created", session.Sentence(taken))
	return true, diags
}

// later reports whether a pool was created after another one; of two for which that cannot be told
// neither was.
func later(a, b acs.NodePool) bool {
	at, errA := time.Parse(time.RFC3339, a.Info.Created)
	bt, errB := time.Parse(time.RFC3339, b.Info.Created)
	return errA == nil && errB == nil && at.After(bt)
}
