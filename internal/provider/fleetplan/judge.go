package fleetplan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

// Finding is what is wrong with a job.
type Finding struct {
	// Error means that the plan must fail; otherwise it is a warning.
	Error bool
	// Pools means that it is about the capacity of pools that the job was given, otherwise about its members.
	Pools bool
	// Summary is a headline, Detail says what and what to do, in full sentences.
	Summary, Detail string
}

// judge says what is wrong with a job, of which now is the outlook beside the jobs that come before it.
func (f *Fleet) judge(ctx context.Context, all []*contract.FleetCluster, j *planned, before []*planned, now outlook) (found []Finding) {
	for name := range j.Given {
		if !slices.ContainsFunc(all, func(c *contract.FleetCluster) bool { return c.Name == name }) {
			found = append(found, Finding{Error: true, Pools: true, Summary: "No such cluster in the fleet", Detail: fmt.Sprintf(
				"Job %s is given pools of cluster %q, and the clusters of the fleet are %s.", j.ID, name, names(all))})
		}
	}
	if len(found) > 0 {
		return found
	}
	if unread := slices.SortedFunc(maps.Keys(now.unread), natural.Compare); len(unread) > 0 {
		var why []string
		for _, name := range unread {
			why = append(why, name+": "+now.why[name])
		}
		found = append(found, Finding{Summary: "Not all clusters were looked at", Detail: fmt.Sprintf(
			"Whether job %s has a place there is not known: %s.", j.ID, strings.Join(why, "; "))})
	}
	switch {
	case now.best >= 0 && j.place != nil && !now.asPlanned() && !now.unread[j.place.Cluster]:
		return append(found, Finding{Pools: true, Summary: "Job goes elsewhere", Detail: fmt.Sprintf(
			"By the capacity of its pools job %s goes to cluster %s, but not by what is there: %s. As the clusters are now it goes to %s; where it is, is known after apply.",
			j.ID, j.place.Cluster, now.against(j.place.Cluster), now.offers[now.best].Cluster)})
	case now.best >= 0:
		return append(found, f.crowd(ctx, all, j, before, now)...)
	case len(now.unread) > 0:
		return found
	}
	if quota := f.lookAt(ctx, all, j, before, func(_ *cluster.Snapshot, v *snapshot.View) { v.SetQuota(nil) }); quota.best >= 0 {
		return append(found, Finding{Error: j.Immediate, Summary: "Job will wait for quota", Detail: fmt.Sprintf(
			"Job %s has room in the fleet, but not within its quota: %s.", j.ID, now.reasons(all))})
	}
	if alone := f.look(ctx, all, j, nil); len(before) > 0 && alone.best >= 0 {
		return append(found, Finding{Error: j.Immediate, Summary: "Job will wait", Detail: fmt.Sprintf(
			"Job %s has room in the fleet, but not beside the jobs that are placed before it: %s.", j.ID, now.reasons(all))})
	}
	if others := f.lookAt(ctx, all, j, nil, f.withoutOpen); others.best >= 0 {
		return append(found, Finding{Error: j.Immediate, Summary: "Job fits only if others leave", Detail: fmt.Sprintf(
			"Job %s has room in the fleet once pods that are being deleted, or jobs of this configuration that may be, have gone. Beside them: %s.", j.ID, now.reasons(all))})
	}
	if emptied := f.lookAt(ctx, all, j, nil, withoutGangs); j.Policy.Held && emptied.best >= 0 {
		return append(found, Finding{Error: j.Immediate, Summary: "Job will wait", Detail: fmt.Sprintf(
			"Job %s has room in the fleet, but not beside the jobs that run: it waits until they end. Beside them: %s.", j.ID, now.reasons(all))})
	}
	return append(found, Finding{Error: true, Summary: "Job does not fit in any cluster", Detail: fmt.Sprintf(
		"Job %s has a place in no cluster of the fleet: %s.", j.ID, now.reasons(all))})
}

// crowd says of a job that has a place whether it has one beside those other jobs of the walk that nothing orders.
func (f *Fleet) crowd(ctx context.Context, all []*contract.FleetCluster, j *planned, before []*planned, now outlook) []Finding {
	f.mu.Lock()
	var others []*planned
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		others = append(others, f.jobs[id])
	}
	f.mu.Unlock()
	if len(others) == len(before) {
		return nil
	}
	beside := f.look(ctx, all, j, others)
	rivals := slices.DeleteFunc(others, func(other *planned) bool { return slices.Contains(before, other) })
	switch {
	case beside.best < 0 && len(beside.unread) == 0:
		strict := j.Immediate || slices.ContainsFunc(rivals, func(other *planned) bool { return other.Immediate })
		return []Finding{{Error: strict, Summary: "Job will wait", Detail: fmt.Sprintf(
			"Job %s has room in the fleet, but not beside the other jobs of this configuration that are yet to come: one of them waits. Beside them: %s.", j.ID, beside.reasons(all))}}
	case now.asPlanned() && !beside.asPlanned():
		for _, rival := range rivals {
			if rival.actual != nil && rival.actual.Cluster == j.place.Cluster {
				if only := f.look(ctx, all, j, append(slices.Clone(before), rival)); !only.asPlanned() {
					return []Finding{{Pools: true, Summary: "Two jobs are planned in the same place", Detail: fmt.Sprintf(
						"Jobs %s and %s are each planned on the same GPUs or nodes of cluster %s. Both fit at once, but nothing says which of them is placed first, so one will get another place than the plan shows. "+
							"Name the first in the second's after, as in after = [gpuplan_training_job.first.placed], to plan them around each other.", min(j.ID, rival.ID), max(j.ID, rival.ID), j.place.Cluster)}}
				}
			}
		}
	}
	return nil
}

// against says what keeps a job from its planned place in a cluster.
func (o *outlook) against(name string) string {
	if why := o.why[name]; why != "" {
		return why
	}
	return "others have it, or its nodes are not as they were"
}

func names(all []*contract.FleetCluster) string {
	if len(all) == 0 {
		return "none"
	}
	list := make([]string, len(all))
	for i, c := range all {
		list[i] = c.Name
	}
	return strings.Join(list, ", ")
}
