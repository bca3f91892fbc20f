package promises

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

// afterAttribute is the attribute of a job that others name in after.
const afterAttribute = "placed"

// spot is where a member is: a node, by name or "pool[ordinal]", and GPUs.
type spot struct {
	node string
	gpus string // indexes, as in "0,3-5"; empty where the device plugin picks them
}

// promise is what a plan says of the members of a job, by member.
type promise map[string]spot

// crosses reports whether two jobs are planned on one GPU.
func (p promise) crosses(other promise) bool {
	for _, a := range p {
		for _, b := range other {
			if a.node == b.node && slices.ContainsFunc(a.indexes(), func(gpu string) bool { return slices.Contains(b.indexes(), gpu) }) {
				return true
			}
		}
	}
	return false
}

// indexes are the GPUs of a spot, one by one.
func (s spot) indexes() (all []string) {
	for _, some := range strings.Split(s.gpus, ",") {
		low, high, isRange := strings.Cut(some, "-")
		from, err := strconv.Atoi(low)
		to := from
		if isRange {
			to, _ = strconv.Atoi(high)
		}
		for gpu := from; err == nil && gpu <= to; gpu++ {
			all = append(all, strconv.Itoa(gpu))
		}
	}
	return all
}

// mayUse reports whether a member is planned on a node, or on one of its pool of which it is open which node that is.
func (p promise) mayUse(r room) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(p)), func(s spot) bool { return s.node == r.name || strings.HasPrefix(s.node, r.pool.name+"[") })
}

// promiseOf reads the planned placement of a job that is started; made is false when it is
// known after apply.
func promiseOf(c change) (p promise, made bool, err error) {
	nodes, made := c.After["planned_placement"].(map[string]any)
	lines := map[string]string{}
	for node, line := range nodes {
		lines[node] = fmt.Sprint(line)
	}
	members, err := assignment.From(lines)
	p = promise{}
	for _, m := range members {
		p[m.Member] = spot{m.Node, assignment.Ranges(m.GPUs)}
	}
	return p, made, err
}

// placed is where a member runs.
type placed struct {
	spot
	pool string
}

// placementOf is where the members of a job run, by member.
func (l *live) placementOf(t *testing.T, i instance) map[string]placed {
	t.Helper()
	pools := map[string]string{}
	for _, n := range l.nodes(t) {
		pools[n.Name] = n.Labels[contract.NodePoolNameLabel]
	}
	all := map[string]placed{}
	for _, p := range l.pods(t) {
		role, index := inventory.Replica(&p)
		member := role + "-" + index
		if idOf(p) != i.id || p.Spec.NodeName == "" || !slices.Contains(i.memberNames(), member) {
			continue
		}
		record, _, err := contract.AllocationFrom(p.Annotations)
		require.NoError(t, err)
		for _, share := range record.Shares {
			record.GPUs = append(record.GPUs, share.GPU)
		}
		all[member] = placed{spot{p.Spec.NodeName, assignment.Ranges(positions(record.GPUs))}, pools[p.Spec.NodeName]}
	}
	return all
}

func positions(indexes []int) []int64 {
	slices.Sort(indexes)
	var all []int64
	for _, index := range indexes {
		all = append(all, int64(index))
	}
	return all
}

// keptBy reports whether every member runs where the plan put it. Nodes that did not
// exist count as kept when the same members are together on a node of the pool.
func (p promise) keptBy(actual map[string]placed) bool {
	names := map[string]string{} // planned node: actual one
	for _, member := range slices.Sorted(maps.Keys(p)) {
		want, have := p[member], actual[member]
		if name, known := names[want.node]; known && name != have.node {
			return false
		}
		names[want.node] = have.node
		pool, _, isPlanned := strings.Cut(want.node, "[")
		if have.node == "" || have.gpus != want.gpus || isPlanned && have.pool != pool || !isPlanned && have.node != want.node {
			return false
		}
	}
	return true
}
