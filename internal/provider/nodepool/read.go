package nodepool

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// ofCluster reports whether a pool is of the cluster that the provider is configured for, as far as
// that is known.
func (r *pool) ofCluster(m model) bool {
	return r.Session.ClusterID == "" || m.cluster() == r.Session.ClusterID
}

// gone reports whether the error of a look at a pool says that there is no such pool. That the
// cluster of the provider is not found does not: its region may be wrong.
func (r *pool) gone(err error, m model) bool {
	return acs.IsNotFound(err) && (acs.Code(err) != "ErrorClusterNotFound" || !r.ofCluster(m))
}

// refuseElsewhere refuses to change or delete a pool of another cluster than the one that the provider is configured for.
func (r *pool) refuseElsewhere(m model) (diags diag.Diagnostics) {
	if !r.ofCluster(m) {
		diags.AddAttributeError(path.Root("id"), "Node pool is of another cluster", fmt.Sprintf(
			"Node pool %s is one of cluster %s, and the provider is configured for cluster %s (%s), where it would look for the nodes and jobs. "+
				"Set %[4]s back, use another provider configuration (alias) for the other cluster, or give the pool up with `terraform state rm`.",
			m.called(), m.cluster(), r.Session.ClusterID, session.ClusterID))
	}
	return diags
}

// sayElsewhere says why a pool counts as gone whose cluster is not found: the service says this of a cluster in another region, too.
func (r *pool) sayElsewhere(err error, m model) (diags diag.Diagnostics) {
	if acs.Code(err) == "ErrorClusterNotFound" {
		diags.AddWarning("Node pool is of another cluster", fmt.Sprintf(
			"Node pool %s counts as gone: it is one of cluster %s, which region %s does not have, and the provider is configured for cluster %s (%s). "+
				"Where that cluster is in another region, do not apply: the pool would be made here as well, and what there is would be forgotten, and stay there.",
			m.called(), m.cluster(), r.Session.Region, r.Session.ClusterID, session.ClusterID))
	}
	return diags
}

// called is what an error calls a pool: its name, or its ID where the state knows no more.
func (m model) called() string { return cmp.Or(m.Name.ValueString(), m.ID.ValueString()) }

func (r *pool) look(ctx context.Context, of tfsdk.State, m *model) (found bool, diags diag.Diagnostics, err error) {
	client, err := r.Session.ACS()
	if err != nil {
		return false, nil, err
	}
	record, err := client.GetNodePool(ctx, m.cluster(), m.NodePoolID.ValueString())
	if r.gone(err, *m) {
		return false, r.sayElsewhere(err, *m), nil
	}
	if err != nil {
		return false, nil, err
	}
	if r.TakenOver(m, record.Tag(contract.OwnerTag)) {
		return false, nil, nil
	}
	imported := m.AllowDisruption.IsNull()
	if imported {
		diags.Append(m.imported(ctx, of, record.Tag(contract.SettingsTag))...)
	}
	diags.Append(m.refresh(ctx, m.cluster(), record, imported)...)
	r.NoteStamp(m, record.Tag(contract.OwnerTag), imported)
	r.Session.Ledger.Own(m.ID.ValueString())
	diags.Append(r.readNodes(ctx, client, m, record)...)
	return true, diags, nil
}

// readNodes compares the nodes with their pool and reads what is free on them. Without
// access to Kubernetes, what the state says of the nodes stays; the service tells of the pool.
func (r *pool) readNodes(ctx context.Context, client *acs.Client, m *model, record acs.NodePool) (diags diag.Diagnostics) {
	p, diags := m.pool(ctx)
	if diags.HasError() {
		return diags
	}
	drifted := differences{}
	drifted.add(p.Name, recordDrift(record, p))
	if noted(m.DriftedNodes, p.Name) {
		drifted.add(p.Name, unfinished)
	}
	snapshot, err := r.Session.Snapshot(ctx)
	if r.Session.NotChecked(err, &diags) {
		if m.Capacity.IsNull() { // imported
			m.readOtherModes(nil, p)
			diags.Append(m.setNodes(ctx, nil, drifted)...)
			diags.Append(m.setPlanned(ctx, p, capacity.Capacity{})...)
			return diags
		}
		for name, text := range m.DriftedNodes.Elements() {
			if text, ok := text.(types.String); ok && name != p.Name {
				drifted.add(name, text.ValueString())
			}
		}
		diags.Append(m.setDrifted(ctx, drifted)...)
		return diags
	}
	if err != nil {
		diags.AddError("Nodes cannot be read", session.Sentence(err))
		return diags
	}
	nodes := nodesOf(snapshot, m.NodePoolID.ValueString())
	for _, n := range nodes {
		drifted.add(n.Name, drift(n, p))
	}
	if int64(len(nodes)) < record.Status.Total && !leaving(record.Status.State) {
		listed, err := client.ListNodes(ctx, m.cluster(), record.Info.ID)
		if err != nil {
			diags.AddError("Nodes cannot be read", session.Sentence(err))
			return diags
		}
		drifted.addAbsent(record, listed, snapshot, len(nodes))
	}
	live, nodeNames, err := m.live(snapshot, nodes, p)
	if err != nil {
		diags.AddError("Capacity cannot be read", session.Sentence(err))
		return diags
	}
	diags.Append(m.setNodes(ctx, nodeNames, drifted)...)
	diags.Append(m.setCapacity(ctx, live)...)
	return diags
}

// live is what the nodes of a pool offer, and how they are called. Those of another mode offer nothing, and are noted.
func (m *model) live(snapshot *cluster.Snapshot, nodes []*corev1.Node, p capacity.Pool) (live capacity.Capacity, nodeNames []string, err error) {
	ofItsMode := m.readOtherModes(nodes, p)
	live, err = p.Live(snapshot.Hardware(names(ofItsMode)), snapshot.PodsOn)
	others := slices.Sorted(maps.Keys(m.OtherModeNodes.Elements()))
	return live, append(capacityNames(live), others...), err
}

// readCapacity reads what the nodes offer that a change has left; without access to Kubernetes
// it is what the catalogue says.
func (r *pool) readCapacity(ctx context.Context, m *model, p capacity.Pool) (diags diag.Diagnostics) {
	snapshot, err := r.Session.Snapshot(ctx)
	if r.Session.NotChecked(err, &diags) {
		diags.Append(m.setPlanned(ctx, p, capacity.Capacity{})...)
		return diags
	}
	var live capacity.Capacity
	if err == nil {
		nodes := nodesOf(snapshot, m.NodePoolID.ValueString())
		nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return otherMode(n.Labels, p) != "" })
		live, err = p.Live(snapshot.Hardware(names(nodes)), snapshot.PodsOn)
	}
	if err != nil {
		diags.AddError("Capacity cannot be read", session.Sentence(err))
		return diags
	}
	diags.Append(m.setCapacity(ctx, live)...)
	return diags
}

func (m *model) setNodeNames(ctx context.Context, nodeNames []string) diag.Diagnostics {
	list, diags := types.ListValueFrom(ctx, types.StringType, append([]string{}, nodeNames...))
	m.NodeNames = list
	return diags
}

func (m *model) setNodes(ctx context.Context, nodeNames []string, drifted differences) diag.Diagnostics {
	diags := m.setNodeNames(ctx, nodeNames)
	diags.Append(m.setDrifted(ctx, drifted)...)
	return diags
}

func (m *model) setDrifted(ctx context.Context, drifted differences) diag.Diagnostics {
	value, diags := types.MapValueFrom(ctx, types.StringType, map[string]string(drifted))
	m.DriftedNodes = value
	return diags
}

func (m *model) setCapacity(ctx context.Context, c capacity.Capacity) diag.Diagnostics {
	value, diags := c.Value(ctx)
	m.Capacity = value
	return diags
}

// capacityOpen reports whether anything of the capacity is unknown until apply.
func (m *model) capacityOpen() bool {
	return m.Capacity.IsUnknown() || slices.ContainsFunc(slices.Collect(maps.Values(m.Capacity.Attributes())), attr.Value.IsUnknown)
}

// offering is how many of the pool's nodes are of its mode.
func (m *model) offering() int {
	return max(0, int(m.Size.ValueInt64())-len(m.OtherModeNodes.Elements()))
}

// setPlanned sets the capacity that the pool will have, with the nodes that exist.
func (m *model) setPlanned(ctx context.Context, p capacity.Pool, existing capacity.Capacity) diag.Diagnostics {
	planned, err := p.Planned(existing, m.offering())
	if err != nil {
		return diag.Diagnostics{diag.NewErrorDiagnostic("Capacity cannot be planned", session.Sentence(err))}
	}
	return m.setCapacity(ctx, planned)
}

// setRemaining sets the capacity that a pool will have which exists, with the nodes that the
// cluster has, and absent ones that it lacks. Where nodes go the cloud chooses which: the capacity
// is known when it is the same whichever they are. Without consent no job stays on the nodes.
func (m *model) setRemaining(ctx context.Context, p capacity.Pool, existing capacity.Capacity, absent int) diag.Diagnostics {
	size, others := int(m.Size.ValueInt64()), len(m.OtherModeNodes.Elements())
	if absent+others > 0 && size > 0 && size < len(existing.Nodes)+absent+others {
		return m.setOpen(ctx, p)
	}
	rest, known, err := p.Remaining(existing, m.offering(), !m.AllowDisruption.ValueBool())
	switch {
	case err != nil:
		return diag.Diagnostics{diag.NewErrorDiagnostic("Capacity cannot be planned", session.Sentence(err))}
	case !known:
		return m.setOpen(ctx, p)
	}
	return m.setCapacity(ctx, rest)
}

// setOpen leaves open what the nodes of a pool that exists will offer.
func (m *model) setOpen(ctx context.Context, p capacity.Pool) diag.Diagnostics {
	value, diags := p.Open(ctx)
	m.Capacity = value
	return diags
}

// lacking counts the nodes of a pool that are known to the service and not to the cluster.
func lacking(state model) int {
	here := map[string]bool{state.Name.ValueString(): true}
	for _, name := range state.NodeNames.Elements() {
		if text, ok := name.(types.String); ok {
			here[text.ValueString()] = true
		}
	}
	count := 0
	for name := range state.DriftedNodes.Elements() {
		if !here[name] {
			count++
		}
	}
	return count
}

func capacityNames(c capacity.Capacity) []string {
	out := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		out[i] = n.Name
	}
	return out
}
