// Package displacement tells which running gangs lose their place by a change of the cluster, and
// where they would run instead.
package displacement

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Gang is a running gang that loses its place by a change.
type Gang struct {
	// Gang is the gang's ID, or the pod's for a pod on its own.
	Gang string
	// Pods are the IDs of the pods that lose their place, sorted.
	Pods []string
	// Why says what takes the place of the first of them.
	Why string
	// Elsewhere is the place that the pods would get instead on the changed cluster,
	// next to what stays of the gang, or the verdict why they would get none. Members
	// are called by the IDs of their pods.
	Elsewhere placement.Result
}

// Of lists the running gangs that lose their place when the cluster becomes
// what changed describes, in the order of their IDs. Make changed from a [snapshot.View.Clone],
// then remove or replace nodes, or set another quota tree. A pod loses its place when
// its node is gone, offers its GPUs in another mode, has lost one of its GPUs, or is
// too small for what runs on it; or when its quota leaf is gone or over a maximum.
// Where a node or a leaf is too small for all, gangs go in the order of victims, lowest
// priority first, then the youngest; one that fits once others have gone stays.
//
// Gangs that lose their place are planned again, those first that would go last. Pods do
// not tell selectors, tolerations and domains: give the gangs that have any, and roles
// are known by their requests. The pods of gangs that are not given may go anywhere.
func Of(v, changed *snapshot.View, gangs ...placement.Gang) []Gang {
	left := changed.Clone()
	why := map[string]string{}
	var out []*placement.Pod
	for _, p := range inVictimOrder(v) {
		if why[p.ID] = left.Evicts(p); why[p.ID] != "" {
			out = append(out, p)
			left.RemovePod(p.ID)
		}
	}
	index := map[string]*Gang{}
	var list []*Gang
	for _, p := range slices.Backward(out) {
		// What went later may have made room.
		left.AddPod(*p)
		if left.Evicts(p) == "" {
			continue
		}
		left.RemovePod(p.ID)
		id := cmp.Or(p.Gang, p.ID)
		if index[id] == nil {
			index[id] = &Gang{Gang: id}
			list = append(list, index[id])
		}
		index[id].Why = why[p.ID]
		index[id].Pods = append(index[id].Pods, p.ID)
	}
	if len(list) > 0 {
		resettle(v, left, list, gangs)
	}
	sorted := make([]Gang, 0, len(list))
	for _, s := range list {
		slices.Sort(s.Pods)
		sorted = append(sorted, *s)
	}
	slices.SortFunc(sorted, func(a, b Gang) int { return natural.Compare(a.Gang, b.Gang) })
	return sorted
}

// resettle plans the displaced gangs on what is left, one after the other.
func resettle(v *snapshot.View, left *snapshot.View, displaced []*Gang, gangs []placement.Gang) {
	pods := map[string][]*placement.Pod{}
	for _, p := range v.Cluster().Pods {
		id := cmp.Or(p.Gang, p.ID)
		pods[id] = append(pods[id], p)
	}
	for _, s := range displaced {
		known := placement.Gang{ID: s.Gang}
		if i := slices.IndexFunc(gangs, func(g placement.Gang) bool { return g.ID == s.Gang }); i >= 0 {
			known = gangs[i]
		}
		g := of(known, pods[s.Gang], s.Pods)
		s.Elsewhere = planner.Plan(left, g)
		if s.Elsewhere.Placement != nil {
			left.Apply(g, *s.Elsewhere.Placement)
		}
	}
}

// of returns the gang with its pods as members, of which those that are lost do not run.
func of(g placement.Gang, pods []*placement.Pod, lost []string) placement.Gang {
	slices.SortFunc(pods, func(a, b *placement.Pod) int { return natural.Compare(a.ID, b.ID) })
	known := g.Roles
	g.Roles, g.Running, g.Minimum, g.Subgroups = nil, nil, 0, nil
	for _, p := range pods {
		g.Leaf, g.Priority, g.Preemptible = p.Leaf, p.Priority, p.Preemptible
		same := func(r placement.Role) bool { return reflect.DeepEqual(r.Request, p.Request) }
		at := slices.IndexFunc(g.Roles, same)
		if at < 0 {
			role := placement.Role{Name: "pod", Request: p.Request}
			if i := slices.IndexFunc(known, same); i >= 0 {
				role = known[i]
			}
			role.Members, role.Late = nil, false
			at = len(g.Roles)
			g.Roles = append(g.Roles, role)
		}
		g.Roles[at].Members = append(g.Roles[at].Members, p.ID)
		if !slices.Contains(lost, p.ID) {
			g.Running = append(g.Running, placement.Assignment{Member: p.ID, Node: p.Node, Own: p.Own, Shares: p.Shares})
		}
	}
	return g
}

// inVictimOrder returns all pods, those first that go first.
func inVictimOrder(v *snapshot.View) []*placement.Pod {
	pods := slices.Collect(maps.Values(v.Cluster().Pods))
	slices.SortFunc(pods, func(a, b *placement.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.Start(), a.Start()),
			natural.Compare(b.ID, a.ID),
		)
	})
	return pods
}
