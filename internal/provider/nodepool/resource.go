// Package nodepool is the resource gpuplan_node_pool: a pool of GPU nodes.
package nodepool

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// New returns the resource.
func New() resource.Resource { return newPool() }

func newPool() *pool {
	r := &pool{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_node_pool", Title: "Node pool",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Object: func(m *model) string { return object(m.Name) },
		Identity: lifecycle.Identity{
			{Name: "cluster_id", Description: "ID of the cluster; default: the provider's.", Default: func() string { return r.Session.ClusterID }},
			{Name: "nodepool_id", Description: "ID of the node pool."},
		},
		ID: func(m *model) string { return m.ID.ValueString() }, Import: r.importID,
		Succeeds: lifecycle.Successor{Of: "alicloud_cs_kubernetes_node_pool", Attributes: func(clusterID, poolID string) map[string]string {
			return map[string]string{"id": clusterID + "/" + poolID, "nodepool_id": poolID}
		}},
		Add: r.add, Look: r.look, Change: r.update, Recollect: r.recallJobs, Remove: r.remove,
		Kept: func(m *model) *lifecycle.Kept { return &m.kept },
	}
	return r
}

type pool struct{ lifecycle.Resource[model] }

// importID takes "CLUSTER_ID/NODEPOOL_ID" or the pool's name.
func (r *pool) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	clusterID, poolID, full := strings.Cut(id, "/")
	if full && (clusterID == "" || poolID == "" || strings.Contains(poolID, "/")) || id == "" {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf("%q does not name a node pool: write CLUSTER_ID/NODEPOOL_ID, or the name of the pool.", id))
		return
	}
	client, err := r.Session.ACS()
	if err != nil {
		resp.Diagnostics.AddError("Node pool cannot be imported", session.Sentence(err))
		return
	}
	if full && clusterID != r.Session.ClusterID {
		resp.Diagnostics.AddError("Node pool of another cluster", fmt.Sprintf(
			"The provider is configured for cluster %s, and the import names cluster %s. Use a provider configuration for that cluster.", r.Session.ClusterID, clusterID))
		return
	}
	if !full {
		found, err := client.FindNodePool(ctx, r.Session.ClusterID, id)
		if err != nil {
			resp.Diagnostics.AddError("Node pool cannot be imported", session.Sentence(err))
			return
		}
		if found == nil {
			resp.Diagnostics.AddError("No such node pool", fmt.Sprintf("Cluster %s has no node pool named %q. Write the name of one that it has, or CLUSTER_ID/NODEPOOL_ID.", r.Session.ClusterID, id))
			return
		}
		poolID = found.Info.ID
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), r.Session.ClusterID+"/"+poolID)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("nodepool_id"), poolID)...)
}

// cluster is the ID of the cluster that a pool of the state is in, which need not be
// the one that the provider is configured for now.
func (m model) cluster() string {
	clusterID, _, _ := strings.Cut(m.ID.ValueString(), "/")
	return clusterID
}

// progress logs what the service is doing.
func progress(ctx context.Context, name string) func(acs.Progress) {
	return func(p acs.Progress) {
		tflog.Info(ctx, "node pool "+name+": "+p.String(), map[string]any{"task": p.TaskID, "state": p.State, "stage": p.Stage, "message": p.Message})
	}
}
