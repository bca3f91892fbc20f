// Package nodegpu is the resource gpuplan_node_gpu: the GPU mode of nodes that exist, and that no node pool of the
// cloud makes.
package nodegpu

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// New returns the resource.
func New() resource.Resource {
	r := &nodeGPU{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_node_gpu", Title: "GPU mode of nodes",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Identity: lifecycle.Identity{{Name: "nodes", Description: "Names of the nodes.", List: true}},
		ID:       func(m *model) string { return strings.Join(m.names(), ",") }, Import: r.importID,
		Add: r.add, Look: r.look, Change: r.change, Remove: r.remove,
		Kept:      func(m *model) *lifecycle.Kept { return &m.kept },
		InCluster: true,
	}
	return r
}

type nodeGPU struct{ lifecycle.Resource[model] }

// importID takes the names of the nodes: "gpu-1,gpu-2".
func (r *nodeGPU) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	names := strings.Split(id, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	slices.Sort(names)
	if slices.Contains(names, "") || len(slices.Compact(slices.Clone(names))) < len(names) {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name nodes: write their names with commas between them, NODE,NODE, each once. `kubectl get nodes` lists what there is.", id))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("nodes"), names)...)
}

// look reads the nodes. Those that have left the cluster are no longer the resource's, nor are those that have joined
// again and are another configuration's by now.
func (r *nodeGPU) look(ctx context.Context, of tfsdk.State, m *model) (found bool, diags diag.Diagnostics, err error) {
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		return false, nil, err
	}
	nodes, missing := find(snapshot, m.names())
	if m.Mode.IsNull() {
		if len(missing) > 0 {
			diags.AddError("No such node", unknown(snapshot, missing))
			return false, diags, nil
		}
		if i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return r.foreign(n) }); i >= 0 {
			diags.Append(r.SayImported(m, nodes[i].Annotations[contract.OwnerLabel])...)
		}
		diags.Append(m.imported(ctx, of, nodes[0])...)
	}
	nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return r.taken(m, n) })
	if len(nodes) == 0 {
		return false, diags, nil
	}
	m.kept.UIDs = lifecycle.UIDsOf(nodes...)
	diags.Append(m.refresh(ctx, snapshot, nodes)...)
	return true, diags, nil
}
