// Package clusterdata is what the Container Service says of the cluster that the provider is configured
// for: the data source gpuplan_cluster, and the ephemeral resource gpuplan_kubeconfig, which is access to it
// for a time.
package clusterdata

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// New returns the data source.
func New() datasource.DataSource { return &clusterFacts{session.DataSource{Type: "gpuplan_cluster"}} }

type clusterFacts struct{ session.DataSource }

type model struct {
	ID      types.String `tfsdk:"id"`
	Name    types.String `tfsdk:"name"`
	Region  types.String `tfsdk:"region"`
	Zones   types.List   `tfsdk:"zones"`
	State   types.String `tfsdk:"state"`
	Version types.String `tfsdk:"version"`
	Type    types.String `tfsdk:"type"`
	Profile types.String `tfsdk:"profile"`
	Spec    types.String `tfsdk:"spec"`
	VPCID   types.String `tfsdk:"vpc_id"`
	Size    types.Int64  `tfsdk:"size"`
}

func (d *clusterFacts) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The ACK cluster that the provider is configured for (`cluster_id`), as the Container Service describes it. Access to it is what the ephemeral resource `gpuplan_kubeconfig` gives.",
		Attributes: map[string]schema.Attribute{
			"id":     text("ID of the cluster."),
			"name":   text("Name of the cluster."),
			"region": text("Region of the cluster."),
			"zones": schema.ListAttribute{
				MarkdownDescription: "Zones that nodes of the cluster are in; null where the provider has no access to Kubernetes.", Computed: true, ElementType: types.StringType,
			},
			"state":   text("State of the cluster: `running` when it takes requests."),
			"version": text("Kubernetes version with the vendor's suffix, as in `1.36.1-aliyun.1`."),
			"type":    text("Type of the cluster: `ManagedKubernetes` for managed ones."),
			"profile": text("What the cluster is for, `Default` for all purposes."),
			"spec":    text("Specification of a managed cluster: `ack.pro.small` for Pro ones."),
			"vpc_id":  text("VPC of the cluster."),
			"size":    schema.Int64Attribute{MarkdownDescription: "Number of nodes.", Computed: true},
		},
	}
}

// Read asks the service, and the cluster for its zones.
func (d *clusterFacts) Read(ctx context.Context, _ datasource.ReadRequest, resp *datasource.ReadResponse) {
	record, err := d.Session.Record(ctx)
	if err != nil {
		resp.Diagnostics.AddError("Cluster cannot be read", session.Unread(err))
		return
	}
	zones, diags := d.zones(ctx)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, model{
		ID: types.StringValue(record.ID), Name: types.StringValue(record.Name), Region: types.StringValue(record.RegionID), Zones: zones,
		State: types.StringValue(record.State), Version: types.StringValue(record.Version), Type: types.StringValue(record.Type),
		Profile: types.StringValue(record.Profile), Spec: types.StringValue(record.Spec), VPCID: types.StringValue(record.VPCID), Size: types.Int64Value(record.Size),
	})...)
}

// zones are those of the nodes.
func (d *clusterFacts) zones(ctx context.Context) (zones types.List, diags diag.Diagnostics) {
	snapshot, err := d.Session.Snapshot(ctx)
	if d.Session.NotChecked(err, &diags) {
		return types.ListNull(types.StringType), diags
	}
	if err != nil {
		diags.AddError("Nodes cannot be read", session.Sentence(err))
		return zones, diags
	}
	names := []string{}
	for i := range snapshot.Nodes {
		if zone := snapshot.Nodes[i].Labels[corev1.LabelTopologyZone]; zone != "" {
			names = append(names, zone)
		}
	}
	slices.Sort(names)
	return types.ListValueFrom(ctx, types.StringType, slices.Compact(names))
}
