package explanation

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// maxPoolFixes bounds the pools for which a verdict proposes a size.
const maxPoolFixes = 3

// fixer looks for changes that make a gang fit. Every fix is found by planning the
// changed case.
type fixer struct {
	*packing.Packer
	next    member
	chosen  packing.Selection
	missing int
	// lifted is the quota tree after raise, which lists the maxima that the gang exceeds.
	lifted *quota.Tree
	raise  []placement.Fix
}

// fixes returns the changes that make the gang fit, the nearest first: what the
// cluster lacks comes before what the job could do without.
func fixes(p *packing.Packer, next member, chosen packing.Selection, reasons []placement.Reason) []placement.Fix {
	if p.LeafMissing(&p.Gang) {
		return nil
	}
	limited := len(p.Gang.Limits) > 0 || slices.ContainsFunc(p.Rules, func(r admission.Rules) bool { return len(r.Limits) > 0 })
	f := &fixer{Packer: p, next: next, chosen: chosen, missing: p.Needed - chosen.Placed, lifted: p.Quota}
	var list []placement.Fix
	if limited {
		return f.fewerMembers() // nobody knows what the filters of others say of anything else
	}
	if f.raiseQuota() {
		if len(f.raise) > 0 && f.feasible(f.Cluster, f.Topology, f.lifted, f.Gang) {
			list = append(list, together(f.raise))
		} else {
			for _, fix := range slices.Concat(f.uncordons(), f.ports(), f.poolSizes(), f.tolerations(), f.selectors(), f.modes()) {
				list = append(list, together(append([]placement.Fix{fix}, f.raise...)))
			}
		}
	} else {
		list = f.preemptible()
	}
	return slices.Concat(list, f.smallerRequests(reasons), f.fewerGPUs(), f.fewerMembers())
}

// together makes one fix of changes that are needed at the same time.
func together(changes []placement.Fix) placement.Fix {
	fix := changes[0]
	for _, also := range changes[1:] {
		fix.With = append(fix.With, also)
		fix.Text += " and " + also.Text
	}
	return fix
}

// feasible reports whether a gang fits on a cluster under the tree. The topology is that
// of the gang's rules, nil when they differ from those of the gang that does not fit.
func (f *fixer) feasible(c snapshot.Cluster, t *packing.Topology, tree *quota.Tree, g placement.Gang) bool {
	c.Quota = tree
	return packing.Feasible(c, t, g)
}

// raiseQuota finds the maxima to raise; false when a minimum binds, which no maximum helps.
func (f *fixer) raiseQuota() bool {
	for {
		raised := *f.Packer
		raised.Quota, raised.Later = f.lifted, nil
		e := raised.OverQuota(f.Needed)
		if e == nil {
			return true
		}
		tree, from, to := f.lifted.Raise(*e)
		if tree == nil {
			return false
		}
		f.lifted = tree
		f.raise = append(f.raise, placement.Fix{
			Kind: placement.FixQuotaMax, Target: e.Path, Resource: e.Resource,
			From: strconv.FormatInt(from, 10), To: strconv.FormatInt(to, 10),
			Text: raiseText(e, from, to),
		})
	}
}

// preemptible proposes that the gang may be preempted, which frees it of the minima.
func (f *fixer) preemptible() []placement.Fix {
	g := f.Gang
	g.Preemptible = true
	if !f.feasible(f.Cluster, f.Topology, f.Quota, g) {
		return nil
	}
	return []placement.Fix{{Kind: placement.FixPreemptible, From: "false", To: "true", Text: "preemptible true (now false)"}}
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
	template *capacity.Node
	// end is the position behind the pool's nodes.
	end int
}

// poolSizes proposes the smallest size of each pool that makes the gang fit, the
// pools that must grow least first.
func (f *fixer) poolSizes() []placement.Fix {
	remaining := f.remaining()
	var candidates []growth
	for _, g := range f.pools() {
		if takes := f.Try(f.KeyOf(g.template, f.Admits(g.template)), remaining).Members; takes > 0 {
			g.add = (f.missing + takes - 1) / takes
			candidates = append(candidates, g)
		}
	}
	slices.SortStableFunc(candidates, func(a, b growth) int { return cmp.Compare(a.add, b.add) })
	var list []placement.Fix
	for _, g := range candidates {
		add, ok := f.smallestGrowth(g)
		if !ok || g.now <= catalog.MaxPoolSize && g.now+add > catalog.MaxPoolSize {
			continue
		}
		list = append(list, placement.Fix{
			Kind: placement.FixPoolSize, Target: g.pool, From: strconv.Itoa(g.now), To: strconv.Itoa(g.now + add),
			Text: fmt.Sprintf("pool size %d (now %d) for pool %s", g.now+add, g.now, g.pool),
		})
		if len(list) == maxPoolFixes {
			break
		}
	}
	return list
}

// pools lists the pools; the planner's order keeps the nodes of one together. A new node has what is
// pinned to its template: each node of the pool has that. What is added to a pool with nodes that are none to the gang is
// none, either.
func (f *fixer) pools() []growth {
	var pools []growth
	joining := map[string]*capacity.Node{} // new nodes by the names of their templates
	for start := 0; start < len(f.Nodes); {
		end, template, hidden := start, f.Nodes[start], false
		for ; end < len(f.Nodes) && f.Nodes[end].Pool == template.Pool; end++ {
			if f.compareTemplates(f.Nodes[end], template) < 0 {
				template = f.Nodes[end]
			}
			hidden = hidden || f.Gang.HiddenNodes[f.Nodes[end].Name]
		}
		if template.Pool != "" && !hidden {
			joins := fresh(template)
			joining[template.Name] = joins
			pools = append(pools, growth{pool: template.Pool, now: end - start, template: joins, end: end})
		}
		start = end
	}
	for _, pod := range f.Pods {
		if n := joining[pod.Node]; n != nil && pod.Pinned {
			n.Used.Charge(pod, 1)
			n.Free = n.Capacity()
		}
	}
	return pools
}

// remaining returns how many members of each class have no place.
func (f *fixer) remaining() []int {
	remaining := f.Wanted(f.Total)
	for _, pick := range f.chosen.Picks {
		for class, n := range pick.Packing.Take {
			remaining[class] -= n
		}
	}
	return remaining
}

// compareTemplates orders the nodes of a pool by how well they stand for a new one:
// in the domain with the most room, with all GPUs healthy.
func (f *fixer) compareTemplates(a, b *capacity.Node) int {
	outside := func(n *capacity.Node) int {
		if f.chosen.Domain.Has(n) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(outside(a), outside(b)), cmp.Compare(b.HealthyGPUs().Len(), a.HealthyGPUs().Len()))
}

// fresh returns an empty node of the template's pool.
func fresh(template *capacity.Node) *capacity.Node {
	n := &capacity.Node{Node: template.Node, Present: true}
	rename(n, template.Pool+"[+]")
	n.Since = math.MaxInt64
	n.Unschedulable = false
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t placement.Taint) bool { return strings.HasPrefix(t.Key, conditionTaints) })
	n.Free = n.Capacity()
	return n
}

// smallestGrowth returns the least number of new nodes with which the gang fits,
// starting from a guess. Each new node takes a member at least.
func (f *fixer) smallestGrowth(g growth) (int, bool) {
	admitted := f.Admits(g.template)
	with := func(add int) bool {
		c := f.Cluster
		c.Nodes = slices.Insert(slices.Clone(f.Nodes), g.end, f.grown(g.template, add)...)
		return f.feasible(c, f.Topology.With(g.end, add, admitted), f.lifted, f.Gang)
	}
	low, high := 1, g.add
	if !with(g.add) {
		low, high = g.add+1, f.missing
		if low > high || !with(high) {
			return 0, false
		}
	} else if len(f.Classes) == 1 && len(f.chosen.Domain.Labels) == 0 && len(f.raise) == 0 {
		return g.add, true // the guess is exact where only nodes are missing
	}
	return low + sort.Search(high-low, func(i int) bool { return with(low + i) }), true
}

// rename gives a node another name, which is its host name as well.
func rename(n *capacity.Node, name string) {
	n.Name = name
	if _, ok := n.Labels[packing.Hostname]; ok {
		n.Labels = maps.Clone(n.Labels)
		n.Labels[packing.Hostname] = name
	}
}

// grown are new nodes like a template. Where it matters which pods are near each other,
// each has a host name of its own.
func (f *fixer) grown(template *capacity.Node, add int) []*capacity.Node {
	nodes := slices.Repeat([]*capacity.Node{template}, add)
	if required, _ := f.DomainLabels(); f.Among == nil && !slices.Contains(required, packing.Hostname) {
		return nodes
	}
	for i := range nodes {
		n := *template
		rename(&n, fmt.Sprintf("%s[+%d]", template.Pool, i))
		nodes[i] = &n
	}
	return nodes
}

// tolerations proposes to tolerate the taint that keeps the gang from most nodes.
func (f *fixer) tolerations() []placement.Fix {
	counts := map[placement.Taint]int{}
	ruleSet := f.Classes[f.next.class].Rules
	for i, n := range f.Nodes {
		if f.Topology.Admitted[i]&(1<<uint(ruleSet)) != 0 {
			continue
		}
		if _, taint := f.Rules[ruleSet].Rejects(&n.Node); taint != nil {
			counts[*taint]++
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b placement.Taint) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, t := range order {
		g := f.changed(func(r *placement.Role) {
			r.Tolerations = append(slices.Clone(r.Tolerations), placement.Toleration{Key: t.Key, Operator: "Equal", Value: t.Value, Effect: t.Effect})
		})
		if f.feasible(f.Cluster, nil, f.lifted, g) {
			return []placement.Fix{{Kind: placement.FixToleration, Target: f.roles(), To: t.String(),
				Text: fmt.Sprintf("a toleration of %s (%s)", t, plural(counts[t], "node"))}}
		}
	}
	return nil
}

// selectors proposes to leave out of the node selector what most of the nodes that it keeps the gang from lack.
func (f *fixer) selectors() []placement.Fix {
	counts, labels := map[string]int{}, map[string][]string{}
	rules := &f.Rules[f.Classes[f.next.class].Rules]
	for _, n := range f.Nodes {
		if why, _ := rules.Rejects(&n.Node); why.Code == placement.SelectorMismatch {
			if lacking := rules.MissingLabels(&n.Node); len(lacking) > 0 {
				text := strings.Join(lacking, ", ")
				labels[text] = lacking
				counts[text]++
			}
		}
	}
	for _, lacking := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		g := f.changed(func(r *placement.Role) {
			r.NodeSelector = maps.Clone(r.NodeSelector)
			maps.DeleteFunc(r.NodeSelector, func(key, value string) bool { return slices.Contains(labels[lacking], key+"="+value) })
		})
		if f.feasible(f.Cluster, nil, f.lifted, g) {
			return []placement.Fix{{Kind: placement.FixSelector, Target: f.roles(), From: lacking,
				Text: fmt.Sprintf("a node selector without %s (%s)", lacking, plural(counts[lacking], "node"))}}
		}
	}
	return nil
}

// ports proposes another number for a host port that others have on nodes.
func (f *fixer) ports() []placement.Fix {
	for _, port := range f.Classes[f.next.class].Request.HostPorts {
		number, address, one := strings.Cut(port, "@")
		protocol, text, _ := strings.Cut(number, "/")
		from, err := strconv.Atoi(text)
		if err != nil || !slices.ContainsFunc(f.Nodes, func(n *capacity.Node) bool { return capacity.PortTaken(n.Free.Ports, port) }) {
			continue
		}
		numbered := func(n int) string {
			other := fmt.Sprintf("%s/%d", protocol, n)
			if one {
				other += "@" + address
			}
			return other
		}
		to := from + 1
		for to < 1<<16 && f.portInUse(numbered(to)) {
			to++
		}
		g := f.changed(func(r *placement.Role) {
			r.Request.HostPorts = slices.Clone(r.Request.HostPorts)
			for i, p := range r.Request.HostPorts {
				if p == port {
					r.Request.HostPorts[i] = numbered(to)
				}
			}
		})
		if to < 1<<16 && f.feasible(f.Cluster, f.Topology, f.lifted, g) {
			return []placement.Fix{{Kind: placement.FixPort, Target: f.roles(), From: port, To: numbered(to),
				Text: fmt.Sprintf("host port %d (now %d)", to, from)}}
		}
	}
	return nil
}

// portInUse reports whether anybody has a host port on some node, or the gang asks for it.
func (f *fixer) portInUse(port string) bool {
	return slices.ContainsFunc(f.Nodes, func(n *capacity.Node) bool { return capacity.PortTaken(n.Free.Ports, port) }) ||
		slices.ContainsFunc(f.Gang.Roles, func(r placement.Role) bool { return slices.Contains(r.Request.HostPorts, port) })
}

// modes proposes the other mode of whole GPUs.
func (f *fixer) modes() []placement.Fix {
	from := f.Classes[f.next.class].Request.Mode
	to := placement.ModeDefault
	switch from {
	case placement.ModeTopology:
	case placement.ModeDefault:
		to = placement.ModeTopology
	default:
		return nil
	}
	g := f.changed(func(r *placement.Role) {
		if r.Request.Mode == from {
			r.Request.Mode = to
		}
	})
	if !f.feasible(f.Cluster, f.Topology, f.lifted, g) {
		return nil
	}
	return []placement.Fix{{Kind: placement.FixMode, Target: f.roles(), From: string(from), To: string(to),
		Text: fmt.Sprintf("mode %s (now %s)", to, from)}}
}

// fewerGPUs proposes the most GPUs per member with which the gang fits.
func (f *fixer) fewerGPUs() []placement.Fix {
	now := f.Classes[f.next.class].Request.GPUs
	if !f.Classes[f.next.class].Request.Mode.Whole() || now < 2 {
		return nil
	}
	with := func(less int) bool {
		g := f.changed(func(r *placement.Role) {
			if r.Request.Mode.Whole() && r.Request.GPUs == now {
				r.Request.GPUs -= less
			}
		})
		return f.feasible(f.Cluster, f.Topology, f.Quota, g)
	}
	less := 1 + sort.Search(now-1, func(i int) bool { return with(i + 1) })
	if less == now {
		return nil
	}
	return []placement.Fix{{Kind: placement.FixGPUs, Target: f.roles(), From: strconv.Itoa(now), To: strconv.Itoa(now - less),
		Text: fmt.Sprintf("%s per member (now %d)", plural(now-less, "GPU"), now)}}
}

// fewerMembers proposes as many members as fit.
func (f *fixer) fewerMembers() []placement.Fix {
	g := f.Gang
	if len(g.Subgroups) > 0 {
		return f.smallerSubgroup()
	}
	if fit := f.Live + f.chosen.Placed; g.Minimum > 0 && fit > 0 && !g.Whole {
		g.Minimum = fit
		if f.feasible(f.Cluster, f.Topology, f.Quota, g) {
			return []placement.Fix{{Kind: placement.FixMembers, Target: "minimum", From: strconv.Itoa(f.Gang.Minimum), To: strconv.Itoa(fit),
				Text: fmt.Sprintf("a minimum of %s (now %d)", plural(fit, "member"), f.Gang.Minimum)}}
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
		if g.Whole {
			g.Minimum -= f.missing
		}
		if f.feasible(f.Cluster, f.Topology, f.Quota, g) {
			return []placement.Fix{{Kind: placement.FixMembers, Target: role.Name, From: strconv.Itoa(now), To: strconv.Itoa(fit),
				Text: fmt.Sprintf("%s (now %d) for role %s", plural(fit, "member"), now, role.Name)}}
		}
	}
	return nil
}

// smallerSubgroup proposes the highest minimum of the subgroup of the next member with which the
// gang fits, and that of the whole gang lowered as much.
func (f *fixer) smallerSubgroup() []placement.Fix {
	role := slices.IndexFunc(f.Gang.Roles, func(r placement.Role) bool { return slices.Contains(r.Members, f.next.name) })
	at := slices.IndexFunc(f.Gang.Subgroups, func(s placement.Subgroup) bool { return role >= 0 && slices.Contains(s.Roles, f.Gang.Roles[role].Name) })
	if at < 0 {
		return nil
	}
	s := f.Gang.Subgroups[at]
	with := func(less int) bool {
		g := f.Gang
		g.Subgroups = slices.Clone(g.Subgroups)
		g.Subgroups[at].Minimum -= less
		g.Minimum = max(g.Minimum-less, 1)
		return f.feasible(f.Cluster, f.Topology, f.Quota, g)
	}
	less := 1 + sort.Search(max(s.Minimum-1, 0), func(i int) bool { return with(i + 1) })
	if less >= s.Minimum {
		return nil
	}
	return []placement.Fix{{Kind: placement.FixMembers, Target: "minimum of " + s.Name, From: strconv.Itoa(s.Minimum), To: strconv.Itoa(s.Minimum - less),
		Text: fmt.Sprintf("a minimum of %s (now %d) for role %s", plural(s.Minimum-less, "member"), s.Minimum, s.Name)}}
}

// changed returns the gang with a change to its roles.
func (f *fixer) changed(change func(*placement.Role)) placement.Gang {
	g := f.Gang
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
	for _, role := range f.Gang.Roles {
		if placement.CompareSize(&role.Request, f.Classes[f.next.class].Request) == 0 && !role.Late {
			names = append(names, role.Name)
		}
	}
	return strings.Join(names, ", ")
}
