package nodegpu

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// ModifyPlan refuses what the apply would, and tells the jobs of this walk what becomes of the nodes.
func (r *nodeGPU) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Session == nil {
		return
	}
	var c change
	if !req.State.Raw.IsNull() {
		c.from = new(model)
		resp.Diagnostics.Append(req.State.Get(ctx, c.from)...)
		resp.Diagnostics.Append(r.Recall(ctx, req.Private, c.from)...)
	}
	if !req.Plan.Raw.IsNull() {
		c.to = new(model)
		resp.Diagnostics.Append(req.Plan.Get(ctx, c.to)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if c.to == nil {
		resp.Diagnostics.Append(r.plan(ctx, c)...)
		return
	}
	c.to.DriftedNodes = types.MapValueMust(types.StringType, nil)
	c.to.ID, c.to.Capacity = types.StringUnknown(), types.ObjectUnknown(capacity.Type.AttrTypes)
	if c.to.known(ctx) {
		c.to.ID = types.StringValue(strings.Join(c.given(), ","))
		if c.from != nil && !c.relabels() {
			c.to.Capacity = c.from.Capacity
		}
		resp.Diagnostics.Append(r.plan(ctx, c)...)
		if c.from != nil && len(c.from.DriftedNodes.Elements()) > 0 {
			resp.Diagnostics.AddAttributeWarning(path.Root("nodes"), "Nodes are not as they should be", fmt.Sprintf(
				"The apply labels them again: %s.", describe(c.from.DriftedNodes)))
		}
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, c.to)...)
}

// plan checks a change, and tells the jobs of this walk about it.
func (r *nodeGPU) plan(ctx context.Context, c change) (diags diag.Diagnostics) {
	for _, name := range c.given() {
		if other := r.Session.Ledger.GiveMode(name, c.to.Name.ValueString()); other != "" {
			diags.AddAttributeError(path.Root("nodes"), "Two resources for one node", fmt.Sprintf(
				"Node %s is in nodes of gpuplan_node_gpu %q and of %q, and a node has one mode: take it out of one of them.", name, other, c.to.Name.ValueString()))
		}
	}
	if c.from == nil {
		for _, f := range r.Session.Ledger.CreatePool(c.to.Name.ValueString()) {
			diags.Append(diag.WithPath(path.Root("name"), session.Diagnostic(f)))
		}
	}
	changes := c.to == nil || c.relabels()
	if diags.HasError() || r.Session.Ledger.Applying() && !changes {
		return diags
	}
	snapshot, err := r.Session.Snapshot(ctx)
	if r.Session.NotChecked(err, &diags) {
		return diags
	}
	if err != nil {
		diags.AddError("Nodes cannot be looked at", session.Sentence(err))
		return diags
	}
	if c.to != nil && changes {
		c.planCapacity(snapshot)
	}
	if r.Session.Ledger.Applying() {
		return diags // the apply looks at the rest once more
	}
	if c.to != nil && changes {
		diags.Append(c.checkName(snapshot)...)
		diags.Append(c.sayWithoutGPUs(snapshot)...)
	}
	if changes {
		diags.Append(r.Session.LabelRights(ctx)...)
	}
	if diags.Append(r.check(ctx, c, snapshot)...); diags.HasError() {
		return diags
	}
	diags.Append(c.sayRemains()...)
	return append(diags, r.tell(c, snapshot)...)
}

// planCapacity makes known what there is to know of the capacity before the nodes are changed. An apply finds the same.
func (c change) planCapacity(snapshot *cluster.Snapshot) {
	nodes, missing := find(snapshot, c.given())
	switch {
	case len(missing) > 0:
	case instanceType(nodes) == "":
		c.to.Capacity = types.ObjectNull(capacity.Type.AttrTypes)
	default:
		c.to.Capacity = capacity.NameOnly(c.to.Name.ValueString())
	}
}

// checkName refuses a name that other nodes have.
func (c change) checkName(snapshot *cluster.Snapshot) (diags diag.Diagnostics) {
	var others []string
	for i := range snapshot.Nodes {
		n := &snapshot.Nodes[i]
		if n.Labels[contract.NodePoolNameLabel] == c.to.Name.ValueString() && !slices.Contains(c.given(), n.Name) && !slices.Contains(c.before(), n.Name) {
			others = append(others, n.Name)
		}
	}
	if len(others) > 0 {
		diags.AddAttributeError(path.Root("name"), "Name is that of other nodes", fmt.Sprintf(
			"The label %s of %s is %s already, so that jobs would take these for nodes of the same pool. Choose another name, add them to nodes, or take the label off with `kubectl label node %s %s-`.",
			contract.NodePoolNameLabel, nodesCalled(others), c.to.Name.ValueString(), strings.Join(others, " "), contract.NodePoolNameLabel))
	}
	return diags
}

// sayWithoutGPUs warns of nodes on which nobody knows of GPUs.
func (c change) sayWithoutGPUs(snapshot *cluster.Snapshot) (diags diag.Diagnostics) {
	nodes, _ := find(snapshot, c.given())
	var without []string
	for _, n := range nodes {
		if _, ok, err := inventory.Machine(n, publishedOf(snapshot, n.Name)); !ok && err == nil {
			without = append(without, n.Name)
		}
	}
	if len(without) > 0 {
		diags.AddAttributeWarning(path.Root("nodes"), "Nodes without GPUs", fmt.Sprintf(
			"Nobody knows of GPUs on %s: no node agent publishes any, the instance type is none of the catalogue's, and no device plugin counts any. "+
				"The label has no effect without GPUs and a device plugin that follows it.", nodesCalled(without)))
	}
	return diags
}

func publishedOf(snapshot *cluster.Snapshot, node string) *contract.GPUNode {
	for i := range snapshot.GPUNodes {
		if snapshot.GPUNodes[i].Name == node {
			return &snapshot.GPUNodes[i]
		}
	}
	return nil
}

// tell shows the ledger the nodes as they will be.
func (r *nodeGPU) tell(c change, snapshot *cluster.Snapshot) diag.Diagnostics {
	var changed []placement.Node
	for _, m := range c.moves(snapshot) {
		if maps.Equal(m.labels, m.node.Labels) {
			continue
		}
		published := publishedOf(snapshot, m.node.Name)
		if n, err := inventory.Node(inventory.Relabelled(m.node, published, m.labels), published); err == nil {
			changed = append(changed, n)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	r.Session.Ledger.Observe(func() ledger.Live { return snapshot.Live(r.Session.Owns) })
	return session.Diagnostics(r.Session.Ledger.RelabelNodes(changed))
}

// sayRemains says what nodes keep that lose their label.
func (c change) sayRemains() (diags diag.Diagnostics) {
	if len(c.dropped()) == 0 || c.from.Mode.ValueString() == string(placement.ModeDefault) {
		return nil
	}
	at := path.Root("nodes")
	if c.to == nil {
		at = path.Empty()
	}
	diags.Append(diag.WithPath(at, diag.NewWarningDiagnostic("Nodes may stay in their mode", fmt.Sprintf(
		"The plan takes the label %s away from %s, and puts nothing in its place. ACK's device plugin then leaves a node in the mode that it has, %s: "+
			"set mode = \"default\" and apply that before, where its GPUs are to be whole again.", contract.NodeModeLabel, nodesCalled(c.dropped()), c.from.Mode.ValueString()))))
	return diags
}

// describe lists the entries of drifted_nodes.
func describe(drifted types.Map) string {
	elements := drifted.Elements()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		if text, ok := elements[name].(types.String); ok {
			parts = append(parts, name+" ("+text.ValueString()+")")
		}
	}
	return join(parts)
}

// open reports whether anything of an object is unknown.
func open(object types.Object) bool {
	return object.IsUnknown() || slices.ContainsFunc(slices.Collect(maps.Values(object.Attributes())), attr.Value.IsUnknown)
}
