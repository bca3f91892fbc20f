package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/explanation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Follow plans a gang where an earlier plan put it, as the cluster will be once pods have gone; ok is
// false when it has to be placed elsewhere, why then says why.
func Follow(v *snapshot.View, g *placement.Gang, gone []*placement.Pod) (result placement.Result, why string, ok bool) {
	if len(g.Planned) == 0 || beyondPlan(g) {
		return placement.Result{}, "", false
	}
	result, why = AsPlanned(v, g, gone)
	return result, why, why == ""
}

// beyondPlan reports whether the gang runs, and none of the members to place was planned: a
// plan names no surplus members that it had no room for.
func beyondPlan(g *placement.Gang) bool {
	due := map[string]bool{}
	for _, role := range g.Roles {
		for _, name := range role.Members {
			due[name] = true
		}
	}
	for _, a := range g.Running {
		delete(due, a.Member)
	}
	return len(g.Running) > 0 && !slices.ContainsFunc(g.Planned, func(at placement.Planned) bool { return due[at.Member] })
}

// AsPlanned places a gang where an earlier plan put it, as the cluster will be once pods
// have gone. It does so only when every member that needs a place has the one of that plan;
// otherwise why says what stands against it.
func AsPlanned(v *snapshot.View, g *placement.Gang, gone []*placement.Pod) (result placement.Result, why string) {
	c := v.Seen(g, gone)
	p := packing.NewPacker(c, *g)
	spots, why := spotsOf(p, g.Planned)
	if why == "" {
		why = withinQuota(p, spots)
	}
	if why == "" {
		why = blockedAt(p, spots)
	}
	if why != "" {
		return placement.Result{}, why
	}
	bound := packing.NewPacker(c, boundTo(p, spots))
	bound.Spots = spots
	result, ok := bound.Place()
	if !ok {
		return placement.Result{}, "not all members fit where they were planned"
	}
	whole := *g
	whole.Running = slices.Concat(g.Running, result.Placement.Assignments)
	if len(g.Subgroups) > 0 && whole.Missing() > 0 {
		return placement.Result{}, "a role would have fewer members than it needs where they were planned"
	}
	if why := slower(g.Planned, result.Placement.Assignments); why != "" {
		return placement.Result{}, why
	}
	return result, ""
}

// asFast is what part of a planned bandwidth is as much: the record is rounded, and tables of one machine may differ in the last
// digits.
const asFast = 0.99

// slower says on which node the ring of the GPUs that were planned there has become slower, as when they have lost links, ""
// for none. It is another ring where some of the planned members are not placed, or run already.
func slower(planned []placement.Planned, placed []placement.Assignment) string {
	at := make(map[string]placement.Assignment, len(placed))
	for _, a := range placed {
		at[a.Member] = a
	}
	another := map[string]bool{}
	for _, p := range planned {
		if _, has := at[p.Member]; !has && len(p.GPUs) > 0 {
			another[p.Node] = true
		}
	}
	for _, p := range planned {
		a := at[p.Member]
		if a.Own != 0 && len(p.GPUs) > 0 && !another[p.Node] && a.Ring.GBps < asFast*p.RingGBps {
			return fmt.Sprintf("the GPUs of node %s, where %s was planned, have a ring of %.4g GB/s, not of %.4g as planned", a.Node, p.Member, a.Ring.GBps, p.RingGBps)
		}
	}
	return ""
}

// spotsOf finds the places of the members to place.
func spotsOf(p *packing.Packer, planned []placement.Planned) (spots map[string]packing.Spot, why string) {
	names, pools := map[string]bool{}, map[string]bool{}
	for _, at := range planned {
		names[at.Node] = true
		if end := strings.LastIndexByte(at.Node, '['); end >= 0 {
			pools[at.Node[:end]] = true
		}
	}
	nodes := placement.ByPlannedName(p.Nodes, func(n *capacity.Node) string {
		if pools[n.Pool] {
			return n.Pool
		}
		return ""
	})
	for _, n := range p.Nodes {
		if names[n.Name] {
			nodes[n.Name] = n
		}
	}
	due := map[string]bool{}
	for _, b := range p.Due {
		for _, name := range b.Names {
			due[name] = true
		}
	}
	runs := map[string]string{}
	for _, a := range p.Gang.Running {
		runs[a.Member] = a.Node
	}
	spots = map[string]packing.Spot{}
	for _, at := range planned {
		n := nodes[at.Node]
		switch {
		case n == nil && due[at.Member]:
			return nil, fmt.Sprintf("node %s, where %s was planned, does not exist", at.Node, at.Member)
		case due[at.Member]:
			gpus, ok := gpusAt(n, at.GPUs)
			if !ok {
				return nil, fmt.Sprintf("node %s has no GPU %s, which %s was planned on", n.Name, strings.Trim(fmt.Sprint(at.GPUs), "[]"), at.Member)
			}
			spots[at.Member] = packing.Spot{Node: n, GPUs: gpus}
		case runs[at.Member] == "": // it has finished
		case n == nil || runs[at.Member] != n.Name:
			return nil, fmt.Sprintf("%s runs on node %s, and was planned on %s%s", at.Member, runs[at.Member], at.Node, named(n, at.Node))
		}
	}
	if len(spots) < p.Needed || len(spots) == 0 {
		return nil, fmt.Sprintf("%d of %d members were planned", len(spots), p.Needed)
	}
	return spots, ""
}

// named says which node has the name now that one was planned by.
func named(n *capacity.Node, planned string) string {
	switch {
	case n == nil:
		return ", which does not exist"
	case n.Name != planned:
		return ", which is " + n.Name + " now"
	}
	return ""
}

// withinQuota drops the spots of members that quota leaves out, where the gang does not need them:
// a plan of GPUs knows no quota, and the others have their places all the same. Where it needs them,
// why says which limit they exceed.
func withinQuota(p *packing.Packer, spots map[string]packing.Spot) (why string) {
	allowed, needed := p.Allowed(), max(p.Needed, 1)
	if allowed < needed {
		return explanation.QuotaReason(p, needed).Text
	}
	for _, b := range p.Due {
		for _, name := range b.Names {
			if _, planned := spots[name]; planned {
				if allowed <= 0 {
					delete(spots, name)
				}
				allowed--
			}
		}
	}
	return ""
}

// gpusAt translates NVML indexes to the positions of a node's GPUs.
func gpusAt(n *capacity.Node, indexes []int) (set gpu.Set, ok bool) {
	if len(indexes) == 0 {
		return 0, true
	}
	if n.GPUs == nil {
		return 0, false
	}
	gpus := n.GPUs.Machine().GPUs
	for _, index := range indexes {
		at := slices.IndexFunc(gpus, func(c gpu.GPU) bool { return c.Index == index })
		if at < 0 {
			return 0, false
		}
		set |= gpu.SetOf(at)
	}
	return set, true
}

// blockedAt says what keeps the first of the members from its spot that cannot have it, ""
// when nothing on its node does.
func blockedAt(p *packing.Packer, spots map[string]packing.Spot) string {
	capacities := map[*capacity.Node]*capacity.Capacity{}
	for _, b := range p.Due {
		class := &p.Classes[b.Class]
		for _, name := range b.Names {
			at, planned := spots[name]
			if !planned {
				continue
			}
			n := at.Node
			why := p.Rejection(n, class, &packing.Domain{})
			room := capacities[n]
			if room == nil {
				room = n.Free.Clone()
				capacities[n] = room
			}
			bare := placement.Request{Resources: class.Request.Resources, HostPorts: class.Request.HostPorts}
			if why.Code == "" {
				_, why = room.FitsWhy(&bare, 1)
			}
			if why.Code != "" {
				return fmt.Sprintf("node %s, where %s was planned, %s", n.Name, name, strings.TrimPrefix(explanation.Clause(why, 1, &packing.Domain{}), "1 node "))
			}
			room.Take(&bare, 1, nil)
			if !room.TakeAt(class.Request, at.GPUs) {
				return fmt.Sprintf("%s of node %s, where %s was planned, cannot be had", gpusText(n, cmp.Or(at.GPUs&^room.GPUs, at.GPUs)), n.Name, name)
			}
		}
	}
	return ""
}

// gpusText names GPUs of a node as users know them: "GPU 0, 3".
func gpusText(n *capacity.Node, gpus gpu.Set) string {
	if gpus == 0 {
		return "the GPUs"
	}
	var indexes []string
	for _, at := range gpus.GPUs() {
		indexes = append(indexes, strconv.Itoa(n.GPUs.Machine().GPUs[at].Index))
	}
	return "GPU " + strings.Join(indexes, ", ")
}

// boundTo is the gang with members for the spots alone, each role with as many on each node
// as the spots have there, and with what starts once they run.
func boundTo(p *packing.Packer, spots map[string]packing.Spot) placement.Gang {
	bound, runs := p.Gang, map[string]bool{}
	for _, a := range p.Gang.Running {
		runs[a.Member] = true
	}
	bound.Roles, bound.Minimum = nil, 0
	for _, role := range p.Gang.Roles {
		if role.Late && p.Late() {
			bound.Roles = append(bound.Roles, role)
			continue
		}
		limits := make(map[string]int, len(spots))
		role.Members = slices.DeleteFunc(slices.Clone(role.Members), func(name string) bool {
			at, planned := spots[name]
			if planned {
				limits[at.Node.Name]++
			}
			return !planned && !runs[name]
		})
		for name, most := range role.NodeLimits {
			limits[name] = min(limits[name], most)
		}
		role.NodeLimits, role.LimitedOnly = limits, true
		if len(role.Members) > 0 {
			bound.Roles = append(bound.Roles, role)
		}
	}
	return bound
}
