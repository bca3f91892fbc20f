package clustercache

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Grant keeps places for the gangs of pods that are still to come, all or none of them, as they are planned now beside all that
// has a place or is promised one: nobody is evicted. A gang that was granted a place before keeps it while it can. One whose pods
// are there by now keeps what it has, and gets nothing else, since it asks for a place itself. planned are the places
// that gangs must have, by key; one that cannot have them gets none. why says what stops it; the places are kept until
// [Cache.Revoke], or until the gang takes them.
func (c *Cache) Grant(pods []*corev1.Pod, planned map[string][]contract.PlannedNode) (granted []contract.GrantedGang, why string) {
	gangs := map[string][]*corev1.Pod{}
	var keys []string
	for _, pod := range pods {
		if key, ok := inventory.GangKey(pod); ok {
			if gangs[key] == nil {
				keys = append(keys, key)
			}
			gangs[key] = append(gangs[key], pod)
		}
	}
	granted, why, givenBack := c.grant(keys, gangs, planned)
	c.givenBack(givenBack)
	return granted, why
}

// givenBack tells all that wait of places that are not held any more, by no decision about one of them.
func (c *Cache) givenBack(are bool) {
	if are {
		c.notify(clusterstate.Change{RolledBack: true})
	}
}

func (c *Cache) grant(keys []string, gangs map[string][]*corev1.Pod, planned map[string][]contract.PlannedNode) (granted []contract.GrantedGang, why string, givenBack bool) {
	c.planning.Lock()
	defer c.endPlanning()
	view := c.state.View
	var toCome []string
	for _, key := range keys {
		if c.state.HasPods(key) {
			state, _ := c.state.Gang(key)
			if held := view.ReservationOf(state.Gang.ID); held != nil && held.Granted {
				granted = append(granted, contract.GrantedGang{Name: key, Nodes: c.plannedNodes(held.Placement)})
			}
			continue
		}
		toCome = append(toCome, key)
		place, failed := c.findGrant(key, gangs[key], planned[key])
		if failed != "" {
			return nil, fmt.Sprintf("gang %s: %s", key, failed), c.dropGrants(toCome) || givenBack
		}
		givenBack = view.AddReservation(place.Reservation) || givenBack
		granted = append(granted, contract.GrantedGang{Name: key, Nodes: place.nodes})
	}
	return granted, "", givenBack
}

// grantedPlace is a place to grant, and what is told of it.
type grantedPlace struct {
	placement.Reservation
	nodes []contract.PlannedNode
}

// findGrant finds the place of a gang that is still to come, the planned one where there is one; planning must be held.
func (c *Cache) findGrant(key string, pods []*corev1.Pod, planned []contract.PlannedNode) (place grantedPlace, why string) {
	state, ok := c.state.Expected(key, pods)
	switch {
	case !ok:
		return grantedPlace{}, "it has no pods"
	case state.MissingText != "":
		return grantedPlace{}, state.MissingText
	}
	if planned != nil {
		state.Gang.Planned = inventory.PlannedMembers(planned)
	} else if held := c.state.View.ReservationOf(state.Gang.ID); held != nil && held.Granted {
		state.Gang.Planned = held.Gang.Planned
	}
	result := planner.Plan(c.state.View, state.Gang)
	switch {
	case result.Placement == nil:
		return grantedPlace{}, result.Verdict.String()
	case planned != nil && result.Verdict.NotAsPlanned != "":
		return grantedPlace{}, result.Verdict.NotAsPlanned
	}
	place.nodes = c.plannedNodes(*result.Placement)
	state.Gang.Planned = inventory.PlannedMembers(place.nodes)
	place.Reservation = placement.Reservation{Gang: state.Gang, Placement: *result.Placement, Granted: true}
	return place, ""
}

// plannedNodes tells a place by node, the nodes in their order; planning must be held.
func (c *Cache) plannedNodes(place placement.Placement) (nodes []contract.PlannedNode) {
	at := map[string]int{}
	for _, a := range place.Assignments {
		record := c.record("", a)
		i, known := at[a.Node]
		if !known {
			i = len(nodes)
			at[a.Node] = i
			nodes = append(nodes, contract.PlannedNode{Node: a.Node, Members: map[string][]int{}, RingGBps: record.RingGBps, NVLinkRings: record.NVLinkRings})
		}
		gpus := record.GPUs
		for _, share := range record.Shares {
			gpus = append(gpus, share.GPU)
		}
		nodes[i].Members[a.Member] = gpus
	}
	slices.SortFunc(nodes, func(a, b contract.PlannedNode) int { return natural.Compare(a.Node, b.Node) })
	return nodes
}

// Granted reports whether a gang, by its key, has a place that was granted to it and that it has not taken yet.
func (c *Cache) Granted(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.held, func(h *snapshot.Reserved) bool { return h.Granted && inventory.KeyOf(h.Gang.ID) == key })
}

// Revoke gives back the places that were granted to gangs, by key, and that they have not taken.
func (c *Cache) Revoke(keys ...string) {
	c.givenBack(c.revoke(keys))
}

func (c *Cache) revoke(keys []string) bool {
	c.planning.Lock()
	defer c.endPlanning()
	return c.dropGrants(keys)
}

// dropGrants gives back the places that were granted to gangs, by key; planning must be held.
func (c *Cache) dropGrants(keys []string) bool {
	return c.state.View.DropReservations(func(h *snapshot.Reserved) bool {
		return h.Granted && slices.Contains(keys, inventory.KeyOf(h.Gang.ID))
	})
}
