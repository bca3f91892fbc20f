package ledger

import (
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// mostJobs and mostRivals are with how many jobs that can start, and with how many that can be in
// each other's way, all sets of them are placed together.
const mostJobs, mostRivals = 64, 6

// contention places jobs together that can be in each other's way: those of a job that was just
// recorded, or all of them, nil. What it finds in a group of few depends on the group alone, and so
// not on the order of visits.
func (l *Ledger) contention(changed *job) []Finding {
	jobs := l.starting()
	switch {
	case len(jobs) <= mostJobs:
	case changed != nil && l.joins(changed):
		return nil
	default:
		return l.atOnce(jobs)
	}
	var findings []Finding
	for _, group := range groups(jobs) {
		switch {
		case changed != nil && !slices.Contains(group, changed):
		case len(group) <= mostRivals:
			findings = append(findings, l.compare(group)...)
		default:
			findings = append(findings, l.atOnce(group)...)
		}
	}
	return findings
}

// groups divides jobs, keeping their order, so that none can be in the way of one of another group.
func groups(jobs []*job) (all [][]*job) {
	for _, j := range jobs {
		var apart [][]*job
		joined := map[*job]bool{j: true}
		for _, group := range all {
			if !slices.ContainsFunc(group, func(other *job) bool { return rivals(j, other) }) {
				apart = append(apart, group)
				continue
			}
			for _, other := range group {
				joined[other] = true
			}
		}
		all = append(apart, slices.DeleteFunc(slices.Clone(jobs), func(other *job) bool { return !joined[other] }))
	}
	return all
}

// compare places every set of a group of jobs, small ones first. Of sets of which a part shows the
// same already it reports nothing.
func (l *Ledger) compare(group []*job) (findings []Finding) {
	sets := make([]uint, 0, 1<<len(group))
	for set := uint(1); set < 1<<len(group); set++ {
		sets = append(sets, set)
	}
	slices.SortStableFunc(sets, func(a, b uint) int { return bits.OnesCount(a) - bits.OnesCount(b) })
	apart, told := map[uint]bool{}, map[uint]map[string]bool{}
	for _, set := range sets {
		told[set] = map[string]bool{}
		var jobs []*job
		for i, j := range group {
			if set&(1<<i) != 0 {
				jobs = append(jobs, j)
				apart[set] = apart[set] || apart[set&^(1<<i)]
				maps.Copy(told[set], told[set&^(1<<i)])
			}
		}
		if len(jobs) == 1 || apart[set] {
			continue
		}
		key := keyOf(jobs)
		if !l.compared[key] {
			l.compared[key] = true
			findings = append(findings, l.combine(key, jobs, told[set])...)
		}
		apart[set] = l.apart[key]
		maps.Copy(told[set], l.told[key])
	}
	return findings
}

// combine places the jobs of a set together, and says what was not told of a part of it.
func (l *Ledger) combine(key string, jobs []*job, told map[string]bool) (findings []Finding) {
	c := l.place(jobs)
	var waits []course
	if c.waiting != nil {
		if other, fit := l.inAnotherOrder(jobs); fit {
			c, waits = other, []course{c}
		} else {
			l.apart[key] = true
			findings = append(findings, l.waits(c, jobs, key))
		}
	}
	l.told[key] = map[string]bool{}
	known := func(id string) bool {
		l.told[key][id] = true
		return told[id]
	}
	instead, last := l.lastOf(c, jobs, jobs)
	evicted := slices.DeleteFunc(append(c.evicted, instead...), func(e eviction) bool { return known(e.id()) })
	parts := slices.DeleteFunc(c.parts, func(p part) bool { return known(p.id()) })
	waits = slices.DeleteFunc(append(waits, last...), func(c course) bool { return known("last " + c.waiting.Gang.ID) })
	return slices.Concat(findings, l.evictions(evicted, jobs), l.leftOut(parts, jobs), l.mayWait(waits, jobs))
}

// inAnotherOrder places jobs in other orders than theirs, until all of them have room.
func (l *Ledger) inAnotherOrder(jobs []*job) (c course, fit bool) {
	for _, last := range jobs {
		for _, order := range l.ordersBefore(last, jobs) {
			if len(order) == len(jobs)-1 { // others come after the last one otherwise
				if c = l.place(append(order, last)); c.waiting == nil {
					return c, true
				}
			}
		}
	}
	return c, false
}

// atOnce places many jobs, apart from those that a pair has shown to wait. When one has to wait,
// jobs are compared two by two.
func (l *Ledger) atOnce(jobs []*job) []Finding {
	c := l.place(jobs)
	if c.waiting == nil {
		instead, waits := l.lastOf(c, jobs, nil)
		c.evicted = append(c.evicted, instead...)
		if len(c.evicted)+len(waits) == 0 {
			l.settle(jobs)
		}
		return slices.Concat(l.evictions(c.evicted, jobs), l.leftOut(c.parts, jobs), l.mayWait(waits, jobs))
	}
	findings := append(l.evictions(c.evicted, jobs), l.leftOut(c.parts, jobs)...)
	for i, a := range jobs {
		for _, b := range jobs[i+1:] {
			if rivals(a, b) {
				findings = append(findings, l.compare([]*job{a, b})...)
			}
		}
	}
	var rest []*job
	for _, j := range jobs {
		blocked := slices.ContainsFunc(rest, func(other *job) bool { return l.apart[pairKey(other, j)] })
		if !blocked {
			rest = append(rest, j)
		}
	}
	if c = l.place(rest); c.waiting != nil {
		findings = append(findings, l.waits(c, rest, "all"))
	}
	instead, waits := l.lastOf(c, rest, nil)
	return slices.Concat(findings, l.evictions(append(c.evicted, instead...), rest), l.mayWait(waits, rest))
}

// lastOf is what comes of one of the candidates being placed last, nil for those that have no room then, and not in the order
// that was tried: it depends on the order whether others leave, and who, or else whether the job has to wait.
func (l *Ledger) lastOf(c course, jobs, candidates []*job) (instead []eviction, waits []course) {
	if c.waiting != nil && !l.complete {
		return nil, nil // it is said that they do not fit, and who goes is another question while jobs may leave
	}
	view, gangs := l.ground(jobs)
	if followAll(view, gangs) {
		return nil, nil // whoever is placed before, each has its planned place
	}
	seen := map[*job]placement.Gang{}
	for i, j := range jobs {
		seen[j] = gangs[i]
	}
	if candidates == nil {
		candidates = l.withoutRoom(view, gangs, jobs)
	}
	for _, last := range candidates {
		var wait *course
		for _, order := range l.ordersBefore(last, jobs) {
			victims, why := l.placeLast(view, order, last, seen)
			e := eviction{last, victims, true}
			known := func(other eviction) bool { return other.job == last && reflect.DeepEqual(other.victims, e.victims) }
			if len(e.victims) > 0 && !slices.ContainsFunc(slices.Concat(c.evicted, instead), known) {
				instead = append(instead, e)
			}
			if why != nil && wait == nil {
				wait = &course{waiting: last, verdict: *why}
			}
		}
		if wait != nil && c.waiting == nil {
			waits = append(waits, *wait)
		}
	}
	return instead, waits
}

// ordersBefore are orders in which others can be placed before a job: of few, with each as the first.
func (l *Ledger) ordersBefore(last *job, jobs []*job) [][]*job {
	others := slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j == last || slices.Contains(l.before(j.Job), last) })
	orders := [][]*job{others}
	if len(others) >= mostRivals {
		return orders
	}
	for _, first := range others[min(1, len(others)):] {
		ahead := append(l.before(first.Job), first)
		early := func(j *job) bool { return slices.Contains(ahead, j) }
		orders = append(orders, slices.Concat(
			slices.DeleteFunc(slices.Clone(others), func(j *job) bool { return !early(j) }),
			slices.DeleteFunc(slices.Clone(others), early)))
	}
	return orders
}

// placeLast is who goes for a job when those of others that find room are placed before it, in their order, with all
// their members that do, and stay; why says what stands against it when it has to wait.
func (l *Ledger) placeLast(view *snapshot.View, others []*job, last *job, seen map[*job]placement.Gang) (victims []placement.Victim, why *placement.Verdict) {
	gangs := make([]placement.Gang, len(others))
	for i, j := range others {
		gangs[i] = seen[j]
		gangs[i].Preemptible = false
	}
	defer placeAll(view, gangs)()
	g := seen[last]
	preempts := l.live != nil && last.MayPreempt
	if placed := placeOf(view, g); placed != nil {
		if preempts {
			victims = l.growth(view, g, placement.Result{Placement: placed})
		}
		return victims, nil
	}
	if preempts {
		if result := preemption.Plan(view, g); result.Reservation != nil {
			return result.Victims, nil
		}
	}
	verdict := planner.Plan(view, g).Verdict
	return nil, &verdict
}

// withoutRoom are the jobs that find no room when all the others are placed before them. It
// places each job once for each halving of their number.
func (l *Ledger) withoutRoom(view *snapshot.View, gangs []placement.Gang, jobs []*job) (crowded []*job) {
	if l.live == nil || !l.complete {
		return nil
	}
	var lookAt func(from, to int)
	lookAt = func(from, to int) {
		if to-from == 1 {
			if placeOf(view, gangs[from]) == nil {
				crowded = append(crowded, jobs[from])
			}
			return
		}
		half := (from + to) / 2
		undo := placeAll(view, gangs[half:to])
		lookAt(from, half)
		undo()
		undo = placeAll(view, gangs[from:half])
		lookAt(half, to)
		undo()
	}
	lookAt(0, len(jobs))
	return crowded
}

// followAll reports whether all gangs can have the places at once that are planned for them, all of their members.
func followAll(view *snapshot.View, gangs []placement.Gang) bool {
	var tried trial
	defer tried.undo()
	for _, g := range gangs {
		followed, _, ok := planner.Follow(view, &g, nil)
		if !ok || len(followed.Placement.Assignments)+len(g.Running) < members(g) {
			return false
		}
		tried = append(tried, view.Apply(g, *followed.Placement))
	}
	return true
}

// settle remembers the cluster with jobs in their places, all of which fit together.
func (l *Ledger) settle(jobs []*job) {
	if l.live == nil {
		return
	}
	view := l.live.hoped.Clone()
	placeAll(view, l.dues(jobs))
	l.live.together = view
}

// joins reports whether a job that was just recorded is in nobody's way: it has room
// beside all the others, as they were settled.
func (l *Ledger) joins(j *job) bool {
	if !j.startable {
		return true
	}
	if l.live == nil || l.live.together == nil {
		return false
	}
	g := l.due(j)
	placed := placeOf(l.live.together, g)
	if placed == nil {
		l.unsettle()
		return false
	}
	l.live.together.Apply(g, *placed)
	return true
}

// unsettle forgets how jobs were settled.
func (l *Ledger) unsettle() {
	if l.live != nil {
		l.live.together, l.live.packed = nil, nil
	}
}

// starting returns the jobs that can start by themselves, in the order in which they are placed.
func (l *Ledger) starting() []*job {
	return slices.DeleteFunc(l.inOrder(), func(j *job) bool { return !j.startable || l.unseen(j) })
}

// unseen reports whether nobody could look where a job may run: it has no pools, and the
// plan does not know the cluster.
func (l *Ledger) unseen(j *job) bool { return len(j.Pools) == 0 && l.live == nil }

// course is what comes of placing jobs one after the other.
type course struct {
	// waiting is the first that has to wait, nil for none; verdict says why.
	waiting *job
	verdict placement.Verdict
	// below are those who may be evicted for what starts once its members run, where that has no room.
	below []string
	// evicted are those for whom running gangs are evicted.
	evicted []eviction
	// parts are those that get fewer members than are planned, within their quota.
	parts []part
}

// part is a job of which so many members have quota beside others.
type part struct {
	job     *job
	members int
}

// id tells parts apart.
func (p part) id() string { return fmt.Sprintf("%s in part", p.job.Gang.ID) }

type eviction struct {
	job     *job
	victims []placement.Victim
	// may means that it depends on the job being placed last.
	may bool
}

// id tells evictions apart.
func (e eviction) id() string { return fmt.Sprintf("%s %t %v", e.job.Gang.ID, e.may, e.victims) }

// place places jobs in order on everything that any of them was given: on the cluster
// without the jobs that may leave, if it is known.
func (l *Ledger) place(jobs []*job) course {
	view, gangs := l.ground(jobs)
	return l.placeOn(view, jobs, gangs)
}

// placeOn is place on a view, with the gangs as they are seen there.
func (l *Ledger) placeOn(view *snapshot.View, jobs []*job, gangs []placement.Gang) (c course) {
	var tried trial
	defer tried.undo()
	for i, j := range jobs {
		if placed := placeOf(view, gangs[i]); placed != nil {
			if l.live != nil && j.MayPreempt {
				if later := l.growth(view, gangs[i], placement.Result{Placement: placed}); len(later) > 0 {
					c.evicted = append(c.evicted, eviction{job: j, victims: later})
				}
			}
			if l.promised(j) && len(placed.Assignments) < len(j.placement.Assignments) && len(planner.Place(view, withoutQuota(gangs[i])).Assignments) > len(placed.Assignments) {
				c.parts = append(c.parts, part{j, len(placed.Assignments)})
			}
			if l.live == nil { // launchers may find room that the plan does not know
				tried = append(tried, view.Apply(gangs[i], *placed))
				continue
			}
			_, stop, why := planner.Start(view, gangs[i], *placed)
			if why != nil {
				c.waiting, c.verdict, c.below = j, *why, l.live.below(gangs[i].Priority)
				return c
			}
			tried = append(tried, stop)
			continue
		}
		var result placement.Result
		if l.live != nil && j.MayPreempt {
			result = preemption.Plan(view, gangs[i])
		}
		if result.Reservation == nil || l.planned(result.Victims) {
			c.waiting, c.verdict = j, planner.Plan(view, gangs[i]).Verdict
			return c
		}
		view.AddReservation(*result.Reservation)
		tried = append(tried, func() { view.Release(j.Gang.ID) })
		if len(result.Victims) > 0 {
			c.evicted = append(c.evicted, eviction{job: j, victims: result.Victims})
		}
	}
	return c
}

// due is the gang of a job with the place that it is promised: the job's scheduler gives it that if it can.
func (l *Ledger) due(j *job) placement.Gang {
	g := l.gang(j)
	if l.live != nil && j.MayPreempt && l.promised(j) {
		g.Planned = j.spots(anyNode)
	}
	return g
}

func (l *Ledger) dues(jobs []*job) []placement.Gang {
	gangs := make([]placement.Gang, len(jobs))
	for i, j := range jobs {
		gangs[i] = l.due(j)
	}
	return gangs
}

// placeAll places those gangs that find room, one after the other, until undo: with the members beyond their planned ones
// that find room as well.
func placeAll(view *snapshot.View, gangs []placement.Gang) (undo func()) {
	var tried trial
	for _, g := range gangs {
		placed := placeOf(view, g)
		if placed == nil {
			continue
		}
		tried = append(tried, view.Apply(g, *placed))
		if len(placed.Assignments)+len(g.Running) < members(g) {
			g.Running, g.Planned = slices.Concat(g.Running, placed.Assignments), nil
			if more := planner.Place(view, g); more != nil {
				tried = append(tried, view.Apply(g, *more))
			}
		}
	}
	return tried.undo
}

// trial is what a view has been given to look at what comes of it, each as what takes it away again.
type trial []func()

// undo takes all away, the last first.
func (t *trial) undo() {
	for _, away := range slices.Backward(*t) {
		away()
	}
}

// placeOf is where a gang comes to be, nil for nowhere: where it was planned, if it can have that.
func placeOf(view *snapshot.View, g placement.Gang) *placement.Placement {
	if followed, _, ok := planner.Follow(view, &g, nil); ok {
		return followed.Placement
	}
	return planner.Place(view, g)
}

// ground is the view on which jobs are placed together, and how each is seen there.
func (l *Ledger) ground(jobs []*job) (*snapshot.View, []placement.Gang) {
	gangs := l.dues(jobs)
	if l.live != nil {
		return l.live.hoped, gangs
	}
	nodes, occupants := union(jobs)
	for i, j := range jobs {
		gangs[i] = onOwnNodes(gangs[i], j.Nodes, nodes)
	}
	view := viewOf(nodes, occupants)
	view.SetQuota(l.tree)
	return view, gangs
}

// evictions reports who is evicted when jobs come together, beyond those who would be
// for one of them alone.
func (l *Ledger) evictions(evicted []eviction, jobs []*job) []Finding {
	if l.live != nil && !l.complete {
		return nil // who goes is another question while jobs may leave
	}
	var findings []Finding
	for _, e := range evicted {
		known := func(v placement.Victim) bool { return e.job.evicts[v.Gang] }
		if !slices.ContainsFunc(e.victims, func(v placement.Victim) bool { return !known(v) }) {
			continue
		}
		beside := idsOf(contenders(e.job, jobs))
		occasion := "has no free place beside " + join(beside)
		if e.may {
			occasion += ", when it is placed last"
		}
		f := *l.preempts(e.job, occasion, e.victims, beside...)
		f.Error = f.Error && !e.may
		if e.may {
			f.Detail += fmt.Sprintf(" To have %s placed before the others, name it in their after.", e.job.Gang.ID)
		}
		findings = append(findings, f)
	}
	return findings
}

// waits says that a job has to wait for others.
func (l *Ledger) waits(c course, jobs []*job, key string) Finding {
	ids, immediate, queued := []string{c.waiting.Gang.ID}, c.waiting.RequireImmediate, c.waiting.Queued
	for _, j := range l.inItsWay(c, jobs) {
		ids = append(ids, j.Gang.ID)
		immediate = immediate || j.RequireImmediate
		queued = queued && j.Queued
	}
	until := "one of them will wait until the others finish"
	byQuota := !slices.ContainsFunc(c.verdict.Reasons, func(r placement.Reason) bool { return r.Code != placement.OverQuota })
	if queued && byQuota {
		until = "the job queue holds one of them, as queue = true asks, until the quota has room for it"
	}
	if len(c.below) > 0 {
		until += ", or kube-scheduler evicts pods of lower priority for what starts once its members run: of " + join(c.below)
	}
	alone := "on its own"
	if c.waiting.needs {
		alone = "once others have left"
	}
	return Finding{
		Kind:    Waits,
		Jobs:    ids,
		Error:   immediate,
		Summary: "Jobs fit alone, but not together",
		Detail: fmt.Sprintf("Job %s fits %s, but not at the same time as %s: %s. "+
			"With the others placed, this is left for %s: %s", ids[0], alone, join(ids[1:]), until, ids[0], c.verdict),
		key: key,
	}
}

// mayWait says which jobs have to wait when they are placed last.
func (l *Ledger) mayWait(waits []course, jobs []*job) (findings []Finding) {
	for _, c := range waits {
		id := c.waiting.Gang.ID
		ids := append([]string{id}, idsOf(l.inItsWay(c, jobs))...)
		findings = append(findings, Finding{
			Kind: Waits, Jobs: ids, Error: c.waiting.RequireImmediate, Summary: "Jobs fit together in another order only",
			Detail: fmt.Sprintf("Job %s fits at the same time as %s, but not when it is placed last: it may have to wait until others finish. "+
				"With all members of the others placed that find room, this is left for %[1]s: %[3]s To have it placed before the others, name it in their after.",
				id, join(ids[1:]), c.verdict),
			key: "last " + id + " " + join(ids[1:]),
		})
	}
	return findings
}

// below names those that run with a lower priority: kube-scheduler may evict them for a pod without GPUs.
func (p *picture) below(priority int32) (names []string) {
	for _, pod := range p.Pods {
		if _, stays := p.hoped.Pod(pod.ID); stays && pod.Priority < priority && !slices.Contains(names, pod.Name) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// leftOut says of jobs that quota leaves members of them out while others run.
func (l *Ledger) leftOut(parts []part, jobs []*job) (findings []Finding) {
	for _, p := range parts {
		g := l.gang(p.job)
		ids := append([]string{p.job.Gang.ID}, idsOf(contenders(p.job, jobs))...)
		findings = append(findings, Finding{
			Kind: InPart, Jobs: ids, Error: p.job.RequireImmediate, Summary: notAllHaveQuota,
			Detail: fmt.Sprintf("%d of %d members of job %s are planned, but only %d have quota %s at the same time as %s: the others start when it has more.",
				len(p.job.placement.Assignments), members(g), ids[0], p.members, l.limits().Path(g.Leaf), join(ids[1:])),
			key: "in part " + ids[0],
		})
	}
	return findings
}
