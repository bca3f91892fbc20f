package nodepool

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// NewList returns the list of the cluster's pools of GPU nodes.
func NewList() list.ListResource {
	r := newPool()
	return &lifecycle.Lister[model]{
		Resource: &r.Resource,
		Schema: schema.Schema{MarkdownDescription: "The pools of GPU nodes of the provider's cluster, whoever made them: `terraform query` (Terraform ≥ 1.14) shows them with their identities, " +
			"and writes the configuration with which they are imported."},
		All: r.all,
	}
}

// all are the pools whose instance type the catalogue has: those of nodes without GPUs are none of this resource's.
func (r *pool) all(ctx context.Context, _ tfsdk.Config) (all []lifecycle.Listed, diags diag.Diagnostics, err error) {
	client, err := r.Session.ACS()
	if err != nil {
		return nil, nil, err
	}
	pools, err := client.ListNodePools(ctx, r.Session.ClusterID)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pools {
		if len(p.ScalingGroup.InstanceTypes) == 0 {
			continue
		}
		if _, ok := catalog.Lookup(p.ScalingGroup.InstanceTypes[0]); ok {
			all = append(all, lifecycle.Listed{ID: r.Session.ClusterID + "/" + p.Info.ID, Name: p.Info.Name})
		}
	}
	return all, nil, nil
}
