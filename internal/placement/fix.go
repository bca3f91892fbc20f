package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// maxPoolFixes bounds the pools for which a verdict proposes a size.
const maxPoolFixes = 3

// fixer looks for changes that make a gang fit. Every fix is found by planning the
// changed case.
type fixer struct {
	*planner
	next    member
	chosen  selection
	missing int
	// lifted is the quota tree after raise, which lists the maxima that the gang exceeds.
	lifted *quota.Tree
	raise  []Fix
}

// fixes returns the changes that make the gang fit, the nearest first: what the
// cluster lacks comes before what the job could do without.
func (p *planner) fixes(next member, chosen selection, reasons []Reason) []Fix {
	if p.leafMissing(&p.gang) {
		return nil
	}
	limited := len(p.gang.Limits) > 0 || slices.ContainsFunc(p.rules, func(r rules) bool { return len(r.limits) > 0 })
	f := &fixer{planner: p, next: next, chosen: chosen, missing: p.needed - chosen.placed, lifted: p.quota}
	var list []Fix
	if limited {
		return f.fewerMembers() // nobody knows what the filters of others say of anything else
	}
	if f.raiseQuota() {
		if len(f.raise) > 0 && f.feasible(f.cluster, f.topology, f.lifted, f.gang) {
			list = append(list, together(f.raise))
		} else {
			for _, fix := range slices.Concat(f.poolSizes(), f.tolerations(), f.modes()) {
				list = append(list, together(append([]Fix{fix}, f.raise...)))
			}
		}
	}
	return slices.Concat(list, f.smallerRequests(reasons), f.fewerGPUs(), f.fewerMembers())
}

// together makes one fix of changes that are needed at the same time.
func together(changes []Fix) Fix {
	fix := changes[0]
	for _, also := range changes[1:] {
		fix.With = append(fix.With, also)
		fix.Text += " and " + also.Text
	}
	return fix
}

// feasible reports whether a gang fits on a cluster under the tree. The topology is that
// of the gang's rules, nil when they differ from those of the gang that does not fit.
func (f *fixer) feasible(c cluster, t *topology, tree *quota.Tree, g Gang) bool {
	c.quota = tree
	return feasible(c, t, g)
}

// raiseQuota finds the maxima to raise; false when a minimum binds, which no maximum helps.
func (f *fixer) raiseQuota() bool {
	for {
		raised := *f.planner
		raised.quota, raised.later = f.lifted, nil
		e := raised.overQuota(f.needed)
		if e == nil {
			return true
		}
		tree, from, to := f.lifted.Raise(*e)
		if tree == nil {
			return false
		}
		f.lifted = tree
		f.raise = append(f.raise, Fix{
			Kind: FixQuotaMax, Target: e.Path, Resource: e.Resource,
			From: strconv.FormatInt(from, 10), To: strconv.FormatInt(to, 10),
			Text: raiseText(e, from, to),
		})
	}
}

// raiseText names a limit as people set it: the root has a total in the place of a max.
func raiseText(e *quota.Exceeded, from, to int64) string {
	if e.Resource == quota.Jobs {
		return fmt.Sprintf("quota max_jobs %d (now %d) for %s", to, from, e.Path)
	}
	limit := "max"
	if e.Path == quota.RootName {
		limit = "total"
	}
	return fmt.Sprintf("quota %s %s (now %s) of %s for %s", limit, quota.Format(e.Resource, to), quota.Format(e.Resource, from), e.Resource, e.Path)
}

// growth is a pool that may grow by nodes like the template.
type growth struct {
	pool     string
	now, add int
	template *node
	// end is the position behind the pool's nodes.
	end int
}

// poolSizes proposes the smallest size of each pool that makes the gang fit, the
// pools that must grow least first.
func (f *fixer) poolSizes() []Fix {
	remaining := f.remaining()
	var candidates []growth
	for _, g := range f.pools() {
		if takes := f.try(f.key(g.template, f.admits(g.template)), remaining).members; takes > 0 {
			g.add = (f.missing + takes - 1) / takes
			candidates = append(candidates, g)
		}
	}
	slices.SortStableFunc(candidates, func(a, b growth) int { return cmp.Compare(a.add, b.add) })
	var list []Fix
	for _, g := range candidates {
		add, ok := f.smallestGrowth(g)
		if !ok {
			continue
		}
		list = append(list, Fix{
			Kind: FixPoolSize, Target: g.pool, From: strconv.Itoa(g.now), To: strconv.Itoa(g.now + add),
			Text: fmt.Sprintf("pool size %d (now %d) for pool %s", g.now+add, g.now, g.pool),
		})
		if len(list) == maxPoolFixes {
			break
		}
	}
	return list
}

// pools lists the pools; the planner's order keeps the nodes of one together.
func (f *fixer) pools() []growth {
	var pools []growth
	for start := 0; start < len(f.nodes); {
		end, template := start, f.nodes[start]
		for ; end < len(f.nodes) && f.nodes[end].Pool == template.Pool; end++ {
			if f.compareTemplates(f.nodes[end], template) < 0 {
				template = f.nodes[end]
			}
		}
		if template.Pool != "" {
			pools = append(pools, growth{pool: template.Pool, now: end - start, template: fresh(template), end: end})
		}
		start = end
	}
	return pools
}

// remaining returns how many members of each class have no place.
func (f *fixer) remaining() []int {
	remaining := f.wanted(f.total)
	for _, pick := range f.chosen.picks {
		for class, n := range pick.packing.take {
			remaining[class] -= n
		}
	}
	return remaining
}

// compareTemplates orders the nodes of a pool by how well they stand for a new one:
// in the domain with the most room, with all GPUs healthy.
func (f *fixer) compareTemplates(a, b *node) int {
	outside := func(n *node) int {
		if f.chosen.domain.has(n) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(outside(a), outside(b)), cmp.Compare(b.healthyGPUs().Len(), a.healthyGPUs().Len()))
}

// fresh returns an empty node of the template's pool.
func fresh(template *node) *node {
	n := &node{Node: template.Node, present: true}
	n.Name = template.Pool + "[+]"
	n.Since = math.MaxInt64
	n.Unschedulable = false
	n.free = n.capacity()
	return n
}

// smallestGrowth returns the least number of new nodes with which the gang fits,
// starting from a guess. Each new node takes a member at least.
func (f *fixer) smallestGrowth(g growth) (int, bool) {
	admitted := f.admits(g.template)
	with := func(add int) bool {
		c := f.cluster
		c.nodes = slices.Insert(slices.Clone(f.nodes), g.end, f.grown(g.template, add)...)
		return f.feasible(c, f.topology.with(g.end, add, admitted), f.lifted, f.gang)
	}
	low, high := 1, g.add
	if !with(g.add) {
		low, high = g.add+1, f.missing
		if low > high || !with(high) {
			return 0, false
		}
	} else if len(f.classes) == 1 && len(f.chosen.domain.labels) == 0 && len(f.raise) == 0 {
		return g.add, true // the guess is exact where only nodes are missing
	}
	return low + sort.Search(high-low, func(i int) bool { return with(low + i) }), true
}

// grown are new nodes like a template. Where it matters which pods are near each other,
// each has a host name of its own.
func (f *fixer) grown(template *node, add int) []*node {
	nodes := slices.Repeat([]*node{template}, add)
	if f.among == nil {
		return nodes
	}
	for i := range nodes {
		n := *template
		n.Name = fmt.Sprintf("%s[+%d]", template.Pool, i)
		n.Labels = maps.Clone(n.Labels)
		if _, ok := n.Labels[hostname]; ok {
			n.Labels[hostname] = n.Name
		}
		nodes[i] = &n
	}
	return nodes
}

// tolerations proposes to tolerate the taint that keeps the gang from most nodes.
func (f *fixer) tolerations() []Fix {
	counts := map[Taint]int{}
	ruleSet := f.classes[f.next.class].rules
	for i, n := range f.nodes {
		if f.topology.admitted[i]&(1<<uint(ruleSet)) != 0 {
			continue
		}
		if _, taint := f.rules[ruleSet].rejects(&n.Node); taint != nil {
			counts[*taint]++
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b Taint) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, t := range order {
		g := f.changed(func(r *Role) {
			r.Tolerations = append(slices.Clone(r.Tolerations), Toleration{Key: t.Key, Operator: "Equal", Value: t.Value, Effect: t.Effect})
		})
		if f.feasible(f.cluster, nil, f.lifted, g) {
			return []Fix{{Kind: FixToleration, Target: f.roles(), To: t.String(),
				Text: fmt.Sprintf("a toleration of %s (%s)", t, plural(counts[t], "node"))}}
		}
	}
	return nil
}

// modes proposes the other mode of whole GPUs.
func (f *fixer) modes() []Fix {
	from := f.classes[f.next.class].request.Mode
	to := ModeDefault
	switch from {
	case ModeTopology:
	case ModeDefault:
		to = ModeTopology
	default:
		return nil
	}
	g := f.changed(func(r *Role) {
		if r.Request.Mode == from {
			r.Request.Mode = to
		}
	})
	if !f.feasible(f.cluster, f.topology, f.lifted, g) {
		return nil
	}
	return []Fix{{Kind: FixMode, Target: f.roles(), From: string(from), To: string(to),
		Text: fmt.Sprintf("mode %s (now %s)", to, from)}}
}

// fewerGPUs proposes the most GPUs per member with which the gang fits.
func (f *fixer) fewerGPUs() []Fix {
	now := f.classes[f.next.class].request.GPUs
	if !f.classes[f.next.class].request.Mode.whole() || now < 2 {
		return nil
	}
	with := func(less int) bool {
		g := f.changed(func(r *Role) {
			if r.Request.Mode.whole() && r.Request.GPUs == now {
				r.Request.GPUs -= less
			}
		})
		return f.feasible(f.cluster, f.topology, f.quota, g)
	}
	less := 1 + sort.Search(now-1, func(i int) bool { return with(i + 1) })
	if less == now {
		return nil
	}
	return []Fix{{Kind: FixGPUs, Target: f.roles(), From: strconv.Itoa(now), To: strconv.Itoa(now - less),
		Text: fmt.Sprintf("%s per member (now %d)", plural(now-less, "GPU"), now)}}
}

// fewerMembers proposes as many members as fit.
func (f *fixer) fewerMembers() []Fix {
	g := f.gang
	if len(g.Subgroups) > 0 {
		return f.smallerSubgroup()
	}
	if fit := f.live + f.chosen.placed; g.Minimum > 0 && fit > 0 {
		g.Minimum = fit
		if f.feasible(f.cluster, f.topology, f.quota, g) {
			return []Fix{{Kind: FixMembers, Target: "minimum", From: strconv.Itoa(f.gang.Minimum), To: strconv.Itoa(fit),
				Text: fmt.Sprintf("a minimum of %s (now %d)", plural(fit, "member"), f.gang.Minimum)}}
		}
		return nil
	}
	for i, role := range g.Roles {
		now := len(role.Members)
		fit := now - f.missing
		if fit < 1 || role.Late || !slices.Contains(role.Members, f.next.name) {
			continue
		}
		g.Roles = slices.Clone(g.Roles)
		g.Roles[i].Members = role.Members[:fit]
		if f.feasible(f.cluster, f.topology, f.quota, g) {
			return []Fix{{Kind: FixMembers, Target: role.Name, From: strconv.Itoa(now), To: strconv.Itoa(fit),
				Text: fmt.Sprintf("%s (now %d) for role %s", plural(fit, "member"), now, role.Name)}}
		}
	}
	return nil
}

// smallerSubgroup proposes the highest minimum of the subgroup of the next member with which the
// gang fits, and that of the whole gang lowered as much.
func (f *fixer) smallerSubgroup() []Fix {
	role := slices.IndexFunc(f.gang.Roles, func(r Role) bool { return slices.Contains(r.Members, f.next.name) })
	at := slices.IndexFunc(f.gang.Subgroups, func(s Subgroup) bool { return role >= 0 && slices.Contains(s.Roles, f.gang.Roles[role].Name) })
	if at < 0 {
		return nil
	}
	s := f.gang.Subgroups[at]
	with := func(less int) bool {
		g := f.gang
		g.Subgroups = slices.Clone(g.Subgroups)
		g.Subgroups[at].Minimum -= less
		g.Minimum = max(g.Minimum-less, 1)
		return f.feasible(f.cluster, f.topology, f.quota, g)
	}
	less := 1 + sort.Search(max(s.Minimum-1, 0), func(i int) bool { return with(i + 1) })
	if less >= s.Minimum {
		return nil
	}
	return []Fix{{Kind: FixMembers, Target: "minimum of " + s.Name, From: strconv.Itoa(s.Minimum), To: strconv.Itoa(s.Minimum - less),
		Text: fmt.Sprintf("a minimum of %s (now %d) for role %s", plural(s.Minimum-less, "member"), s.Minimum, s.Name)}}
}

// changed returns the gang with a change to its roles.
func (f *fixer) changed(change func(*Role)) Gang {
	g := f.gang
	g.Roles = slices.Clone(g.Roles)
	for i := range g.Roles {
		if !g.Roles[i].Late {
			change(&g.Roles[i])
		}
	}
	return g
}

// roles names the roles whose members have the shape of the next one.
func (f *fixer) roles() string {
	var names []string
	for _, role := range f.gang.Roles {
		if compareSize(&role.Request, f.classes[f.next.class].request) == 0 && !role.Late {
			names = append(names, role.Name)
		}
	}
	return strings.Join(names, ", ")
}
