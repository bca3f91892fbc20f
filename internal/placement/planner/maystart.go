package planner

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// ReservationValid reports whether a gang gets its reservation once those have gone that it waits for, and
// whether they go.
func ReservationValid(v *snapshot.View, h *snapshot.Reserved, g *placement.Gang) bool {
	return !v.Refused(h) && !v.Abandoned(h) && ReservationFree(v, h, g, v.Awaited(h))
}

// Renewed is a valid reservation for its gang as it is now: who starts late, and needs quota, may have appeared since it was made.
func Renewed(h *snapshot.Reserved, g *placement.Gang) placement.Reservation {
	r := h.Reservation
	if !maps.Equal(r.Gang.LateCharge(), g.LateCharge()) {
		r.Gang = *g
	}
	return r
}

// ReservationFree reports whether a reservation is for a gang as it is now, which can take it once pods have
// gone. Reservations that were made later leave it alone by construction.
func ReservationFree(v *snapshot.View, h *snapshot.Reserved, g *placement.Gang, gone []*placement.Pod) bool {
	if !isFor(h, g) {
		return false
	}
	p := packing.NewPacker(v.SeenBy(h, gone), *g)
	if p.LeafMissing(g) || p.Exceeded(g, h.Charge(g)) != nil {
		return false
	}
	if h.QuotaOnly {
		return true
	}
	rulesOf := map[string]*admission.Rules{}
	for _, b := range p.Due {
		for _, name := range b.Names {
			rulesOf[name] = &p.Rules[p.Classes[b.Class].Rules]
		}
	}
	found := 0
	for _, n := range p.Nodes {
		if !h.On(n.Name) {
			continue
		}
		found++
		full := &capacity.Node{Node: n.Node, Present: true, Used: n.Used.Clone()}
		for _, pod := range h.Come[n.Name] {
			full.Used.Charge(pod, 1)
		}
		full.Free = full.Capacity()
		come := map[*admission.Rules]int{}
		if !keeps(h, g, n.Name) || !n.HasGPUsFor(h.Come[n.Name]) {
			return false
		}
		for _, pod := range h.Come[n.Name] {
			r := rulesOf[strings.TrimPrefix(pod.ID, g.ID+"/")]
			if r == nil || g.Excludes(n.Name) || full.Evicts(pod) != "" || full.Clashes(pod) {
				return false
			}
			come[r]++
			if limit, limited := r.Limits[n.Name]; limited && come[r] > limit {
				return false
			}
			if why, _ := r.Rejects(&n.Node); why.Code != "" {
				return false
			}
		}
	}
	return found == len(h.Usage)
}

// keeps reports whether the reservation keeps the joint limits of roles on a node.
func keeps(h *snapshot.Reserved, g *placement.Gang, node string) bool {
	for _, l := range g.Limits {
		if l.Node != node {
			continue
		}
		come := 0
		for i := range g.Roles {
			if slices.Contains(l.Roles, g.Roles[i].Name) {
				for _, a := range h.Placement.Assignments {
					if a.Node == node && slices.Contains(g.Roles[i].Members, a.Member) {
						come++
					}
				}
			}
		}
		if come > l.Most {
			return false
		}
	}
	return true
}

// isFor reports whether the reservation was made for the gang as it is now, but for late
// members, which may appear after it was made.
func isFor(h *snapshot.Reserved, g *placement.Gang) bool {
	bare := func(g placement.Gang) placement.Gang {
		g.ExcludeNodes, g.Limits, g.Planned = nil, nil, nil
		g.Roles = slices.DeleteFunc(slices.Clone(g.Roles), func(r placement.Role) bool { return r.Late })
		for i := range g.Roles {
			g.Roles[i].NodeLimits = nil
		}
		return g
	}
	return reflect.DeepEqual(bare(h.Gang), bare(*g))
}
