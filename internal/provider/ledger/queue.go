package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// queue is the cluster with gangs that wait in the places that they take once what leaves
// has left.
type queue struct {
	view    *snapshot.View
	started []Waiting
	// reserved are those that go on waiting, with capacity reserved for them.
	reserved []Waiting
	// pools are those in which they do, with who does; kept are those in which capacity is reserved.
	pools, kept map[string][]string
}

// overtaken says what gangs that wait already do to the jobs that can start: what the plan
// frees, or adds, they take first, in the order of the scheduler's queue. It says so once
// it is known what becomes of everything that this configuration has in the cluster.
func (l *Ledger) overtaken() []Finding {
	if l.live == nil || len(l.live.Waiting) == 0 || !l.decided() {
		return nil
	}
	if l.live.queue == nil {
		l.live.queue = l.started(l.live.hoped, anyone)
	}
	findings := l.lingering()
	if len(l.live.queue.started)+len(l.live.queue.reserved) == 0 {
		return findings
	}
	behind, alone := *l.live.queue, l.live.hoped.Clone()
	behind.view = behind.view.Clone()
	for _, j := range l.starting() {
		g := l.gang(j)
		if !l.live.inherit(alone, g) {
			continue // others that are planned are in its way
		}
		if f := l.behind(j, g, &behind); f != nil {
			findings = append(findings, *f)
		}
	}
	return findings
}

// lingering says which gangs that wait, and that the plan suspends, may take what it frees or adds before: a job that names another in its
// after is suspended when that was created. Deletions come first, and pods that wait are gone at once.
func (l *Ledger) lingering() (findings []Finding) {
	suspended := func(w Waiting) bool { return w.Job != "" && l.fates[w.Job] == leaves && l.fixed[w.Job] }
	if !slices.ContainsFunc(l.live.Waiting, suspended) {
		return nil
	}
	early := l.startedOf(l.live.hoped, suspended)
	if len(early.started) == 0 {
		return nil
	}
	for _, j := range l.starting() {
		if l.promised(j) && slices.ContainsFunc(j.Pools, func(pool string) bool { return len(early.pools[pool]) > 0 }) {
			findings = append(findings, Finding{
				Kind: Overtaken, Jobs: []string{j.Gang.ID}, Summary: "Gangs that wait come first", key: "lingering " + j.Gang.ID,
				Detail: fmt.Sprintf("Job %s may be placed elsewhere than planned: what this plan frees or adds the scheduler may give to gangs that wait for room already, before this plan suspends them, and that is %s. "+
					"To be sure of the place, suspend them, and apply that first.", j.Gang.ID, namesOf(early.started)),
			})
		}
	}
	return findings
}

// consent is how a pool is let give up nodes under running jobs: the apply looks at the pool as it
// is in the state when it deletes it, and as the plan has it when it changes it.
const consent = "set allow_disruption = true, and apply that before if the plan replaces or deletes it"

// endangered says which gangs that wait may start, while the plan is carried out, on nodes that
// their pool gives up after that: the apply refuses to then.
func (l *Ledger) endangered() []Finding {
	if l.live == nil || len(l.live.Waiting) == 0 || len(l.shrinking) == 0 || !l.decided() {
		return nil
	}
	if l.live.early == nil {
		view := l.live.found.Clone()
		for job := range l.live.jobs {
			if l.fates[job] == leaves {
				l.live.take(view, job)
			}
		}
		l.live.early = l.started(view, anyone)
	}
	var findings []Finding
	for _, pool := range slices.Sorted(maps.Keys(l.shrinking)) {
		if gangs := l.live.early.pools[pool]; len(gangs) > 0 {
			findings = append(findings, Finding{
				Kind: PoolTaken, Jobs: gangs, key: "waiting for " + pool, Summary: "Jobs that wait may start on nodes that go",
				Detail: fmt.Sprintf("The plan %s. Jobs that wait may start on its nodes before that: %s. Then the apply fails and leaves the pool as it is, since a running job would lose its nodes. "+
					"Suspend or delete them first, or on the pool %s.", l.shrinking[pool], join(gangs), consent),
			})
		}
	}
	return findings
}

// decided reports whether all has been visited that the configuration has in the cluster, and
// that the walk is sure to visit.
func (l *Ledger) decided() bool {
	if l.part {
		return true
	}
	for job, own := range l.live.Own {
		if own && l.fates[job] == undecided {
			return false
		}
	}
	return !l.treeOpen()
}

func anyone(Waiting) bool { return true }

// started lets those that wait, and that it is asked for, take what they find, in their order, and
// keeps for others what the scheduler has reserved for them.
func (l *Ledger) started(view *snapshot.View, asked func(Waiting) bool) *queue {
	return l.startedOf(view, func(w Waiting) bool { return asked(w) && (w.Job == "" || l.fates[w.Job] != leaves) })
}

// startedOf is started, of those as well that the plan takes away.
func (l *Ledger) startedOf(view *snapshot.View, asked func(Waiting) bool) *queue {
	q := &queue{view: view.Clone(), pools: map[string][]string{}, kept: map[string][]string{}}
	for _, w := range l.live.Waiting {
		if !asked(w) {
			continue
		}
		g := l.charged(w.Gang)
		placed := planner.Place(q.view, g)
		if placed == nil && w.Reserved {
			if r, ok := backfill.Reserve(q.view, g); ok {
				q.view.AddReservation(r)
				q.reserved = append(q.reserved, w)
				q.note(q.kept, w, r.Placement)
			}
		}
		if placed == nil || len(placed.Assignments) == 0 {
			continue
		}
		q.view.Apply(g, *placed)
		q.started = append(q.started, w)
		q.note(q.pools, w, *placed)
	}
	return q
}

// note notes the pools of a gang's place.
func (q *queue) note(pools map[string][]string, w Waiting, place placement.Placement) {
	for _, a := range place.Assignments {
		n, _ := q.view.Node(a.Node)
		if names := pools[n.Pool]; !slices.Contains(names, w.Name) {
			pools[n.Pool] = append(names, w.Name)
		}
	}
}

// take gives a gang its place in a view, if there is one.
func take(view *snapshot.View, g placement.Gang) bool {
	placed := planner.Place(view, g)
	if placed != nil {
		view.Apply(g, *placed)
	}
	return placed != nil
}

// inherit is take, also of a place that the gang gets once those have gone that are being deleted.
func (p *picture) inherit(view *snapshot.View, g placement.Gang) bool {
	if take(view, g) {
		return true
	}
	if !slices.ContainsFunc(p.Pods, func(pod Pod) bool { return pod.Leaving }) {
		return false
	}
	result := preemption.Plan(view, g)
	if result.Reservation == nil || len(result.Victims) > 0 {
		return false
	}
	view.AddReservation(*result.Reservation)
	return true
}

// behind says what those that start first leave a job, and takes that.
func (l *Ledger) behind(j *job, g placement.Gang, first *queue) *Finding {
	if l.live.inherit(first.view, g) {
		if !l.promised(j) || !slices.ContainsFunc(j.Pools, func(pool string) bool { return len(first.pools[pool])+len(first.kept[pool]) > 0 }) {
			return nil
		}
		return overtakes(j, first, false, fmt.Sprintf("Job %s may be placed elsewhere than planned", g.ID))
	}
	sure := l.started(l.live.hoped, func(w Waiting) bool { return l.precedes(w, g) })
	if planner.Place(l.early(g), g) != nil || planner.Place(sure.view, g) != nil || l.together(g, sure.started) {
		return overtakes(j, first, j.RequireImmediate, fmt.Sprintf("Job %s may have to wait, or not be started", g.ID))
	}
	if result := preemption.Plan(sure.view, g); j.MayPreempt && result.Placement != nil {
		return l.preempts(j, fmt.Sprintf("finds its place taken by %s, waiting now, when it is created", sure), result.Victims)
	}
	return overtakes(j, sure, true, fmt.Sprintf("Job %s does not fit", g.ID))
}

// early is the cluster that a job finds when it is created before all else is done. One that is
// replaced has given its own place back by then, and those that wait have taken what they find.
func (l *Ledger) early(g placement.Gang) *snapshot.View {
	vacated := slices.DeleteFunc(l.vacated(g.ID), func(id string) bool { return len(l.live.jobs[id]) == 0 })
	if len(vacated) == 0 && len(l.live.queue.reserved) == 0 {
		return l.live.found
	}
	view := l.live.found.Clone()
	for _, id := range vacated {
		l.live.take(view, id)
	}
	return l.started(view, anyone).view
}

// precedes reports whether a gang that waits is sure to be looked at before a job: it comes
// before it in the queue, or the job gives its own place back first.
func (l *Ledger) precedes(w Waiting, g placement.Gang) bool {
	partial := len(w.Running) > 0 && w.Missing() > 0
	return partial || w.Priority >= g.Priority ||
		slices.ContainsFunc(l.vacated(g.ID), func(id string) bool { return len(l.live.jobs[id]) > 0 })
}

// together reports whether a gang and those that wait have room beside each other, so that
// it depends on where these are placed whether it fits.
func (l *Ledger) together(g placement.Gang, waiting []Waiting) bool {
	view := l.live.hoped.Clone()
	return take(view, g) && !slices.ContainsFunc(waiting, func(w Waiting) bool { return !take(view, l.charged(w.Gang)) })
}

func (q *queue) String() string { return namesOf(slices.Concat(q.started, q.reserved)) }

func namesOf(gangs []Waiting) string {
	var names []string
	for _, w := range gangs {
		names = append(names, w.Name)
	}
	return join(names)
}

// does says what the scheduler does for those that wait.
func (q *queue) does() string {
	var does []string
	if len(q.started) > 0 {
		does = append(does, "gives what this plan frees or adds to gangs that wait for room already, and that is "+namesOf(q.started))
	}
	if len(q.reserved) > 0 {
		does = append(does, "keeps capacity reserved for gangs that have waited long, or that others leave room, and that is "+namesOf(q.reserved))
	}
	return strings.Join(does, "; it ")
}

// overtakes says what becomes of a job when others start first.
func overtakes(j *job, first *queue, fails bool, what string) *Finding {
	return &Finding{
		Kind: Overtaken, Jobs: []string{j.Gang.ID}, Error: fails, Summary: "Gangs that wait come first",
		Detail: fmt.Sprintf("%s: the scheduler %s.", what, first.does()),
	}
}
