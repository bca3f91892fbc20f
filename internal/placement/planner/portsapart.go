package planner

import (
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// PortsApart returns the host ports, sorted, that keep members of a gang on more nodes than
// they would need without them, none when it is not ports that do. The placement is one that
// the view has just given.
func PortsApart(v *snapshot.View, g placement.Gang, placed placement.Placement) []string {
	ports := commonPorts(g)
	if len(ports) == 0 || nodeCount(g, placed) == 1 {
		return nil
	}
	g.Roles = slices.Clone(g.Roles)
	for i := range g.Roles {
		g.Roles[i].Request.HostPorts = nil
	}
	if without := Place(v, g); without == nil || nodeCount(g, *without) >= nodeCount(g, placed) {
		return nil
	}
	return ports
}

// commonPorts are the host ports that more than one member asks for.
func commonPorts(g placement.Gang) []string {
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
func nodeCount(g placement.Gang, placed placement.Placement) int {
	nodes := map[string]bool{}
	for _, list := range [][]placement.Assignment{g.Running, placed.Assignments} {
		for _, a := range list {
			nodes[a.Node] = true
		}
	}
	return len(nodes)
}
