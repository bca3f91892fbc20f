package scheduler

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewData returns the data source: the scheduler that the cluster has, whoever installed it.
func NewData() datasource.DataSource {
	return &schedulerData{session.DataSource{Type: "gpuplan_scheduler"}}
}

type schedulerData struct{ session.DataSource }

type dataModel struct {
	ID            types.String `tfsdk:"id"`
	SchedulerName types.String `tfsdk:"scheduler_name"`
	Running       types.Bool   `tfsdk:"running"`
	Image         types.String `tfsdk:"image"`
	Replicas      types.Int64  `tfsdk:"replicas"`
	LogLevel      types.Int64  `tfsdk:"log_level"`
	Port          types.Int64  `tfsdk:"port"`
	Grace         types.String `tfsdk:"unreachable_grace"`
	ReserveAfter  types.String `tfsdk:"reserve_after"`
	StaleAfter    types.String `tfsdk:"stale_after"`
	RoutePods     types.Bool   `tfsdk:"route_pods"`
}

func (d *schedulerData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	count := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	flag := func(description string) schema.BoolAttribute {
		return schema.BoolAttribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The gpuplan scheduler of the cluster that another Terraform state owns, or that was installed with Helm. It fails where there is none. " +
			"A job of another state names it as `scheduler_name = data.gpuplan_scheduler.NAME.scheduler_name`, so that the plan fails before there is a scheduler.",
		Attributes: map[string]schema.Attribute{
			"id":                text("Namespace and name of the Deployment."),
			"scheduler_name":    text("What pods write into `schedulerName`."),
			"running":           flag("Whether a scheduler is ready to place pods."),
			"image":             text("Container image of the scheduler."),
			"replicas":          count("Number of schedulers, and of queue controllers."),
			"log_level":         count("Verbosity of the log."),
			"port":              count("Port for health and metrics; 0 for none."),
			"unreachable_grace": text("How long a node may be unreachable before the members of gangs on it are failed; null for the scheduler's default."),
			"reserve_after":     text("How long a gang waits before capacity is reserved for it; null for the scheduler's default."),
			"stale_after":       text("How long a gang that has lost members may find no place for others before it is evicted; null for never."),
			"route_pods":        flag("Whether pods that ask for GPUs and name no scheduler are sent to this one: not where the API server has no mutating admission policies, though it was asked for."),
		},
	}
}

// Read looks at the Deployment.
func (d *schedulerData) Read(ctx context.Context, _ datasource.ReadRequest, resp *datasource.ReadResponse) {
	workload, err := program.Manager{Session: d.Session, Name: contract.SchedulerName, Kind: "Deployment"}.Live(ctx)
	if err != nil {
		resp.Diagnostics.AddError("Scheduler cannot be read", session.Unread(err))
		return
	}
	if workload == nil {
		resp.Diagnostics.AddError("Cluster has no gpuplan scheduler", fmt.Sprintf(
			"There is no Deployment %s/%s. A gpuplan_scheduler installs it; where that is in this configuration, refer to it instead of reading it.", contract.SystemNamespace, contract.SchedulerName))
		return
	}
	client, err := d.Session.Kube()
	running, routes := false, false
	if err == nil {
		running, _, err = client.Alive(ctx, contract.SystemNamespace, contract.SchedulerName)
	}
	var m model
	m.Complete()
	m.Refresh(workload)
	if err == nil && m.RoutePods.ValueBool() {
		routes, err = routed(ctx, client)
	}
	if err != nil {
		resp.Diagnostics.AddError("Scheduler cannot be read", session.Unread(err))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, dataModel{
		ID: m.ID, SchedulerName: m.SchedulerName, Running: types.BoolValue(running), Image: m.Image, Replicas: m.Replicas, LogLevel: m.LogLevel, Port: m.Port,
		Grace: m.Grace.StringValue, ReserveAfter: m.ReserveAfter.StringValue, StaleAfter: m.StaleAfter.StringValue, RoutePods: types.BoolValue(routes),
	})...)
}

// routed reports whether the policy is there that sends pods to the scheduler: an API server may not serve it, and Helm leaves
// it out where it renders without one. Who may not look takes what was asked for.
func routed(ctx context.Context, client *kube.Client) (bool, error) {
	kind := runtimeschema.GroupVersionKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}
	version, served, err := client.Served(ctx, kind.Group, kind.Kind)
	if err != nil || !served {
		return false, err
	}
	kind.Version = version
	_, err = client.Get(ctx, kind, "", contract.RoutePolicyName)
	switch {
	case kube.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	}
	return err == nil, err
}
