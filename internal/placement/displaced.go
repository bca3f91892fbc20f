package placement

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// DisplacedGang is a running gang that loses its place by a change.
type DisplacedGang struct {
	// Gang is the gang's ID, or the pod's for a pod on its own.
	Gang string
	// Pods are the IDs of the pods that lose their place, sorted.
	Pods []string
	// Why says what takes the place of the first of them.
	Why string
	// Elsewhere is the place that the pods would get instead on the changed cluster,
	// next to what stays of the gang, or the verdict why they would get none. Members
	// are called by the IDs of their pods.
	Elsewhere Result
}

// Displaced lists the running gangs that lose their place when the cluster becomes
// what changed describes, in the order of their IDs. Make changed from a [View.Clone],
// then remove or replace nodes, or set another quota tree. A pod loses its place when
// its node is gone, offers its GPUs in another mode, has lost one of its GPUs, or is
// too small for what runs on it; or when its quota leaf is gone or over a maximum.
// Where a node or a leaf is too small for all, gangs go in the order of victims, lowest
// priority first, then the youngest; one that fits once others have gone stays.
//
// Gangs that lose their place are planned again, those first that would go last. Pods do
// not tell selectors, tolerations and domains: give the gangs that have any, and roles
// are known by their requests. The pods of gangs that are not given may go anywhere.
func (v *View) Displaced(changed *View, gangs ...Gang) []DisplacedGang {
	left := changed.Clone()
	why := map[string]string{}
	var out []*Pod
	for _, p := range v.inVictimOrder() {
		if why[p.ID] = left.evicts(p); why[p.ID] != "" {
			out = append(out, p)
			left.RemovePod(p.ID)
		}
	}
	index := map[string]*DisplacedGang{}
	var list []*DisplacedGang
	for _, p := range slices.Backward(out) {
		// What went later may have made room.
		left.AddPod(*p)
		if left.evicts(p) == "" {
			continue
		}
		left.RemovePod(p.ID)
		id := cmp.Or(p.Gang, p.ID)
		if index[id] == nil {
			index[id] = &DisplacedGang{Gang: id}
			list = append(list, index[id])
		}
		index[id].Why = why[p.ID]
		index[id].Pods = append(index[id].Pods, p.ID)
	}
	if len(list) > 0 {
		v.resettle(left, list, gangs)
	}
	sorted := make([]DisplacedGang, 0, len(list))
	for _, s := range list {
		slices.Sort(s.Pods)
		sorted = append(sorted, *s)
	}
	slices.SortFunc(sorted, func(a, b DisplacedGang) int { return CompareNatural(a.Gang, b.Gang) })
	return sorted
}

// resettle plans the displaced gangs on what is left, one after the other.
func (v *View) resettle(left *View, displaced []*DisplacedGang, gangs []Gang) {
	pods := map[string][]*Pod{}
	for _, p := range v.cluster().pods {
		id := cmp.Or(p.Gang, p.ID)
		pods[id] = append(pods[id], p)
	}
	for _, s := range displaced {
		known := Gang{ID: s.Gang}
		if i := slices.IndexFunc(gangs, func(g Gang) bool { return g.ID == s.Gang }); i >= 0 {
			known = gangs[i]
		}
		g := known.of(pods[s.Gang], s.Pods)
		s.Elsewhere = left.Plan(g)
		if s.Elsewhere.Placement != nil {
			left.Apply(g, *s.Elsewhere.Placement)
		}
	}
}

// of returns the gang with its pods as members, of which those that are lost do not run.
func (g Gang) of(pods []*Pod, lost []string) Gang {
	slices.SortFunc(pods, func(a, b *Pod) int { return CompareNatural(a.ID, b.ID) })
	known := g.Roles
	g.Roles, g.Running, g.Minimum, g.Subgroups = nil, nil, 0, nil
	for _, p := range pods {
		g.Leaf, g.Priority, g.Preemptible = p.Leaf, p.Priority, p.Preemptible
		same := func(r Role) bool { return reflect.DeepEqual(r.Request, p.Request) }
		at := slices.IndexFunc(g.Roles, same)
		if at < 0 {
			role := Role{Name: "pod", Request: p.Request}
			if i := slices.IndexFunc(known, same); i >= 0 {
				role = known[i]
			}
			role.Members, role.Late = nil, false
			at = len(g.Roles)
			g.Roles = append(g.Roles, role)
		}
		g.Roles[at].Members = append(g.Roles[at].Members, p.ID)
		if !slices.Contains(lost, p.ID) {
			g.Running = append(g.Running, Assignment{Member: p.ID, Node: p.Node, Own: p.Own, Shares: p.Shares})
		}
	}
	return g
}

// inVictimOrder returns all pods, those first that go first.
func (v *View) inVictimOrder() []*Pod {
	pods := slices.Collect(maps.Values(v.cluster().pods))
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.start(), a.start()),
			CompareNatural(b.ID, a.ID),
		)
	})
	return pods
}
