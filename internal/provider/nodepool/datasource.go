package nodepool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewData returns the data source: a pool that another state owns, or nobody.
func NewData() datasource.DataSource { return &poolData{session.DataSource{Type: "gpuplan_node_pool"}} }

type poolData struct{ session.DataSource }

type dataModel struct {
	Name         types.String `tfsdk:"name"`
	ID           types.String `tfsdk:"id"`
	NodePoolID   types.String `tfsdk:"nodepool_id"`
	InstanceType types.String `tfsdk:"instance_type"`
	Fallbacks    types.List   `tfsdk:"fallback_instance_types"`
	Size         types.Int64  `tfsdk:"size"`
	Mode         types.String `tfsdk:"mode"`
	GPUPolicy    types.String `tfsdk:"gpu_policy"`
	Labels       types.Map    `tfsdk:"labels"`
	Taints       types.Set    `tfsdk:"taints"`
	State        types.String `tfsdk:"state"`
	NodeNames    types.List   `tfsdk:"node_names"`
	Capacity     types.Object `tfsdk:"capacity"`
}

func (d *poolData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	texts := func(description string) schema.ListAttribute {
		return schema.ListAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "A node pool that another Terraform state owns, or that nobody manages with Terraform: what a job needs to be planned on it. " +
			"`pools = [data.gpuplan_node_pool.NAME.capacity]` gives a job the same check as the `capacity` of a pool of its own configuration, on the nodes that exist, as they are labelled. " +
			"What other configurations are about to change the plan does not know.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the pool, at most 63 characters.", Required: true, Validators: []validator.String{stringvalidator.LengthBetween(1, maxNameLength)},
			},
			"id":                      text("ID of the cluster and of the pool, `CLUSTER_ID/NODEPOOL_ID`."),
			"nodepool_id":             text("ID of the pool."),
			"instance_type":           text("Instance type of the nodes."),
			"fallback_instance_types": texts("Instance types that nodes may have as well; null for none."),
			"size":                    schema.Int64Attribute{MarkdownDescription: "Number of nodes that the pool is to have.", Computed: true},
			"mode":                    text("How the nodes offer their GPUs."),
			"gpu_policy":              text("How shared GPUs fill up; null where nothing says it."),
			"labels":                  schema.MapAttribute{MarkdownDescription: "Labels that the pool gives its nodes; null for none.", Computed: true, ElementType: types.StringType},
			"taints":                  schema.SetAttribute{MarkdownDescription: "Taints that the pool gives its nodes; null for none.", Computed: true, ElementType: taintType},
			"state":                   text("State of the pool, `active` when nothing goes on."),
			"node_names":              texts("Names of its nodes in the cluster."),
			"capacity": schema.ObjectAttribute{
				MarkdownDescription: "What the pool offers to jobs, as the attribute `capacity` of the resource `gpuplan_node_pool`: read from the nodes that exist, " +
					"or taken from the catalogue where the provider has no access to Kubernetes.",
				Computed: true, AttributeTypes: capacity.Type.AttrTypes,
			},
		},
	}
}

// Read looks the pool up by its name.
func (d *poolData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var data dataModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &data)...); resp.Diagnostics.HasError() {
		return
	}
	record, err := d.find(ctx, data.Name.ValueString())
	if errors.Is(err, errNoPool) {
		resp.Diagnostics.AddAttributeError(path.Root("name"), "Node pool does not exist", session.Sentence(err)+
			" Where a gpuplan_node_pool of the same configuration makes it, use what that resource offers (gpuplan_node_pool.NAME.capacity), or name it in depends_on of this data source, which is then read after it.")
		return
	}
	if err != nil {
		resp.Diagnostics.AddError("Node pool cannot be read", session.Unread(err))
		return
	}
	m := model{
		Labels: types.MapNull(types.StringType), Taints: types.SetNull(taintType), Fallbacks: types.ListNull(types.StringType),
		NodeNames: types.ListNull(types.StringType), Capacity: types.ObjectNull(capacity.Type.AttrTypes),
	}
	if resp.Diagnostics.Append(m.refresh(ctx, d.Session.ClusterID, record, false)...); resp.Diagnostics.HasError() {
		return
	}
	if resp.Diagnostics.Append(d.readNodes(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, dataModel{
		Name: m.Name, ID: m.ID, NodePoolID: m.NodePoolID, InstanceType: m.InstanceType, Fallbacks: m.Fallbacks, Size: m.Size,
		Mode: m.Mode, GPUPolicy: m.GPUPolicy, Labels: m.Labels, Taints: m.Taints, State: m.State, NodeNames: m.NodeNames, Capacity: m.Capacity,
	})...)
}

// errNoPool means that the cluster has no pool of that name.
var errNoPool = errors.New("no such node pool")

// find returns the pool of a name.
func (d *poolData) find(ctx context.Context, name string) (acs.NodePool, error) {
	pools, err := d.Session.NodePools(ctx)
	if err != nil {
		return acs.NodePool{}, err
	}
	var names, ids []string
	at := -1
	for i, p := range pools {
		names = append(names, p.Info.Name)
		if p.Info.Name == name {
			at, ids = i, append(ids, p.Info.ID)
		}
	}
	if len(ids) > 1 {
		return acs.NodePool{}, fmt.Errorf("cluster %s has %d node pools named %q (%s): give all but one another name", d.Session.ClusterID, len(ids), name, strings.Join(ids, ", "))
	}
	if at < 0 {
		have := "it has none"
		if len(names) > 0 {
			slices.Sort(names)
			have = "its node pools are " + strings.Join(names, ", ")
		}
		return acs.NodePool{}, fmt.Errorf("%w: cluster %s has no node pool named %q; %s", errNoPool, d.Session.ClusterID, name, have)
	}
	return pools[at], nil
}

// readNodes fills in what the nodes of the pool offer.
func (d *poolData) readNodes(ctx context.Context, m *model) diag.Diagnostics {
	p, diags := m.pool(ctx)
	if diags.HasError() {
		return diags
	}
	p.AsIs = true
	snapshot, err := d.Session.Snapshot(ctx)
	if d.Session.NotChecked(err, &diags) {
		diags.Append(m.setNodeNames(ctx, nil)...)
		diags.Append(m.setPlanned(ctx, p, capacity.Capacity{})...)
		return diags
	}
	if err != nil {
		diags.AddError("Nodes cannot be read", session.Sentence(err))
		return diags
	}
	live, nodeNames, err := m.live(snapshot, nodesOf(snapshot, m.NodePoolID.ValueString()), p)
	if err != nil {
		diags.AddError("Capacity cannot be read", session.Sentence(err))
		return diags
	}
	diags.Append(m.setNodeNames(ctx, nodeNames)...)
	diags.Append(m.setCapacity(ctx, live)...)
	return diags
}
