package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// removed says which jobs go on without the scheduler that they name. Those of this configuration that the same plan ends
// are none of them.
func removed(ctx context.Context, s *session.Session) diag.Diagnostics {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return nil // the removal itself says that the cluster does not answer
	}
	s.ShowCluster(ctx)
	return session.Diagnostics(s.Ledger.RemoveProgram(contract.SchedulerName, func(stays func(job string) bool) []ledger.Finding {
		owners := map[string]bool{}
		for i := range snapshot.Pods {
			pod := &snapshot.Pods[i]
			owner := running.OwnerOf(pod)
			if pod.Spec.SchedulerName == contract.SchedulerName && pod.DeletionTimestamp == nil && !inventory.Finished(pod) && (!s.Owns(pod.Labels) || stays(owner)) {
				owners[owner] = true
			}
		}
		if len(owners) == 0 {
			return nil
		}
		names := slices.Sorted(maps.Keys(owners))
		return []ledger.Finding{ledger.Orphaned(contract.SchedulerName, "Scheduler is in use", fmt.Sprintf(
			"The plan removes the scheduler, by which these run or wait: %s. What runs goes on; what waits, and pods that come in the place of lost ones, nobody places then. "+
				"Remove these as well, wait until they have finished, or keep the scheduler.", running.Some(names)), names)}
	}))
}
