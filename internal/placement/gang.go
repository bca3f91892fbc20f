package placement

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Gang is a set of members that run all together or not at all.
type Gang struct {
	// ID is "namespace/name", or that of a pod on its own ([OfPod]).
	ID string
	// Roles are sorted by name, so that every adapter describes a gang alike.
	Roles []Role
	// Minimum is the number of members that must run; 0 means all that are not late.
	Minimum int
	// Whole means that the minimum is the number of members whatever that is, as of a JobSet, which cannot say how many
	// must run: fewer of them start only where it has fewer.
	Whole bool
	// Subgroups are parts of the gang of which so many members must run.
	Subgroups []Subgroup
	// Leaf is the quota leaf that is charged, "" for none.
	Leaf        string
	Priority    int32
	Preemptible bool
	// NeverPreempts keeps the gang from Preemption.
	NeverPreempts bool
	// RequiredDomain is a node label; all members must be on nodes with one value of it. "" for none.
	RequiredDomain string
	// Domains are further levels from the widest to the narrowest (zone, block, rack).
	// Of the preferred ones the narrowest is chosen that holds the whole gang.
	Domains []Domain
	// Spread asks for as many nodes as possible; otherwise the gang takes as few as possible.
	Spread bool
	// Running are members that run already; the planner places the others next to them. What
	// they use is charged by the view's pods, not by this.
	Running []Assignment
	// Limits are the most members of several roles together that nodes take.
	Limits []NodeLimit
	// Planned is where an earlier plan put members. They get these places as long as every
	// member that the gang needs can have its own; else they are planned as if there was none.
	Planned []Planned
	// ExcludeNodes are nodes that no member must use; [Role.NodeLimits] are about one role.
	ExcludeNodes map[string]bool
	// HiddenNodes are nodes that are none to the gang: no member uses them, and no verdict speaks of them.
	HiddenNodes map[string]bool
	// More is how many members beyond its minimum a running gang may preempt others for.
	More int
}

// Excludes reports whether no member must use a node.
func (g *Gang) Excludes(node string) bool { return g.ExcludeNodes[node] || g.HiddenNodes[node] }

// NodeLimit is the most members of some roles together that the planner may put on a node,
// beside those that run there.
type NodeLimit struct {
	Node  string
	Roles []string
	Most  int
}

// OfPod stands in the ID of a pod on its own between its namespace and its name, which may be
// that of a gang as well.
const OfPod = "/pod/"

// OnItsOwn reports whether the gang is a pod on its own.
func (g *Gang) OnItsOwn() bool { return strings.Contains(g.ID, OfPod) }

// NameOf returns "namespace/name" of a gang, or of a pod on its own, by its ID.
func NameOf(id string) string { return strings.Replace(id, OfPod, "/", 1) }

// Subgroup is a part of a gang with a minimum of its own: of its members so many must run,
// within what the gang needs as a whole.
type Subgroup struct {
	// Name is what users call it, the role of its members.
	Name string
	// Roles are the names of the gang's roles that belong to it; no role belongs to two.
	Roles   []string
	Minimum int
}

// Missing returns how many more members must run than do, those that are late left out.
func (g *Gang) Missing() int {
	runs := g.runs()
	all, running := 0, 0
	for _, role := range g.Roles {
		if !role.Late {
			all += len(role.Members)
			running += countIn(runs, role.Members)
		}
	}
	minimum := all
	if g.Minimum > 0 {
		minimum = g.Minimum
	}
	short := 0
	for i := range g.Subgroups {
		short += max(g.Subgroups[i].Minimum-g.Subgroups[i].Running(g.Roles, runs), 0)
	}
	return max(minimum-running, short, 0)
}

// runs are the members that run, by name.
func (g *Gang) runs() map[string]bool {
	runs := make(map[string]bool, len(g.Running))
	for _, a := range g.Running {
		runs[a.Member] = true
	}
	return runs
}

// Late returns the part of the gang that starts once the rest runs, and runs so. It has no roles when there is no
// such part.
func (g *Gang) Late(running []Assignment) Gang {
	late := *g
	late.Roles = slices.DeleteFunc(slices.Clone(g.Roles), func(r Role) bool { return !r.Late })
	late.Running, late.Minimum, late.Subgroups, late.Planned = running, 0, nil, nil
	return late
}

// LateMissing returns how many of those that start late do not run yet.
func (g *Gang) LateMissing() int {
	runs, missing := g.runs(), 0
	for _, role := range g.Roles {
		if role.Late {
			missing += len(role.Members) - countIn(runs, role.Members)
		}
	}
	return missing
}

// Charge is what all members of the gang, also those that start late, take of their quota together.
func (g *Gang) Charge() quota.Resources {
	sum := quota.Resources{}
	for i := range g.Roles {
		for name, amount := range g.Roles[i].Request.Charge() {
			sum[name] += amount * int64(len(g.Roles[i].Members))
		}
	}
	return sum
}

// LateCharge is what those that start late, and do not run yet, will be charged in the quota tree, nil for none.
func (g *Gang) LateCharge() quota.Resources {
	runs := g.runs()
	var sum quota.Resources
	for i := range g.Roles {
		role := &g.Roles[i]
		missing := len(role.Members) - countIn(runs, role.Members)
		if !role.Late || missing == 0 {
			continue
		}
		if sum == nil {
			sum = quota.Resources{}
		}
		for resource, amount := range role.Request.Charge() {
			sum[resource] += int64(missing) * amount
		}
	}
	return sum
}

// StartsLate reports whether nobody of the gang has to run before those who are late: it is such a part ([Gang.Late]).
func (g *Gang) StartsLate() bool {
	return !slices.ContainsFunc(g.Roles, func(r Role) bool { return !r.Late })
}

// Running counts the members of the subgroup that run.
func (s *Subgroup) Running(roles []Role, runs map[string]bool) int {
	n := 0
	for i := range roles {
		if slices.Contains(s.Roles, roles[i].Name) {
			n += countIn(runs, roles[i].Members)
		}
	}
	return n
}

func countIn(set map[string]bool, names []string) int {
	n := 0
	for _, name := range names {
		if set[name] {
			n++
		}
	}
	return n
}

// Planned is where an earlier plan put one member of a gang.
type Planned struct {
	Member string
	// Node is the node's name, or [PlannedName] of one that did not exist then.
	Node string
	// GPUs are the NVML indexes of the member's GPUs, of which it has the whole or a part;
	// none where the device plugin picks them.
	GPUs []int
	// RingGBps is the bandwidth of the ring of all of the gang's GPUs on the node, GB/s in one direction; 0 for none.
	RingGBps float64
}

// PlannedName is the name of a node that does not exist yet: the i-th of its pool in the
// planner's order, from 0.
func PlannedName(pool string, i int) string { return pool + "[" + strconv.Itoa(i) + "]" }

// PlannedNames are the names of nodes by those that they had before they existed. The
// nodes must be in the planner's order ([CompareNodes]), and all nodes of their pools.
func PlannedNames(nodes []Node) map[string]string {
	names := map[string]string{}
	for then, n := range ByPlannedName(nodes, func(n Node) string { return n.Pool }) {
		names[then] = n.Name
	}
	return names
}

// ByPlannedName are nodes by the names that they had before they existed.
func ByPlannedName[N any](nodes []N, pool func(N) string) map[string]N {
	names, count := map[string]N{}, map[string]int{}
	for _, n := range nodes {
		if in := pool(n); in != "" {
			names[PlannedName(in, count[in])] = n
			count[in]++
		}
	}
	return names
}

// Plans reports whether the gang's plan has a place for a member.
func (g *Gang) Plans(member string) bool {
	return slices.ContainsFunc(g.Planned, func(at Planned) bool { return at.Member == member })
}
