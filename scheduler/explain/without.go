package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/displacement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Loss is a gang that loses its place when nodes go.
type Loss struct {
	Gang string `json:"gang"`
	// Pods are "namespace/name" of the pods that lose their place.
	Pods []string `json:"pods"`
	// Places are where these members would go then; none when they would wait.
	Places []Place `json:"places,omitempty"`
	// Late are the members among them for which no place is planned: kube-scheduler places them
	// once the others run.
	Late []string `json:"late,omitempty"`
	// Verdict says why they would wait, "" when they would not.
	Verdict string `json:"verdict,omitempty"`
}

// Without answers what would happen without some nodes: which gangs lose members, and
// whether these fit on what is left, one gang after the other by name. Pods without
// GPUs that are in no gang are left out. It fails when there is no such node.
func Without(snapshot *clusterstate.Snapshot, nodes []string) ([]Loss, error) {
	left := snapshot.View.Clone()
	for _, name := range nodes {
		if _, ok := left.Node(name); !ok {
			return nil, fmt.Errorf("there is no node %q", name)
		}
		left.RemoveNode(name)
	}
	losses := []Loss{} // as JSON a list, though nobody loses anything
	states := map[string]inventory.GangState{}
	for _, displaced := range displacement.Of(snapshot.View, left) {
		loss, key := Loss{}, ""
		for _, id := range displaced.Pods {
			left.RemovePod(id)
			pod := snapshot.Pod(id)
			if k, planned := inventory.PlanKey(pod); planned {
				key = k
				loss.Pods = append(loss.Pods, pod.Namespace+"/"+pod.Name)
			}
		}
		if state, ok := snapshot.Gang(key); ok {
			slices.Sort(loss.Pods)
			loss.Gang = placement.NameOf(state.Gang.ID)
			states[loss.Gang] = state
			losses = append(losses, loss)
		}
	}
	slices.SortFunc(losses, func(a, b Loss) int { return cmp.Compare(a.Gang, b.Gang) })
	for i := range losses {
		losses[i].replace(left, snapshot, states[losses[i].Gang])
	}
	return losses, nil
}

// replace plans the members that lost their place on what is left.
func (l *Loss) replace(left *snapshot.View, snapshot *clusterstate.Snapshot, state inventory.GangState) {
	g := state.Gang
	g.Running = slices.DeleteFunc(slices.Clone(g.Running), func(a placement.Assignment) bool {
		pod := state.Pods[a.Member]
		return slices.Contains(l.Pods, pod.Namespace+"/"+pod.Name)
	})
	result := planner.Plan(left, g)
	if result.Placement == nil {
		l.Verdict = result.Verdict.String()
		return
	}
	left.Apply(g, *result.Placement)
	for _, a := range result.Placement.Assignments {
		l.Places = append(l.Places, place(snapshot, a, false))
	}
	l.Late = l.late(state)
}

// late names the members that lost their place and have no planned one.
func (l *Loss) late(state inventory.GangState) (names []string) {
	for _, role := range state.Gang.Roles {
		for _, member := range role.Members {
			pod := state.Pods[member]
			placed := slices.ContainsFunc(l.Places, func(p Place) bool { return p.Member == member })
			if role.Late && !placed && slices.Contains(l.Pods, pod.Namespace+"/"+pod.Name) {
				names = append(names, member)
			}
		}
	}
	return names
}
