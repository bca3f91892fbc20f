package placement

import (
	"maps"
	"slices"
)

// PortsApart returns the host ports, sorted, that keep members of a gang on more nodes than
// they would need without them, none when it is not ports that do. The placement is one that
// the view has just given.
func (v *View) PortsApart(g Gang, placed Placement) []string {
	ports := commonPorts(g)
	if len(ports) == 0 || nodeCount(g, placed) == 1 {
		return nil
	}
	g.Roles = slices.Clone(g.Roles)
	for i := range g.Roles {
		g.Roles[i].Request.HostPorts = nil
	}
	if without := v.Place(g); without == nil || nodeCount(g, *without) >= nodeCount(g, placed) {
		return nil
	}
	return ports
}

// commonPorts are the host ports that more than one member asks for.
func commonPorts(g Gang) []string {
	members := map[string]int{}
	for _, role := range g.Roles {
		for _, port := range role.Request.HostPorts {
			members[port] += len(role.Members)
		}
	}
	maps.DeleteFunc(members, func(_ string, n int) bool { return n < 2 })
	return slices.Sorted(maps.Keys(members))
}

// nodeCount is on how many nodes a gang is with a placement.
func nodeCount(g Gang, placed Placement) int {
	nodes := map[string]bool{}
	for _, list := range [][]Assignment{g.Running, placed.Assignments} {
		for _, a := range list {
			nodes[a.Node] = true
		}
	}
	return len(nodes)
}
