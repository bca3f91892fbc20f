package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// follow plans a gang where an earlier plan put it; ok is false when it has to be placed
// elsewhere, why then says why.
func (v *View) follow(g *Gang) (result Result, why string, ok bool) {
	if len(g.Planned) == 0 || g.beyondPlan() {
		return Result{}, "", false
	}
	result, why = v.asPlanned(g, nil)
	return result, why, why == ""
}

// beyondPlan reports whether the gang runs, and none of the members to place was planned: a
// plan names no surplus members that it had no room for.
func (g *Gang) beyondPlan() bool {
	due := map[string]bool{}
	for _, role := range g.Roles {
		for _, name := range role.Members {
			due[name] = true
		}
	}
	for _, a := range g.Running {
		delete(due, a.Member)
	}
	return len(g.Running) > 0 && !slices.ContainsFunc(g.Planned, func(at Planned) bool { return due[at.Member] })
}

// asPlanned places a gang where an earlier plan put it, as the cluster will be once pods
// have gone. It does so only when every member that needs a place has the one of that plan;
// otherwise why says what stands against it.
func (v *View) asPlanned(g *Gang, gone []*Pod) (result Result, why string) {
	c := v.seen(g, gone)
	p := newPlanner(c, *g)
	spots, why := p.spotsOf(g.Planned)
	if why == "" {
		p.withinQuota(spots)
		why = p.blockedAt(spots)
	}
	if why != "" {
		return Result{}, why
	}
	bound := newPlanner(c, g.boundTo(spots, c.nodes))
	bound.spots = spots
	result, ok := bound.place()
	if !ok {
		return Result{}, "not all members fit where they were planned"
	}
	whole := *g
	whole.Running = slices.Concat(g.Running, result.Placement.Assignments)
	if len(g.Subgroups) > 0 && whole.Missing() > 0 {
		return Result{}, "a role would have fewer members than it needs where they were planned"
	}
	return result, ""
}

// spotsOf finds the places of the members to place.
func (p *planner) spotsOf(planned []Planned) (spots map[string]spot, why string) {
	nodes := byPlannedName(p.nodes, func(n *node) string { return n.Pool })
	for _, n := range p.nodes {
		nodes[n.Name] = n
	}
	due := map[string]bool{}
	for _, b := range p.due {
		for _, name := range b.names {
			due[name] = true
		}
	}
	runs := map[string]string{}
	for _, a := range p.gang.Running {
		runs[a.Member] = a.Node
	}
	spots = map[string]spot{}
	for _, at := range planned {
		n := nodes[at.Node]
		switch {
		case n == nil && due[at.Member]:
			return nil, fmt.Sprintf("node %s, where %s was planned, does not exist", at.Node, at.Member)
		case due[at.Member]:
			gpus, ok := n.gpusAt(at.GPUs)
			if !ok {
				return nil, fmt.Sprintf("node %s has no GPU %s, which %s was planned on", n.Name, strings.Trim(fmt.Sprint(at.GPUs), "[]"), at.Member)
			}
			spots[at.Member] = spot{n, gpus}
		case runs[at.Member] == "": // it has finished
		case n == nil || runs[at.Member] != n.Name:
			return nil, fmt.Sprintf("%s runs elsewhere than it was planned", at.Member)
		}
	}
	if len(spots) < p.needed || len(spots) == 0 {
		return nil, fmt.Sprintf("%d of %d members were planned", len(spots), p.needed)
	}
	return spots, ""
}

// withinQuota drops the spots of members that quota leaves out, where the gang does not need them:
// a plan of GPUs knows no quota, and the others have their places all the same.
func (p *planner) withinQuota(spots map[string]spot) {
	allowed := p.allowed()
	if allowed < p.needed || allowed == 0 {
		return
	}
	for _, b := range p.due {
		for _, name := range b.names {
			if _, planned := spots[name]; planned {
				if allowed <= 0 {
					delete(spots, name)
				}
				allowed--
			}
		}
	}
}

// gpusAt translates NVML indexes to the positions of a node's GPUs.
func (n *node) gpusAt(indexes []int) (set gpu.Set, ok bool) {
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
func (p *planner) blockedAt(spots map[string]spot) string {
	capacities := map[*node]*capacity{}
	for _, b := range p.due {
		class := &p.classes[b.class]
		for _, name := range b.names {
			at, planned := spots[name]
			if !planned {
				continue
			}
			n := at.node
			why := p.rejection(n, class, &domain{})
			room := capacities[n]
			if room == nil {
				room = n.free.clone()
				capacities[n] = room
			}
			bare := Request{Resources: class.request.Resources, HostPorts: class.request.HostPorts}
			if why.code == "" {
				_, why = room.fitsWhy(&bare, 1)
			}
			if why.code != "" {
				return fmt.Sprintf("node %s, where %s was planned, %s", n.Name, name, strings.TrimPrefix(clause(why, 1, &domain{}), "1 node "))
			}
			room.take(&bare, 1, nil)
			if !room.takeAt(class.request, at.gpus) {
				return fmt.Sprintf("%s of node %s, where %s was planned, cannot be had", gpusText(n, at.gpus), n.Name, name)
			}
		}
	}
	return ""
}

// gpusText names GPUs of a node as users know them: "GPU 0, 3".
func gpusText(n *node, gpus gpu.Set) string {
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
// as the spots have there.
func (g *Gang) boundTo(spots map[string]spot, nodes []*node) Gang {
	bound, runs := *g, map[string]bool{}
	for _, a := range g.Running {
		runs[a.Member] = true
	}
	bound.Roles, bound.Minimum = nil, 0
	for _, role := range g.Roles {
		if role.Late {
			continue
		}
		limits := make(map[string]int, len(nodes))
		for _, n := range nodes {
			limits[n.Name] = 0
		}
		role.Members = slices.DeleteFunc(slices.Clone(role.Members), func(name string) bool {
			at, planned := spots[name]
			if planned {
				limits[at.node.Name]++
			}
			return !planned && !runs[name]
		})
		for name, most := range role.NodeLimits {
			limits[name] = min(limits[name], most)
		}
		role.NodeLimits = limits
		if len(role.Members) > 0 {
			bound.Roles = append(bound.Roles, role)
		}
	}
	return bound
}
