package trainingjob

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// setPlanned fills in the planned placement; nil means that nothing is promised.
func (m *model) setPlanned(ctx context.Context, assignments []assignmentModel, diags *diag.Diagnostics) {
	if assignments == nil {
		m.PlannedPlacement, m.PlannedNodeCount = types.ListNull(assignmentType), types.Int64Null()
		return
	}
	list, listDiags := types.ListValueFrom(ctx, assignmentType, assignments)
	diags.Append(listDiags...)
	m.PlannedPlacement = list
	m.PlannedNodeCount = types.Int64Value(int64(len(nodesOf(assignments))))
}

// placementOf reads a placement attribute; nil when it is null or unknown.
func placementOf(ctx context.Context, list types.List, diags *diag.Diagnostics) []assignmentModel {
	if list.IsNull() || list.IsUnknown() {
		return nil
	}
	var assignments []assignmentModel
	diags.Append(list.ElementsAs(ctx, &assignments, false)...)
	return assignments
}

// assignmentsOf translates a placement; nodes are those it was made on.
func assignmentsOf(p placement.Placement, nodes []placement.Node) []assignmentModel {
	tables := map[string]*gpu.Table{}
	for _, n := range nodes {
		tables[n.Name] = n.Cards
	}
	out := make([]assignmentModel, 0, len(p.Assignments))
	for _, a := range p.Assignments {
		own := a.Own
		for _, share := range a.Shares {
			own |= gpu.SetOf(share.Card)
		}
		out = append(out, assignmentModel{
			Member:      a.Member,
			Node:        a.Node,
			Cards:       int64s(inventory.Indexes(own, tables[a.Node])),
			RingGBps:    a.Ring.GBps,
			NVLinkRings: int64(a.Ring.NVLinkRings),
		})
	}
	return out
}

// assignmentFrom reads where a member runs from its allocation record.
func assignmentFrom(member, node string, record contract.Allocation) assignmentModel {
	cards := slices.Clone(record.Cards)
	for _, share := range record.Shares {
		cards = append(cards, share.Card)
	}
	slices.Sort(cards)
	return assignmentModel{
		Member:      member,
		Node:        node,
		Cards:       int64s(slices.Compact(cards)),
		RingGBps:    record.RingGBps,
		NVLinkRings: int64(record.NVLinkRings),
	}
}

// asPlanned tells whether the members are where the plan put them. names gives the
// present name of a node that was planned before it existed. The result is null
// when nothing was promised or not all members are placed.
func asPlanned(planned, actual []assignmentModel, names map[string]string) types.Bool {
	if len(planned) == 0 || len(actual) < len(planned) {
		return types.BoolNull()
	}
	where := map[string]assignmentModel{}
	for _, a := range actual {
		where[a.Member] = a
	}
	for _, p := range planned {
		a, ok := where[p.Member]
		if !ok {
			return types.BoolNull()
		}
		node := p.Node
		if name, ok := names[p.Node]; ok {
			node = name
		}
		if a.Node != node || !slices.Equal(a.Cards, p.Cards) {
			return types.BoolValue(false)
		}
	}
	return types.BoolValue(true)
}

// annotation is the planned placement as the job's object carries it, for an import.
func annotation(assignments []assignmentModel) (string, error) {
	text, err := json.Marshal(assignments)
	return string(text), err
}

func fromAnnotation(text string) ([]assignmentModel, error) {
	var assignments []assignmentModel
	err := json.Unmarshal([]byte(text), &assignments)
	return assignments, err
}

func nodesOf(assignments []assignmentModel) []string {
	nodes := map[string]bool{}
	for _, a := range assignments {
		nodes[a.Node] = true
	}
	return slices.Sorted(maps.Keys(nodes))
}

func int64s(in []int) []int64 {
	out := make([]int64, 0, len(in))
	for _, i := range in {
		out = append(out, int64(i))
	}
	return out
}
