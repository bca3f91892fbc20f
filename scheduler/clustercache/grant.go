package clustercache

import (
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Grant keeps places for gangs that are still to come, all or none of them, as they are planned now beside all that
// has a place or is promised one: nobody is evicted. A gang that was granted a place before keeps it while it can. One whose pods
// are there by now keeps what it has, and gets nothing else, since it asks for a place itself. planned are the places
// that gangs were promised before, by key, also where their pods have come since; one that cannot have them gets none. why says what stops it; the places are kept until
// [Cache.Revoke], or until the gang takes them.
func (c *Cache) Grant(gangs clusterstate.ToCome, planned map[string][]contract.PlannedNode) (granted []contract.GrantedGang, why string) {
	granted, why, givenBack := c.grant(gangs, planned)
	c.givenBack(givenBack)
	return granted, why
}

// Find finds the places that [Cache.Grant] would keep, and keeps none.
func (c *Cache) Find(gangs clusterstate.ToCome) (offer clusterchoice.Offer, why string) {
	c.planning.Lock()
	defer c.planning.Unlock()
	asked := make([]placement.Gang, len(gangs))
	for i, gang := range gangs {
		if c.state.HasPods(gang.Key) {
			return offer, fmt.Sprintf("gang %s is there already", gang.Key)
		}
		if asked[i], why = c.expected(c.state.View, gang); why != "" {
			return offer, why
		}
	}
	return clusterchoice.Place(c.state.View, asked)
}

// givenBack tells all that wait of places that are not held any more, by no decision about one of them.
func (c *Cache) givenBack(are bool) {
	if are {
		c.notify(clusterstate.Change{RolledBack: true})
	}
}

func (c *Cache) grant(gangs clusterstate.ToCome, planned map[string][]contract.PlannedNode) (granted []contract.GrantedGang, why string, givenBack bool) {
	c.planning.Lock()
	defer c.endPlanning()
	view := c.state.View
	var toCome []string
	for _, gang := range gangs {
		if c.state.HasPods(gang.Key) {
			state, _ := c.state.Gang(gang.Key)
			if held := view.ReservationOf(state.Gang.ID); held != nil && held.Granted {
				granted = append(granted, contract.GrantedGang{Name: gang.Key, Nodes: c.plannedNodes(held.Placement)})
				continue
			}
			if planned[gang.Key] == nil || state.Running > 0 {
				continue
			}
		}
		toCome = append(toCome, gang.Key)
		place, failed := c.findGrant(view, gang, planned[gang.Key])
		if failed != "" {
			return nil, fmt.Sprintf("gang %s: %s", gang.Key, failed), c.dropGrants(toCome) || givenBack
		}
		nodes := c.plannedNodes(place.Placement)
		place.Gang.Planned = inventory.PlannedMembers(nodes)
		givenBack = view.AddReservation(place) || givenBack
		granted = append(granted, contract.GrantedGang{Name: gang.Key, Nodes: nodes})
	}
	return granted, "", givenBack
}

// findGrant finds the place of a gang that is still to come, the planned one where there is one; planning must be held.
func (c *Cache) findGrant(view *snapshot.View, gang clusterstate.GangToCome, planned []contract.PlannedNode) (place placement.Reservation, why string) {
	asked, why := c.expected(view, gang)
	if why != "" {
		return placement.Reservation{}, why
	}
	if planned != nil {
		asked.Planned = inventory.PlannedMembers(planned)
	}
	result := planner.Plan(view, asked)
	switch {
	case result.Placement == nil:
		return placement.Reservation{}, result.Verdict.String()
	case planned != nil && result.Verdict.NotAsPlanned != "":
		return placement.Reservation{}, result.Verdict.NotAsPlanned
	}
	return placement.Reservation{Gang: asked, Placement: *result.Placement, Granted: true}, ""
}

// expected is a gang that is still to come as the planner is asked about it, planned where a place is kept for it already; why says why
// it cannot be. planning must be held.
func (c *Cache) expected(view *snapshot.View, gang clusterstate.GangToCome) (asked placement.Gang, why string) {
	asked, why = c.state.Asked(gang)
	if held := view.ReservationOf(asked.ID); why == "" && held != nil && held.Granted {
		asked.Planned = held.Gang.Planned
	}
	return asked, why
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
