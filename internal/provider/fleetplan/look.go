package fleetplan

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

// outlook is what the clusters have for a job.
type outlook struct {
	offers []clusterchoice.Offer
	best   int
	// gangs are those of the job as each offering cluster sees them, views those clusters.
	gangs [][]placement.Gang
	views []*snapshot.View
	// why says of other clusters what keeps the job from them, by their names; those that are unread may have a place.
	why    map[string]string
	unread map[string]bool
}

// look asks all clusters for a place for a job, beside what runs and the places of other jobs of the walk.
func (f *Fleet) look(ctx context.Context, all []*contract.FleetCluster, j *planned, others []*planned) outlook {
	return f.lookAt(ctx, all, j, others, func(*cluster.Snapshot, *snapshot.View) {})
}

// lookAt is look at clusters that change has changed.
func (f *Fleet) lookAt(ctx context.Context, all []*contract.FleetCluster, j *planned, others []*planned, change func(*cluster.Snapshot, *snapshot.View)) outlook {
	o := outlook{why: map[string]string{}, unread: map[string]bool{}}
	for _, c := range all {
		term, why := j.Policy.Bars(c, j.Kind)
		if why != "" {
			o.why[c.Name] = why
			continue
		}
		seen, err := f.seen(ctx, c)
		if err != nil {
			o.why[c.Name], o.unread[c.Name] = "its state cannot be read: "+err.Error(), true
			continue
		}
		if why = f.taken(ctx, c, j); why != "" {
			o.why[c.Name] = why
			continue
		}
		view := f.view(seen, c.Name, j, others)
		change(seen, view)
		gangs, why := seen.ToCome(j.Pods)
		var offer clusterchoice.Offer
		if why == "" {
			if j.place != nil && j.place.Cluster == c.Name && len(gangs) == 1 {
				gangs[0].Planned = j.place.spots()
			}
			offer, why = clusterchoice.Place(view, gangs)
		}
		if why != "" {
			o.why[c.Name] = strings.TrimSuffix(why, ".")
			continue
		}
		offer.Cluster, offer.Term, offer.Weight, offer.Promised = c.Name, term, j.Policy.Weight(c), j.place != nil && j.place.Cluster == c.Name
		o.offers, o.gangs, o.views = append(o.offers, offer), append(o.gangs, gangs), append(o.views, view)
	}
	o.best = clusterchoice.Best(o.offers)
	return o
}

// seen is a cluster as the walk sees it.
func (f *Fleet) seen(ctx context.Context, c *contract.FleetCluster) (*cluster.Snapshot, error) {
	m, err := f.Member(ctx, c)
	if err != nil {
		return nil, err
	}
	return m.Seen.Snapshot(ctx)
}

// taken says that a cluster has another job of the name than the hub has, so that the hub sends none there, "" for no such job. That a
// cluster cannot be asked is said elsewhere.
func (f *Fleet) taken(ctx context.Context, c *contract.FleetCluster, j *planned) (why string) {
	if why, known := j.taken[c.Name]; known {
		return why
	}
	defer func() { j.taken[c.Name] = why }()
	m, err := f.Member(ctx, c)
	if err != nil {
		return ""
	}
	namespace, name, _ := strings.Cut(j.ID, "/")
	there, err := m.Client.Get(ctx, j.Kind, namespace, name)
	if err != nil || there.GetDeletionTimestamp() != nil {
		return ""
	}
	own, err := f.hub.Get(ctx, j.Kind, namespace, name)
	if err == nil && fleet.Brought(there, own.GetUID()) || err != nil && !kube.IsNotFound(err) {
		return ""
	}
	return "it has another job of that name: an earlier one, someone's there, or that of another fleet; give one of them another name"
}

// view is a cluster without the jobs that leave, with the pools as a job and those others were given them, and with the places of these.
func (f *Fleet) view(seen *cluster.Snapshot, name string, j *planned, others []*planned) *snapshot.View {
	f.mu.Lock()
	leave := []string{j.ID}
	for id := range f.gone {
		leave = append(leave, id)
	}
	f.mu.Unlock()
	view := seen.ViewWithout(leave...)
	for _, other := range append(slices.Clone(others), j) {
		become(view, other.Given[name].Nodes)
	}
	for _, other := range others {
		there := slices.ContainsFunc(seen.Objects.Pods, func(pod corev1.Pod) bool { return cluster.JobOf(&pod) == other.ID })
		if other.actual == nil || other.actual.Cluster != name || there && !slices.Contains(leave, other.ID) {
			continue
		}
		for i, gang := range other.actual.gangs {
			view.AddReservation(placement.Reservation{Gang: gang, Placement: other.actual.placements[i], Granted: true})
		}
	}
	return view
}

// withoutOpen takes out of a view what may leave yet: pods that are being deleted, and jobs of this configuration of which the walk
// has not said that they stay; an apply has said that of none.
func (f *Fleet) withoutOpen(seen *cluster.Snapshot, view *snapshot.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range seen.Objects.Pods {
		pod := &seen.Objects.Pods[i]
		id := cluster.JobOf(pod)
		open := id != "" && f.owns(pod.Labels) && (f.applying() || !f.visits[id])
		if holds, ok := inventory.Pod(pod); ok && (open || pod.DeletionTimestamp != nil) {
			view.RemovePod(holds.ID)
		}
	}
	view.DropReservations(func(*snapshot.Reserved) bool { return true })
	view.SetQuota(nil)
}

// withoutGangs takes out of a view the gangs, which end some time.
func withoutGangs(_ *cluster.Snapshot, view *snapshot.View) {
	for _, node := range view.Nodes() {
		for _, pod := range view.Pods(node) {
			if pod.Gang != "" {
				view.RemovePod(pod.ID)
			}
		}
	}
	view.DropReservations(func(*snapshot.Reserved) bool { return true })
	view.SetQuota(nil)
}

// become gives a view the nodes that pools are to have, and takes those away that they give up.
func become(view *snapshot.View, nodes []placement.Node) {
	pools, stay := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		pools[n.Pool], stay[n.Name] = true, true
		if _, there := view.Node(n.Name); !there {
			view.SetNode(n)
		}
	}
	for _, name := range view.Nodes() {
		if n, _ := view.Node(name); pools[n.Pool] && !stay[name] {
			view.RemoveNode(name)
		}
	}
}

// place is the best one, nil for none.
func (o *outlook) place() *Place {
	if o.best < 0 {
		return nil
	}
	view := o.views[o.best]
	return placeOf(o.offers[o.best], o.gangs[o.best], func(node string) *gpu.Table {
		n, _ := view.Node(node)
		return n.GPUs
	})
}

// asPlanned reports whether the job gets the place that it was planned in.
func (o *outlook) asPlanned() bool {
	return o.best >= 0 && o.offers[o.best].AsPlanned && o.offers[o.best].Promised
}

// reasons say of each cluster what keeps the job from it, in the order of the clusters.
func (o *outlook) reasons(all []*contract.FleetCluster) string {
	if len(all) == 0 {
		return "the fleet has no clusters"
	}
	var said []string
	for _, c := range all {
		if why := o.why[c.Name]; why != "" {
			said = append(said, c.Name+": "+why)
		}
	}
	return strings.Join(said, "; ")
}
