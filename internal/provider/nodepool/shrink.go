package nodepool

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// leaving are the pool's nodes that the user has chosen to go with this change, nil where the pool keeps
// its size or the cloud chooses.
func (c change) leaving() []string {
	chosen, ok := c.chosen()
	if !ok {
		return nil
	}
	return c.own(chosen)
}

// own are those of some nodes that are the pool's.
func (c change) own(names []string) (own []string) {
	for _, name := range c.from.nodes() {
		if slices.Contains(names, name) {
			own = append(own, name)
		}
	}
	return own
}

// chosen are the names in remove_nodes; ok is false where there are none, where they mean nothing, as the pool
// keeps its size, or are not known.
func (c change) chosen() (names []string, ok bool) {
	elements := c.to.RemoveNodes.Elements()
	if c.to.Size.ValueInt64() >= c.from.Size.ValueInt64() || len(elements) == 0 {
		return nil, false
	}
	return texts(elements), !slices.ContainsFunc(elements, attr.Value.IsUnknown)
}

// checkLeaving refuses a choice of other than as many nodes as the pool loses: the cloud would choose the
// others, or nodes would go that were to stay.
func (c change) checkLeaving() (diags diag.Diagnostics) {
	if _, ok := c.chosen(); !ok {
		return nil
	}
	from, to := c.from.Size.ValueInt64(), c.to.Size.ValueInt64()
	if names := c.leaving(); int64(len(names)) != from-to {
		are := "none of the pool's nodes"
		if len(names) > 0 {
			are = fmt.Sprintf("%d of the pool's nodes (%s)", len(names), join(names))
		}
		diags.AddAttributeError(path.Root("remove_nodes"), "Other nodes than go", fmt.Sprintf(
			"Node pool %s shrinks from %d to %s, and remove_nodes names %s. Name %d of those in node_names, or leave remove_nodes out to let the cloud choose.",
			c.before.Name, from, nodeCount(to), are, from-to))
	}
	return diags
}

// sayStaying warns of nodes in remove_nodes that stay, as the pool keeps its size.
func (c change) sayStaying() (diags diag.Diagnostics) {
	from, to := c.from.Size, c.to.Size
	staying := c.own(texts(c.to.RemoveNodes.Elements()))
	if to.IsUnknown() || to.ValueInt64() < from.ValueInt64() || len(staying) == 0 {
		return nil
	}
	diags.AddAttributeWarning(path.Root("remove_nodes"), "No node is removed", fmt.Sprintf(
		"remove_nodes names %s of node pool %s, which keeps its size of %d or grows, so that they stay. Lower size by %d to remove them, or leave them out.",
		join(staying), c.before.Name, from.ValueInt64(), len(staying)))
	return diags
}

// checkReleased refuses to remove nodes by their names from a pool whose instances are stopped and kept: of such nodes
// the service releases the instances, or leaves them running outside the pool (RemoveNodePoolNodes); it stops only
// those of nodes that it chooses itself.
func (r *pool) checkReleased(ctx context.Context, c change) (diags diag.Diagnostics) {
	if len(c.going()) == 0 {
		return nil
	}
	policy := cmp.Or(c.to.ScalingPolicy.ValueString(), c.from.ScalingPolicy.ValueString())
	if policy == "" { // nobody wrote it
		client, err := r.Session.ACS()
		var record acs.NodePool
		if err == nil {
			record, err = client.GetNodePool(ctx, c.from.cluster(), c.from.NodePoolID.ValueString())
		}
		if err != nil {
			return nil // whoever asks next says so
		}
		policy = record.ScalingGroup.ScalingPolicy
	}
	if policy != acs.ScalingPolicyRecycle {
		return nil
	}
	refuse := func(attribute string, names []string, advice string) {
		if len(names) > 0 {
			diags.AddAttributeError(path.Root(attribute), "Instances would be released", fmt.Sprintf(
				"scaling_policy of node pool %s is %q: instances of nodes that go are stopped and kept. The service can only release those of nodes that it is told to remove: %s. %s, or set scaling_policy = %q.",
				c.before.Name, policy, join(names), advice, acs.ScalingPolicyRelease))
		}
	}
	refuse("remove_nodes", c.leaving(), "Leave remove_nodes out, so that the service chooses nodes and stops their instances")
	refuse("mode_change_policy", c.replaced(), "Leave mode_change_policy out, so that they stay")
	return diags
}

// nodes are the names of the nodes of a pool that the cluster or the service has.
func (m model) nodes() []string {
	names := texts(m.NodeNames.Elements())
	for name := range m.DriftedNodes.Elements() {
		if name != m.Name.ValueString() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// readNames takes over which nodes a pool has at the service.
func (r *pool) readNames(ctx context.Context, m *model) (diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	var listed []acs.Node
	if err == nil {
		listed, err = client.ListNodes(ctx, m.cluster(), m.NodePoolID.ValueString())
	}
	if err != nil {
		diags.AddError("Nodes cannot be read", session.Sentence(err))
		return diags
	}
	return m.setNodeNames(ctx, namesOf(listed))
}

// setWithout sets what is left of a pool when nodes have gone that are known.
func (m *model) setWithout(ctx context.Context, p capacity.Pool, existing capacity.Capacity, gone []string) diag.Diagnostics {
	existing.Nodes = slices.DeleteFunc(slices.Clone(existing.Nodes), func(n capacity.Node) bool { return slices.Contains(gone, n.Name) })
	return m.setPlanned(ctx, p, existing)
}

// removeNodes drains and releases the nodes of a pool that go by name, and waits until they have gone. Of nodes
// of another mode those that the service has no more have gone; were it one of remove_nodes, the service would take
// another node in its place. begun means that the service may have begun to remove nodes.
func (c change) removeNodes(ctx context.Context, client *acs.Client, clusterID string, record acs.NodePool) (begun bool, err error) {
	poolID, report := record.Info.ID, progress(ctx, record.Info.Name)
	listed, err := client.ListNodes(ctx, clusterID, poolID)
	if err != nil {
		return false, err
	}
	var instances []string
	missing := c.leaving()
	for _, n := range listed {
		if slices.Contains(c.going(), n.Name) {
			instances = append(instances, n.InstanceID)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == n.Name })
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("the service has no node %s in node pool %s any more, so another one has taken its place, and would go in its stead: "+
			"write the names of other nodes into remove_nodes. node_names lists those of the cluster; a node that is NotReady may be gone", join(missing), record.Info.Name)
	}
	if len(instances) == 0 {
		return false, nil
	}
	started, err := client.RemoveNodes(ctx, clusterID, poolID, instances)
	if err == nil && started.TaskID != "" {
		_, err = client.WaitTask(ctx, started.TaskID, report)
	}
	if err == nil {
		_, err = client.WaitNodePool(ctx, clusterID, poolID, -1, report)
	}
	return true, err
}

// namesOf are the names of the nodes that the service lists.
func namesOf(listed []acs.Node) []string {
	names := make([]string, len(listed))
	for i, n := range listed {
		names[i] = n.Name
	}
	return names
}

// texts are the strings of a list or set.
func texts(elements []attr.Value) (list []string) {
	for _, e := range elements {
		if text, ok := e.(types.String); ok {
			list = append(list, text.ValueString())
		}
	}
	return list
}
