package fleetplan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Job is a training job that the walk will create or run again.
type Job struct {
	// ID is "namespace/name", Kind and Labels are those of its object on the hub.
	ID     string
	Kind   schema.GroupVersionKind
	Labels map[string]string
	// Gang is the job as the planner sees it, Pods are those that its operator will make.
	Gang   placement.Gang
	Pods   []*corev1.Pod
	Policy *Policy
	// Given is the capacity that the job was given of member clusters, by their names.
	Given map[string]Given
	// After are the IDs of jobs that are placed before this one.
	After []string
	// Immediate makes it an error that the job has to wait.
	Immediate bool
}

// Given is the capacity of pools of a cluster: their nodes and what is taken on them.
type Given struct {
	Nodes     []placement.Node
	Occupants []placement.Pod
}

// Place is where a job goes.
type Place struct {
	Cluster string
	Members []assignment.Model
	// gangs and placements are what the planner has said of each gang of the job, none where the place was read.
	gangs      []placement.Gang
	placements []placement.Placement
}

// Count is how many members have a place.
func (p *Place) Count() int { return len(p.Members) }

type planned struct {
	Job
	// place is by the capacity that the job was given, actual as the clusters are; nil for none.
	place, actual *Place
	// taken says of clusters, by name, that they have another job of this one's name, "" of those that have none, as far as they were asked.
	taken map[string]string
}

func newPlanned(j Job, place *Place) *planned {
	return &planned{Job: j, place: place, taken: map[string]string{}}
}

// Answer is what becomes of a job.
type Answer struct {
	// Place is where the job goes by the capacity that it was given, nil for nowhere, or where it was given none.
	Place *Place
	// Actual is where it goes as the clusters are, nil for nowhere, and in a walk that applies.
	Actual *Place
	// Promised means that it gets Place.
	Promised bool
	// Arriving means that nodes of Place, or their GPUs, are not there yet.
	Arriving bool
	// Findings say what is wrong with the job.
	Findings []Finding
}

// lastVisit is how long no visit of Terraform comes before a plan takes it that none will, of the jobs that are to leave.
const lastVisit = 2 * time.Second

// Plan places a job by the capacity that it was given, after those that come before it, and records it; in a plan it looks
// what becomes of that in the clusters, beside the other jobs of the walk. The place depends on the capacity, on the policy, on what
// the hub says of its clusters, and on the jobs before it alone.
func (f *Fleet) Plan(ctx context.Context, j Job) (a Answer, err error) {
	all, err := f.Clusters(ctx)
	if err != nil {
		return a, err
	}
	f.visit(j.ID)
	p := newPlanned(j, nil)
	f.mu.Lock()
	before := f.before(j)
	p.place = given(p, all, before)
	delete(f.jobs, j.ID)
	f.mu.Unlock()
	a.Place = p.place
	if !f.applying() {
		now := f.lookUntilDecided(ctx, all, p, before)
		p.actual, a.Actual = now.place(), now.place()
		a.Promised = p.place != nil && (now.asPlanned() || now.unread[p.place.Cluster])
		a.Findings = f.judge(ctx, all, p, before, now)
		if other := f.taker(ctx, j); other != nil {
			a.Promised = false
			a.Findings = append(a.Findings, Finding{Summary: "Another policy takes the job", Detail: fmt.Sprintf(
				"Policies %s and %s both select job %s, and the hub sends it by %[2]s: it comes first by its priority, by a narrower selector, or by its name. Where the job goes is known after apply. Name %[2]s in its fleet, or have only one of them select it.",
				j.Policy.Name, other.Name, j.ID)})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[j.ID] = p
	return a, nil
}

// Now is what becomes of a job in the clusters as they are; place is where it was planned to go, nil for nowhere in particular. The job
// is taken into account from now on.
func (f *Fleet) Now(ctx context.Context, j Job, place *Place) (a Answer, err error) {
	all, err := f.Clusters(ctx)
	if err != nil {
		return a, err
	}
	f.deciding.Lock() // two jobs at once would find the same place
	defer f.deciding.Unlock()
	p := newPlanned(j, place)
	f.mu.Lock()
	if was := f.jobs[j.ID]; was != nil {
		p.After = was.After // those that come after it come after these as well
		if was.place != nil {
			p.place = was.place // the same, with what the planner has said
		}
	}
	delete(f.jobs, j.ID)
	others := slices.Collect(maps.Values(f.jobs))
	f.mu.Unlock()
	now := f.look(ctx, all, p, others)
	p.actual, a.Actual = now.place(), now.place()
	a.Promised = place != nil && (now.asPlanned() || now.unread[place.Cluster])
	a.Arriving = place != nil && f.arriving(ctx, all, place)
	a.Findings = f.judge(ctx, all, p, others, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[j.ID] = p
	return a, nil
}

// Expect records that a job exists, and is to go to a place once the hub lets it: others of the walk have to leave it that.
func (f *Fleet) Expect(ctx context.Context, j Job, place *Place) {
	f.visit(j.ID)
	all, err := f.Clusters(ctx)
	if err != nil {
		return // a job that is placed says so
	}
	p := newPlanned(j, place)
	now := f.look(ctx, all, p, nil)
	p.actual = now.place()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[j.ID] = p
}

// arriving reports whether nodes of a place, or their GPUs, are not there yet.
func (f *Fleet) arriving(ctx context.Context, all []*contract.FleetCluster, place *Place) bool {
	at := slices.IndexFunc(all, func(c *contract.FleetCluster) bool { return c.Name == place.Cluster })
	if at < 0 {
		return false
	}
	seen, err := f.seen(ctx, all[at])
	if err != nil {
		return false
	}
	view := seen.View()
	nodes := seen.Hardware(view.Nodes())
	names := placement.PlannedNames(nodes)
	return slices.ContainsFunc(place.Members, func(m assignment.Model) bool {
		n, there := view.Node(cmp.Or(names[m.Node], m.Node))
		return !there || len(m.GPUs) > 0 && n.GPUs == nil
	})
}

// PlaceOf is the place that a plan has promised, as it is written down.
func PlaceOf(clusterName string, members []assignment.Model) *Place {
	if clusterName == "" || len(members) == 0 {
		return nil
	}
	return &Place{Cluster: clusterName, Members: members}
}

// Knows reports whether the walk has planned a job.
func (f *Fleet) Knows(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[id] != nil
}

// Mark is a short digest of where this walk places a job by the capacity that it was given, [ledger.Unplanned] of one that was given
// none, or not enough. It is the same at plan and at apply.
func (f *Fleet) Mark(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[id]
	if j == nil || j.place == nil {
		return ledger.Unplanned
	}
	digest := sha256.New()
	fmt.Fprintln(digest, j.place.Cluster)
	for _, m := range j.place.Members {
		fmt.Fprintln(digest, m.Member, m.Node, m.GPUs)
	}
	return hex.EncodeToString(digest.Sum(nil)[:4])
}

// Keep records that a job exists and goes on, Leave that it gives back what it holds.
func (f *Fleet) Keep(id string) { f.visit(id) }

// Leave records that a job gives back what it holds.
func (f *Fleet) Leave(id string) {
	f.mu.Lock()
	f.gone[id] = true
	f.mu.Unlock()
	f.visit(id)
}

// visit records that the walk has said what becomes of a job.
func (f *Fleet) visit(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.visits[id] = true
	if f.next != nil {
		close(f.next)
		f.next = nil
	}
}

// lookUntilDecided looks at the clusters until a job has a place, or no other job can leave any more.
func (f *Fleet) lookUntilDecided(ctx context.Context, all []*contract.FleetCluster, p *planned, before []*planned) outlook {
	for {
		next, open := f.nextVisit(), f.open(ctx, all) // before the look: a visit meanwhile ends the wait
		if now := f.look(ctx, all, p, before); now.best >= 0 || !open || !comes(ctx, next) {
			return now
		}
	}
}

// nextVisit is closed by the next visit.
func (f *Fleet) nextVisit() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = make(chan struct{})
	}
	return f.next
}

// comes waits for a visit, and reports whether it comes before none does any more.
func comes(ctx context.Context, visit <-chan struct{}) bool {
	timer := time.NewTimer(lastVisit)
	defer timer.Stop()
	select {
	case <-visit:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// open reports whether jobs of this configuration run in the clusters of which the walk has not said yet what becomes of them.
func (f *Fleet) open(ctx context.Context, all []*contract.FleetCluster) bool {
	for _, c := range all {
		seen, err := f.seen(ctx, c)
		if err != nil {
			continue
		}
		f.mu.Lock()
		open := slices.ContainsFunc(seen.Objects.Pods, func(pod corev1.Pod) bool {
			id := cluster.JobOf(&pod)
			return id != "" && !f.visits[id] && f.owns(pod.Labels)
		})
		f.mu.Unlock()
		if open {
			return true
		}
	}
	return false
}

// before returns the jobs that must be placed before one, transitively, in placing order; mu must be held.
func (f *Fleet) before(j Job) (order []*planned) {
	seen := map[string]bool{j.ID: true}
	var visit func(ids []string)
	visit = func(ids []string) {
		for _, id := range slices.Sorted(slices.Values(ids)) {
			if b := f.jobs[id]; b != nil && !seen[id] {
				seen[id] = true
				visit(b.After)
				order = append(order, b)
			}
		}
	}
	visit(j.After)
	return order
}

// given is the best place by the capacity that a job was given, after the jobs before it.
func given(j *planned, all []*contract.FleetCluster, before []*planned) *Place {
	gang := j.Gang
	gang.Leaf = "" // quota decides between fits and waits, never about the place
	var offers []clusterchoice.Offer
	for _, c := range all {
		has, ok := j.Given[c.Name]
		term, why := j.Policy.Selects(c)
		if !ok || why != "" {
			continue
		}
		view := snapshot.NewView()
		for _, n := range has.Nodes {
			view.SetNode(n)
		}
		for _, p := range has.Occupants {
			view.AddPod(p)
		}
		for _, b := range before {
			if b.place != nil && b.place.Cluster == c.Name && len(b.place.placements) > 0 {
				uncharged := b.Gang
				uncharged.Leaf = ""
				view.Apply(uncharged, b.place.placements[0])
			}
		}
		offer, why := clusterchoice.Place(view, []placement.Gang{gang})
		if why != "" {
			continue
		}
		offer.Cluster, offer.Term, offer.Weight = c.Name, term, j.Policy.Weight(c)
		offers = append(offers, offer)
	}
	best := clusterchoice.Best(offers)
	if best < 0 {
		return nil
	}
	tables := map[string]*gpu.Table{}
	for _, n := range j.Given[offers[best].Cluster].Nodes {
		tables[n.Name] = n.GPUs
	}
	return placeOf(offers[best], []placement.Gang{gang}, func(node string) *gpu.Table { return tables[node] })
}

// placeOf is the place that was offered to gangs.
func placeOf(offer clusterchoice.Offer, gangs []placement.Gang, tables func(node string) *gpu.Table) *Place {
	p := &Place{Cluster: offer.Cluster, gangs: gangs, placements: offer.Placements}
	for _, placed := range offer.Placements {
		p.Members = append(p.Members, assignment.Planned(placed.Assignments, tables)...)
	}
	return p
}

// spots are the places of a job's members as the planner is told of them.
func (p *Place) spots() []placement.Planned {
	return inventory.PlannedMembers(assignment.Record(p.Members).Nodes)
}
