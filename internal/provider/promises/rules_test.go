package promises

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// excuse is what of its promise need not be kept to a job.
type excuse int

const (
	nothing excuse = iota
	place          // it starts at once, but may do so elsewhere than planned
	start          // it may have to wait
)

// rule is what a plan of these worlds may say.
type rule struct {
	// due reports whether the plan was right to say it.
	due func(s *snapshot, d diagnostic) bool
	// excuses is of the job of which it speaks first, and of all that it names where all is true.
	excuses excuse
	all     bool
	// evicts means that the running gangs that it names may be evicted.
	evicts bool
	// back takes back what it refuses; without it the job of which it speaks is left out.
	back func(s *snapshot, d diagnostic) configuration
}

// holds reports whether the plan was right to say it: by what the plan makes of the pools, or where it speaks of jobs that
// name none, by the nodes as they are.
func (r rule) holds(s *snapshot, d diagnostic) bool {
	unordered := slices.DeleteFunc(s.starting(), func(i instance) bool { return len(i.pools) > 0 || !d.names(i.id) })
	return r.due(s, d) || len(unordered) > 0 && r.due(s.asItIs(unordered), d)
}

// rules are by the kinds of diagnostics. A plan is refused for nothing else, and nothing else excuses a job.
func rules() map[string]rule {
	return map[string]rule{
		"gang does not fit":       {due: noRoom, excuses: start},
		"launcher does not fit":   {due: noRoomForLauncher, excuses: start},
		"job exceeds its quota":   {due: exceedsQuota, excuses: start},
		"job waits for its quota": {due: waitsForQuota, excuses: start},

		"job starts when others have left":        {due: needsOthers, excuses: place},
		startsIfOthersLeave:                       {due: needsOthers, excuses: start},
		"gangs that wait come first":              {due: comesLater, excuses: start},
		runsElsewhere:                             {due: comesBeside, excuses: place},
		"not all members have quota":              {due: runsInPart, excuses: place},
		"jobs fit alone, but not together":        {due: contend, excuses: start, all: true},
		"jobs fit together in another order only": {due: contend, excuses: start},
		wouldEvict:                 {due: evicts, excuses: place, evicts: true},
		notWherePlanned:            {due: admittedOtherwise, excuses: place},
		"placement is not checked": {due: unknownPools, excuses: start},

		"two jobs are planned on the same GPUs":        {due: meet, excuses: place, all: true},
		"two jobs are planned on the same nodes":       {due: meet, excuses: place, all: true},
		"a job is planned where many others are":       {due: meetMany, excuses: place, all: true},
		"several jobs are planned on the same nodes":   {due: throng, excuses: place, all: true},
		"a job may be placed where another is planned": {due: displaced, excuses: place, all: true},
		"a launcher may run where a job is planned":    {due: launchesInto, excuses: start, all: true},
		"running jobs may be evicted":                  {due: evictMeanwhile, evicts: true},
		"jobs that wait may start on nodes that go":    {due: waitOnNodesThatGo},
		"a running job would lose its nodes":           {due: losesNodes, back: keepNodes},
		"running jobs would lose their nodes":          {due: losesNodes, back: keepNodes},
		"order is left open":                           {due: namedInQuotes, back: withoutQuotes},
		"quota is in use":                              {due: quotaIsUsed, back: keepQuota},
	}
}

const (
	runsElsewhere       = "gangs that wait come first, and leave room"
	startsIfOthersLeave = "job starts when others have left, which this plan does not say"
	wouldEvict          = "running jobs would be evicted"
	notWherePlanned     = "job will not start where it is planned"
	byTheTreeThatIs     = ", as the cluster has it"
)

// late is what an apply may say of a job that it creates, when the cluster has changed since the plan.
var late = map[string]excuse{
	"job will wait": start, "job was not started": start, "planned placement is not confirmed": start, "job will not start where it was planned": place,
}

// kind is the summary of a diagnostic without the names of jobs, by which what it says is known.
func (d diagnostic) kind() string {
	summary := strings.TrimSuffix(d.Summary, byTheTreeThatIs)
	if job, rest, ok := strings.Cut(summary, ": "); ok && strings.HasPrefix(job, "Job ") {
		summary = rest
	}
	if summary == "" {
		return ""
	}
	summary = strings.ToLower(summary[:1]) + summary[1:]
	if summary == "job starts when others have left" && strings.Contains(d.Detail, " It starts only once ") {
		return startsIfOthersLeave
	}
	if summary == "gangs that wait come first" && strings.Contains(d.Detail, " may be placed elsewhere than planned") {
		return runsElsewhere
	}
	return summary
}

// excuse is what these excuse of the promise of a job; late ones count where an apply says them. Of a job with placement_check =
// "warn" Terraform shows nothing that turns out with the visit of one that -replace replaces: it leaves out warnings then.
func (s *snapshot) excuse(i instance, said diagnostics) (most excuse) {
	if i.lenient && s.replaced != "" {
		return start
	}
	for _, d := range said {
		r := rules()[d.kind()]
		about, found := s.next.about(d)
		if found && about.id == i.id || r.all && d.names(i.id) {
			most = max(most, r.excuses, late[d.kind()])
		}
	}
	return most
}

// excuseEviction reports whether one of these says that the gang may be evicted.
func (all diagnostics) excuseEviction(gang string) bool {
	return slices.ContainsFunc(all, func(d diagnostic) bool { return rules()[d.kind()].evicts && d.names(gang) })
}

// tree is the configuration whose quota tree a diagnostic speaks of.
func (s *snapshot) tree(d diagnostic) configuration {
	if strings.HasSuffix(d.Summary, byTheTreeThatIs) {
		return s.current
	}
	return s.next
}

// before are the jobs that the plan starts and places before a job, the first of them first.
func (s *snapshot) before(i instance) (all []instance) {
	jobs := s.next.instances()
	for address := i.afterAddress(); address != ""; {
		b := jobs[slices.IndexFunc(jobs, func(j instance) bool { return j.address == address })]
		if !s.starts(b) {
			break // what comes before it has no part in the plan's order
		}
		all = append(all, b)
		address = b.afterAddress()
	}
	slices.Reverse(all)
	return all
}

// inTurn are the jobs before a job in their planned places, and the job itself.
func (s *snapshot) inTurn(i instance, all bool) (gangs []gang) {
	for _, b := range s.before(i) {
		gangs = append(gangs, s.held(b))
	}
	return append(gangs, s.gang(i, all))
}

// charges are those of jobs with all their members.
func (s *snapshot) charges(jobs ...instance) (all []charge) {
	for _, i := range jobs {
		all = append(all, s.next.charge(i, s.gang(i, true).needs))
	}
	return all
}

// starts reports whether the plan starts a job. A plan that is refused may not say so; then it does unless the job stays as it is.
func (s *snapshot) starts(i instance) bool {
	if change, known := s.plan.changes[i.address]; (known || len(s.plan.errors()) == 0) && i.id != s.replaced {
		return change.starts(i)
	}
	was, known := s.current.find(i.id)
	there := slices.ContainsFunc(s.pods, func(p corev1.Pod) bool { return idOf(p) == i.id && !s.left(p) })
	return !i.suspended && (!known || was.suspended || !there || i.id == s.replaced)
}

// starting are the jobs that the plan starts.
func (s *snapshot) starting() []instance {
	return slices.DeleteFunc(s.next.instances(), func(i instance) bool { return !s.starts(i) })
}

// noRoom: the job has no room when all have left that leave, beside those that are placed before it. Of a job by
// itself its quota is another matter.
func noRoom(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	if before := s.before(i); found && len(before) > 0 && !s.next.within(s.holding(s.leftFor(i)), s.charges(append(before, i)...)...) {
		return true
	}
	return found && !s.always(s.leftFor(i), s.inTurn(i, false)...)
}

// noRoomForLauncher: the members can be placed so that the launcher has no room beside them.
func noRoomForLauncher(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	return found && !s.always(s.leftFor(i), append(s.inTurn(i, false), s.launcher(i)...)...)
}

// exceedsQuota: those members that must run together are more than the quota by themselves.
func exceedsQuota(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	return found && !s.tree(d).within(nil, s.tree(d).charge(i, s.gang(i, false).needs))
}

// waitsForQuota: they are more than what is left of it by those that stay.
func waitsForQuota(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	return found && !s.tree(d).within(s.holding(s.leftFor(i)), s.tree(d).charge(i, s.gang(i, false).needs))
}

// needsOthers: one that it names leaves, and the job has no room or no quota beside all that runs now.
func needsOthers(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	own := s.own(i)
	named := slices.ContainsFunc(s.holding(own), func(p corev1.Pod) bool { return d.names(idOf(p)) && (s.part || s.left(p) || idOf(p) == s.replaced) })
	fits := s.tree(d).within(s.holding(own), s.tree(d).charge(i, s.gang(i, false).needs)) && s.always(own, append([]gang{s.gang(i, false)}, s.launcher(i)...)...)
	return found && named && !fits
}

// able are those that wait, of which a diagnostic speaks, that can start when all have left that leave, the pods of a job
// that is written again among them. Where the scheduler keeps capacity for those that have waited for long, others count as well.
func (s *snapshot) able(i instance, d diagnostic) []gang {
	return slices.DeleteFunc(s.pending(d), func(g gang) bool { return !s.reserves && !s.ever(s.leftFor(i), g) })
}

// comesLater: a plan fails for gangs that wait only where the job has no room beside them however all are placed, and warns
// where they, and the others that start, can be placed so.
func comesLater(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	waiting := s.able(i, d)
	if !found || len(waiting) == 0 {
		return false
	}
	pods := append(s.holding(s.leftFor(i)), slices.DeleteFunc(slices.Clone(s.pods), func(p corev1.Pod) bool {
		return p.Spec.NodeName != "" || !d.names(idOf(p))
	})...)
	if !s.next.within(pods, s.charges(append(s.before(i), i)...)...) {
		return true
	}
	if strings.Contains(d.Detail, "may have to wait") {
		return !s.next.within(pods, s.charges(s.starting()...)...) || !s.always(s.leftFor(i), append(waiting, s.inTurn(i, false)...)...) || !s.together(waiting...)
	}
	return !s.ever(s.leftFor(i), append(s.inTurn(i, false), waiting...)...)
}

// comesBeside: a gang that waits can start, and may take what the job is planned on.
func comesBeside(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	return found && len(s.able(i, d)) > 0
}

// runsInPart: all members together are more than what the quota has left.
func runsInPart(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	jobs := slices.DeleteFunc(s.starting(), func(other instance) bool { return other.id != i.id && !d.names(other.id) })
	return found && i.minimum > 0 && !s.tree(d).within(s.holding(s.own(i)), s.charges(jobs...)...)
}

// contend: the jobs that start can be placed, in some order, so that one has no room, or are more than their quota.
func contend(s *snapshot, d diagnostic) bool {
	return !s.next.within(s.holding(s.left), s.charges(s.starting()...)...) || !s.together()
}

// together reports whether it is proved that all jobs that start have room beside each other and other gangs, with what starts
// once they run, however they are placed and in which order they come.
func (s *snapshot) together(beside ...gang) bool {
	gangs := slices.Clone(beside)
	first := map[string]int{}
	follows := map[int]int{}
	for _, i := range s.starting() {
		if len(i.pools) == 0 && slices.ContainsFunc(s.next.pools, func(p pool) bool { return p.size > s.count(p) }) {
			return false // it may also come to nodes that are not there yet
		}
		first[i.address] = len(gangs)
		if at, ordered := first[i.afterAddress()]; ordered {
			follows[len(gangs)] = at
		}
		gangs = append(gangs, s.gang(i, false))
		for _, launcher := range s.launcher(i) {
			follows[len(gangs)] = len(gangs) - 1
			gangs = append(gangs, launcher)
		}
	}
	return s.inAnyOrder(s.left, func(a, b int) bool {
		at, ordered := follows[b]
		return ordered && at == a
	}, gangs...)
}

// evicts: someone whom it names runs, stays and can be evicted, and the job, with all its members, has no room or no quota
// without that: by itself, or where the plan says so, beside others that start or wait.
func evicts(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	there := s.holding(s.leftFor(i))
	if strings.Contains(d.Detail, ", waiting now, ") {
		there = s.pods // it may be who waits that comes first, and goes again
	}
	if !found || !slices.ContainsFunc(there, func(p corev1.Pod) bool { return d.names(idOf(p)) && s.mayEvict(i, p) }) {
		return false
	}
	switch charged := s.charges(i); {
	case !s.next.within(s.holding(s.leftFor(i)), charged...):
		return true
	case strings.Contains(d.Detail, " has no free place beside "):
		return contend(s, d)
	case strings.Contains(d.Detail, " finds its place taken by "):
		return !s.always(s.leftFor(i), append(s.able(i, d), s.inTurn(i, true)...)...)
	}
	return !s.always(s.leftFor(i), append([]gang{s.gang(i, true)}, s.launcher(i)...)...)
}

// mayEvict: by its priority, to take quota back, or since the other one runs with more than it needs, where no budget forbids it.
func (s *snapshot) mayEvict(i instance, victim corev1.Pod) bool {
	if victim.Labels[foreignLabel] != "" && s.kept[victim.Namespace] {
		return false
	}
	of, ours := s.current.find(idOf(victim))
	return len(s.next.leaves) > 0 || ours && of.minimum > 0 || victim.Spec.Priority != nil && *victim.Spec.Priority < priorities[i.priority]
}

// admittedOtherwise: admission gives the job, or one before it, more than it asks for, which the plan of its place does not count.
func admittedOtherwise(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	return found && slices.ContainsFunc(append(s.before(i), i), func(j instance) bool { return j.cpu == 0 && s.requested[j.namespace] > 0 })
}

// unknownPools: what is left of a pool that shrinks is not known.
func unknownPools(s *snapshot, d diagnostic) bool {
	i, found := s.next.about(d)
	return found && slices.ContainsFunc(append(s.before(i), i), func(j instance) bool {
		return slices.ContainsFunc(j.pools, func(name string) bool {
			p, _ := s.next.pool(name)
			return s.shrinks(p)
		})
	})
}

// shrinks reports whether the plan takes nodes away from a pool.
func (s *snapshot) shrinks(p pool) bool { return p.size < s.count(p) }

// count is how many nodes of a pool there are.
func (s *snapshot) count(p pool) (count int) {
	for _, n := range s.nodes {
		if n.Labels[contract.NodePoolNameLabel] == p.name {
			count++
		}
	}
	return count
}

// named are the jobs of which a diagnostic speaks that the plan starts.
func (s *snapshot) named(d diagnostic) []instance {
	return slices.DeleteFunc(s.starting(), func(i instance) bool { return !d.names(i.id) })
}

// ordered reports whether one of two jobs is placed after the other.
func (s *snapshot) ordered(a, b instance) bool {
	after := func(x, y instance) bool {
		return slices.ContainsFunc(s.before(x), func(z instance) bool { return z.id == y.id })
	}
	return after(a, b) || after(b, a)
}

// meet: two jobs without an order are planned on the same GPUs, or on nodes that cannot hold both as they are planned.
func meet(s *snapshot, d diagnostic) bool {
	named := s.named(d)
	return len(named) > 1 && s.meets(named[0], named[1], strings.HasSuffix(d.Summary, " GPUs"))
}

// meetMany: the first of those that it names meets each of the others.
func meetMany(s *snapshot, d diagnostic) bool {
	named := s.named(d)
	return len(named) > 2 && !slices.ContainsFunc(named[1:], func(other instance) bool {
		return !s.meets(named[0], other, true) && !s.meets(named[0], other, false)
	})
}

// meets reports whether two jobs are planned on the same GPUs, or else on nodes that cannot hold both as they are planned, beside
// all that runs there but themselves, since what leaves may do so later. Where one of them comes after others, what both have
// held counts as well.
func (s *snapshot) meets(a, b instance, onGPUs bool) bool {
	first, madeFirst := s.promise(a)
	second, madeSecond := s.promise(b)
	if s.ordered(a, b) || !madeFirst || !madeSecond {
		return len(s.plan.errors()) > 0 // of a plan that is refused, not all places are known
	}
	if onGPUs {
		return first.crosses(second)
	}
	gone := func(p corev1.Pod) bool { return a.after == "" && b.after == "" && (s.own(a)(p) || s.own(b)(p)) }
	return !s.always(gone, s.held(a), s.held(b))
}

// throng: those that it names have not all room where they are planned, in some order, beside what starts once others of them run.
func throng(s *snapshot, d diagnostic) bool {
	named := s.named(d)
	var gangs []gang
	follows := map[int]int{}
	for _, i := range named {
		if _, made := s.promise(i); !made {
			return len(s.plan.errors()) > 0 // of a plan that is refused, not all places are known
		}
		gangs = append(gangs, s.held(i))
		for _, launcher := range s.launcher(i) {
			follows[len(gangs)] = len(gangs) - 1
			gangs = append(gangs, launcher)
		}
	}
	gone := func(p corev1.Pod) bool {
		return slices.ContainsFunc(named, func(i instance) bool { return i.after == "" && s.own(i)(p) })
	}
	return len(named) > 2 && !s.inAnyOrder(gone, func(a, b int) bool {
		at, ordered := follows[b]
		return ordered && at == a
	}, gangs...)
}

// displaced: the place of one is open, or may be another by what else the plan says, and it may use a node on which the
// other is planned.
func displaced(s *snapshot, d diagnostic) bool {
	named := s.named(d)
	if len(named) < 2 {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(s.plan.diagnostics), func(other diagnostic) bool { return other == d })
	return slices.ContainsFunc(named, func(by instance) bool {
		promise, made := s.promise(by)
		if made && len(promise) == by.members() && s.excuse(by, others) == nothing {
			return false
		}
		return slices.ContainsFunc(named, func(other instance) bool {
			planned, made := s.promise(other)
			unknown := !made && len(s.plan.errors()) > 0 // of a plan that is refused, not all places are known
			return by.id != other.id && (unknown || made && s.reaches(by.mayUse, planned))
		})
	})
}

// reaches reports whether a job may use one of the nodes on which another is planned.
func (s *snapshot) reaches(on func(room) bool, planned promise) bool {
	return slices.ContainsFunc(s.grounds(s.left), func(rooms []room) bool {
		return slices.ContainsFunc(rooms, func(r room) bool { return on(r) && planned.mayUse(r) })
	})
}

// launchesInto: the launcher of one that it names has room on a node on which the other is planned, and the other then has not,
// by itself or beside the launcher's own members, at the latest when those have left that leave.
func launchesInto(s *snapshot, d diagnostic) bool {
	named := s.named(d)
	if len(named) < 2 {
		return false
	}
	return slices.ContainsFunc(named, func(by instance) bool {
		return slices.ContainsFunc(s.launcher(by), func(launcher gang) bool {
			return slices.ContainsFunc(named, func(other instance) bool {
				planned, made := s.promise(other)
				there := launcher
				there.on = func(r room) bool { return launcher.on(r) && planned.mayUse(r) }
				return by.id != other.id && (!made || s.ever(s.left, there) && !s.always(s.own(other), there, s.held(other)) ||
					s.ever(s.left, s.held(by), there) && !s.always(s.own(other), s.held(by), there, s.held(other)))
			})
		})
	})
}

// evictMeanwhile: a gang waits, the plan frees or adds something, and someone runs whom it names and that stays.
func evictMeanwhile(s *snapshot, d diagnostic) bool {
	stays := slices.ContainsFunc(s.holding(s.left), func(p corev1.Pod) bool { return d.names(idOf(p)) })
	changes := len(s.plan.errors()) > 0
	for _, c := range s.plan.changes {
		changes = changes || !c.does("no-op")
	}
	return stays && changes && len(s.pending(d)) > 0
}

// waitOnNodesThatGo: a gang waits, and a pool shrinks.
func waitOnNodesThatGo(s *snapshot, d diagnostic) bool {
	return len(s.pending(d)) > 0 && slices.ContainsFunc(s.next.pools, func(p pool) bool { return d.names(p.name) && s.shrinks(p) })
}

// losesNodes: someone whom it names runs on a pool that loses nodes, of which nobody knows which, or the labels by which it
// was placed, and stays.
func losesNodes(s *snapshot, d diagnostic) bool {
	nodes := map[string]string{}
	for _, n := range s.nodes {
		nodes[n.Name] = n.Labels[contract.NodePoolNameLabel]
	}
	return slices.ContainsFunc(s.holding(s.deleted), func(pod corev1.Pod) bool {
		p, ours := s.next.pool(nodes[pod.Spec.NodeName])
		was, _ := s.current.pool(p.name)
		_, selects := pod.Spec.NodeSelector[labelKey]
		lost := s.shrinks(p) || selects && p.labels[labelKey] != was.labels[labelKey]
		return ours && lost && d.names(p.name) && d.names(idOf(pod))
	})
}

// keepNodes takes back what happens to the pools that a diagnostic names.
func keepNodes(s *snapshot, d diagnostic) configuration {
	next := s.next.clone()
	for k, p := range next.pools {
		if was, there := s.current.pool(p.name); there && d.names(p.name) {
			next.pools[k].size, next.pools[k].labels = was.size, was.labels
		}
	}
	return next
}

// quotaIsUsed: those that stay use more than the new maximum of a leaf, or of the whole tree.
func quotaIsUsed(s *snapshot, _ diagnostic) bool {
	pods := s.holding(s.left)
	for _, resource := range []corev1.ResourceName{contract.ResourceTopologyGPU, contract.ResourceDefaultGPU} {
		for _, l := range s.next.leaves {
			if was := s.current.leaf(l.name); l.max < was.max && l.used(resource, pods) > l.max {
				return true
			}
		}
	}
	return false
}

// namedInQuotes: after names a job by its ID, which orders nothing. That is seen in all of the configuration, whatever part is
// planned.
func namedInQuotes(s *snapshot, d diagnostic) bool {
	resource, _, _ := strings.Cut(d.Address, "[")
	return slices.ContainsFunc(append(s.next.instances(), s.rest...), func(i instance) bool { return i.literal && resource == "gpuplan_training_job."+i.key })
}

// withoutQuotes leaves out the jobs that name others so.
func withoutQuotes(s *snapshot, _ diagnostic) configuration {
	next := s.next
	for _, j := range s.next.jobs {
		if j.literal {
			next = next.without(j.key)
		}
	}
	return next
}

// keepQuota takes back that maxima are lowered.
func keepQuota(s *snapshot, _ diagnostic) configuration {
	next := s.next.clone()
	for k, l := range next.leaves {
		next.leaves[k].max = max(l.max, s.current.leaf(l.name).max)
	}
	return next
}
