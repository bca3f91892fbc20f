package trainingjob

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// setPlanned fills in the planned placement; nil means that nothing is promised.
func (m *model) setPlanned(assignments []assignment.Model) {
	if assignments == nil {
		m.PlannedPlacement, m.PlannedNodeCount, m.PlannedCluster = types.MapNull(types.StringType), types.Int64Null(), types.StringNull()
		return
	}
	m.PlannedPlacement = assignment.Value(assignments)
	m.PlannedNodeCount = types.Int64Value(int64(len(nodesOf(assignments))))
}

// placementOf reads a placement attribute; nil when it is null or unknown.
func placementOf(ctx context.Context, value types.Map, diags *diag.Diagnostics) []assignment.Model {
	if value.IsNull() || value.IsUnknown() {
		return nil
	}
	var texts map[string]string
	diags.Append(value.ElementsAs(ctx, &texts, false)...)
	assignments, err := assignment.From(texts)
	if err != nil {
		diags.AddError("Placement cannot be read", session.Sentence(err))
	}
	return assignments
}

// assignmentsOf translates a placement; nodes are those it was made on.
func assignmentsOf(p placement.Placement, nodes []placement.Node) []assignment.Model {
	tables := map[string]*gpu.Table{}
	for _, n := range nodes {
		tables[n.Name] = n.GPUs
	}
	return assignment.Planned(p.Assignments, func(node string) *gpu.Table { return tables[node] })
}

// asPlanned tells whether the members are where the plan put them. names gives the
// present name of a node that was planned before it existed. The result is null
// when nothing was promised or not all members are placed.
func asPlanned(planned, actual []assignment.Model, names map[string]string) types.Bool {
	if len(planned) == 0 || len(actual) < len(planned) {
		return types.BoolNull()
	}
	where := map[string]assignment.Model{}
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
		if a.Node != node || len(p.GPUs) > 0 && !slices.Equal(a.GPUs, p.GPUs) {
			return types.BoolValue(false)
		}
	}
	return types.BoolValue(true)
}

// longestRecord is the most bytes of a planned placement that travel with a job: what the API
// server takes of all annotations together is twice as much.
const longestRecord = 128 << 10

// carry gives the planned placement to the job that is to be written.
func (m model) carry(ctx context.Context, spec *job.Spec) (diags diag.Diagnostics) {
	planned := placementOf(ctx, m.PlannedPlacement, &diags)
	if len(planned) == 0 || diags.HasError() {
		return diags
	}
	record := assignment.Record(planned)
	record.Cluster = m.PlannedCluster.ValueString()
	text, err := record.Text()
	switch {
	case err != nil:
		diags.AddError("Planned placement cannot be written", session.Sentence(err))
	case len(text) > longestRecord:
		diags.AddWarning("Planned placement stays behind", fmt.Sprintf(
			"The placement of the %d members of job %s is too long for its object. The scheduler decides without it, which comes to the same unless the cluster changes before.", len(planned), spec.ID()))
	default:
		spec.Planned = text
	}
	return diags
}

func nodesOf(assignments []assignment.Model) []string {
	nodes := map[string]bool{}
	for _, a := range assignments {
		nodes[a.Node] = true
	}
	return slices.Sorted(maps.Keys(nodes))
}
