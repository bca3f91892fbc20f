package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

const (
	// recent is how old what many jobs look at may be that are created at the same time.
	recent = time.Second
	// appearing is how long a job that does not get its place waits for the pods of others,
	// departing how long for those of this configuration to be deleted that would be evicted for
	// it, or have its place, and lookAgain how often it looks.
	appearing, departing, lookAgain = time.Minute, 10 * time.Second, time.Second
	// refusing is how long the pods of another job may be there without a place until it is taken to wait for something
	// else, such as a volume claim: the scheduler places a gang within a second.
	refusing = 5 * time.Second
)

// prospect is what a job meets in the cluster that is about to be created.
type prospect struct {
	snapshot *cluster.Snapshot
	// view is the cluster without the job, in which the jobs that the apply has let start
	// count; gang is the job there, and added what admission adds to it ([checker.onCluster]).
	view  *snapshot.View
	gang  placement.Gang
	added string
	// barred is why it does not start whatever room there is ([cluster.Snapshot.Barred]), "" for nothing.
	barred string
	ledger.Prospect
}

// prospect plans a job on the cluster before it is created. Unless what it sees will do, the job
// may be placed anywhere, such as where another job of this apply is planned whose pods are just
// being created, or evict one that the apply is about to delete. So it waits until the cluster
// shows the ones and not the others, but not for ever: that may depend on something else, and half of the
// time that the apply has for the job is left for the job itself. A job of the queue waits there, and one that has no
// place with or without those whose pods appear waits for none of them, nor does
// one that an invalid quota tree bars.
func (r *trainingJob) prospect(ctx context.Context, c checker, plan func(*snapshot.View, placement.Gang) placement.Result, does func(prospect) bool) (at prospect, err error) {
	seen, err := r.Session.Cluster()
	if err != nil {
		return at, err
	}
	begin, patience := time.Now(), appearing
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	waits := waiters{}
	for {
		if at.snapshot, err = seen.Recent(ctx, recent); err != nil {
			return at, err
		}
		if at.view, at.gang, at.added, err = c.onCluster(at.snapshot); err != nil {
			return at, err
		}
		if at.barred = at.snapshot.Barred(at.gang, c.spec.Queue); at.barred != "" {
			return at, nil
		}
		starts, placed := false, func(v *snapshot.View) placement.Result { return plan(v, at.gang) }
		r.Session.Ledger.Start(at.view, at.gang, c.spec.Gang, placed, func(met ledger.Prospect) bool {
			at.Prospect = met
			soon := waits.others(met.Pending, at.snapshot.Waiting(), time.Now())
			appears := dependsOnOthers(at.gang, met) && len(soon) > 0 && time.Since(begin) < patience
			departs := c.promised() && time.Since(begin) < min(departing, patience) && (len(r.victims(at).own) > 0 || met.Beside.Placement == nil && r.fitsWithoutOwn(at, plan))
			starts = does(at) && !departs || !appears && !departs || c.spec.Queue
			return starts
		})
		if starts {
			return at, nil
		}
		tflog.Info(ctx, "the job does not get its place, and waits for others", map[string]any{"job": c.spec.ID(), "appearing": at.Pending})
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

// waiters are gangs of which all pods are there and have no place, with the time since which that was seen.
type waiters map[string]time.Time

// others are those of the gangs that may be placed at any moment: not such as have waited for a while.
func (w waiters) others(pending, waiting []string, now time.Time) (placedSoon []string) {
	for _, id := range pending {
		if !slices.Contains(waiting, id) {
			delete(w, id)
		} else if w[id].IsZero() {
			w[id] = now
		}
		if since := w[id]; since.IsZero() || now.Sub(since) < refusing {
			placedSoon = append(placedSoon, id)
		}
	}
	return placedSoon
}

// dependsOnOthers reports whether it may depend on the pods of other jobs of the apply, which appear still, if a job
// gets a place.
func dependsOnOthers(g placement.Gang, met ledger.Prospect) bool {
	near := func(r placement.Role) bool { return r.Neighborly(false) }
	return met.Beside.Placement != nil || met.Alone.Placement != nil || slices.ContainsFunc(g.Roles, near)
}

// fitsWithoutOwn reports whether a job would have room if no other of this configuration ran.
func (r *trainingJob) fitsWithoutOwn(at prospect, plan func(*snapshot.View, placement.Gang) placement.Result) bool {
	return plan(r.withoutOwn(at), at.gang).Placement != nil
}

// withoutOwn is the cluster that a job meets without the pods of this configuration's others.
func (r *trainingJob) withoutOwn(at prospect) *snapshot.View {
	view, live := at.view.Clone(), at.snapshot.Live(r.Session.Owns)
	for _, pod := range live.Pods {
		if live.Own[pod.Job] {
			view.RemovePod(pod.ID)
		}
	}
	return view
}

// victims are the gangs that the scheduler would evict for a job, by the names that people know
// them by: those of this configuration and those of others.
type victims struct{ own, others []string }

// victims finds whom the scheduler would evict for a job that starts now. Pods that are being
// deleted are not counted.
func (r *trainingJob) victims(at prospect) (found victims) {
	evicted := at.Beside.Victims
	if at.Beside.Placement != nil {
		evicted = slices.Concat(evicted, preemption.Growth(at.view, at.gang, at.Beside).Victims)
	}
	if len(evicted) == 0 {
		return found
	}
	live := at.snapshot.Live(r.Session.Owns)
	for _, victim := range evicted {
		for _, pod := range live.Pods {
			switch {
			case victim.Leaving || pod.Leaving || !slices.Contains(victim.Pods, pod.ID):
			case live.Own[pod.Job]:
				found.own = append(found.own, pod.Name)
			default:
				found.others = append(found.others, pod.Name)
			}
		}
	}
	for _, names := range []*[]string{&found.own, &found.others} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return found
}

// evictions tells whom the scheduler will evict for a job and the plan could not name, because of what
// was changed since, or because it did not know the job's pools. Those of others are not evicted without consent.
// Those of this configuration may be about to leave: an apply deletes in no certain order.
func (r *trainingJob) evictions(ctx context.Context, client *kube.Client, c checker, at prospect, since string) (diags diag.Diagnostics) {
	if !c.ours() {
		return diags
	}
	const attribute, advice = "allow_preemption", "Plan again, or set allow_preemption = true to agree."
	found := r.victims(at)
	found.own = slices.DeleteFunc(found.own, func(id string) bool {
		if r.disowned(ctx, client, id) {
			found.others = append(found.others, id)
			return true
		}
		return false
	})
	if len(found.others) > 0 && c.level == session.CheckError && !c.allowPreemption {
		diags.AddAttributeError(path.Root(attribute), "Job was not started", fmt.Sprintf("%sThe scheduler would evict for it: %s. %s",
			since, strings.Join(slices.Concat(found.others, found.own), ", "), advice))
		return diags
	}
	if all := slices.Concat(found.others, found.own); len(all) > 0 {
		detail := fmt.Sprintf("%sThe scheduler evicts for it: %s.", since, strings.Join(all, ", "))
		if c.allowPreemption {
			detail = fmt.Sprintf("%sThe scheduler evicts for it, as allow_preemption agrees: %s.", since, strings.Join(all, ", "))
		}
		if len(found.own) > 0 {
			detail += fmt.Sprintf(" Of these, %s would stay in this configuration, unless this apply is about to delete or suspend it.", strings.Join(found.own, ", "))
		}
		diags.AddAttributeWarning(path.Root(attribute), "Running jobs would be evicted", detail)
	}
	return diags
}

// disowned reports whether a job whose pods carry the stamp of this configuration carries another one itself, or that
// cannot be told: another configuration has imported it, and a Job goes on to make its pods as they were.
func (r *trainingJob) disowned(ctx context.Context, client *kube.Client, id string) bool {
	namespace, name, _ := strings.Cut(id, "/")
	return slices.ContainsFunc(job.Frameworks(), func(framework job.Framework) bool {
		live, err := find(ctx, client, framework, namespace, name)
		if err != nil {
			return !absent(err)
		}
		return r.Session.Theirs(live.GetLabels()[contract.OwnerLabel])
	})
}
