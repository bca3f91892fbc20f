package nodepool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// giveWay deletes a pool that this apply has just created, and says whose the name is, when another
// configuration has created a pool of that name at the same time and before it: the service lets both
// be. gone means that the pool is deleted.
func (r *pool) giveWay(ctx context.Context, client *acs.Client, m model, poolID string) (gone bool, err error) {
	pools, err := client.ListNodePools(ctx, r.Session.ClusterID)
	if err != nil {
		tflog.Warn(ctx, "whether another node pool has the name is not known", map[string]any{"error": err.Error()})
		return false, nil
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
		return false, fmt.Errorf("%w. The one that this apply created, %s, could not be deleted: %w", taken, poolID, err)
	}
	return true, taken
}

// later reports whether a pool was created after another one; of two for which that cannot be told
// neither was.
func later(a, b acs.NodePool) bool {
	at, errA := time.Parse(time.RFC3339, a.Info.Created)
	bt, errB := time.Parse(time.RFC3339, b.Info.Created)
	return errA == nil && errB == nil && at.After(bt)
}
