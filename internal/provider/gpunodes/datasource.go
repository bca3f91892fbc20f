// Package gpunodes is the data source gpuplan_gpu_nodes: the nodes with GPUs, their hardware, its
// health, and what is free of it.
package gpunodes

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// New returns the data source.
func New() datasource.DataSource { return &gpuNodes{session.DataSource{Type: "gpuplan_gpu_nodes"}} }

type gpuNodes struct{ session.DataSource }

// Read lists the nodes as the walk sees the cluster.
func (d *gpuNodes) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	selector, err := labels.Parse(m.LabelSelector.ValueString())
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("label_selector"), "Invalid label selector", session.Sentence(err))
		return
	}
	snapshot, err := d.Session.Snapshot(ctx)
	if err != nil {
		resp.Diagnostics.AddError("GPU nodes cannot be read", session.Unread(err))
		return
	}
	m.Nodes = nodesOf(snapshot, func(n *corev1.Node, pool string) bool {
		return (m.Pool.IsNull() || m.Pool.ValueString() == pool) && selector.Matches(labels.Set(n.Labels))
	})
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// nodesOf describes the nodes with GPUs that are wanted, in the planner's order.
func nodesOf(snapshot *cluster.Snapshot, wanted func(n *corev1.Node, pool string) bool) []nodeModel {
	published := map[string]*contract.GPUNode{}
	for i := range snapshot.GPUNodes {
		published[snapshot.GPUNodes[i].Name] = &snapshot.GPUNodes[i]
	}
	type found struct {
		node  placement.Node
		model nodeModel
	}
	var all []found
	for i := range snapshot.Nodes {
		object := &snapshot.Nodes[i]
		state := snapshot.Node(object.Name)
		if state == nil || !wanted(object, state.Pool) {
			continue
		}
		hardware := published[object.Name]
		machine, hasGPUs, err := inventory.Machine(object, hardware)
		if !hasGPUs && err == nil {
			continue
		}
		n := describe(object, state)
		n.setHardware(machine, hardware, state.HeadroomMiB)
		switch {
		case err != nil:
			n.Problem = text(err.Error())
		case state.GPUs == nil:
			n.Problem = text(fmt.Sprintf("the node offers no GPUs in mode %s at the moment: its device plugin does not run, or has not followed a change of the mode yet", state.Mode))
		}
		all = append(all, found{state.Node, n})
	}
	slices.SortFunc(all, func(a, b found) int { return placement.CompareNodes(a.node, b.node) })
	nodes := make([]nodeModel, len(all))
	for i := range all {
		nodes[i] = all[i].model
	}
	return nodes
}
