package trainingjob

import (
	"cmp"
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewData returns the data source: how a job runs. It is not in the state of the resource,
// because every plan that replaces a job would list all of it as unknown.
func NewData() datasource.DataSource {
	return &courseOfJob{session.DataSource{Type: "gpuplan_training_job"}}
}

type courseOfJob struct{ session.DataSource }

// courseModel is how a job runs.
type courseModel struct {
	ID             types.String `tfsdk:"id"`
	Status         types.String `tfsdk:"status"`
	Cluster        types.String `tfsdk:"cluster"`
	Placement      types.Map    `tfsdk:"placement"`
	Confirmed      types.Bool   `tfsdk:"confirmed"`
	NCCL           types.Object `tfsdk:"nccl"`
	Conditions     types.List   `tfsdk:"conditions"`
	StartTime      types.String `tfsdk:"start_time"`
	CompletionTime types.String `tfsdk:"completion_time"`
}

func (d *courseOfJob) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "How a training job runs: where its members are, its conditions and times. " +
			"Name the job's resource in `depends_on`, so that Terraform looks after it has created or replaced the job.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "Namespace and name of the job, `gpuplan_training_job.NAME.id`. Of a job that the cluster does not have, all else is null.",
				Required:            true,
				Validators:          []validator.String{jobID{}},
			},
			"status":  text("Where the job stands: `Pending`, `Created`, `Running`, `Restarting`, `Suspended`, `Succeeded` or `Failed`."),
			"cluster": text("The member cluster to which the hub of a fleet has sent the job. Null where it has sent it nowhere, and for a job that is not of a fleet."),
			"placement": schema.MapAttribute{
				MarkdownDescription: "Where the members run, " + assignment.Description + ". Where the agent of a node gives containers their GPUs (`device_plugins` of `gpuplan_node_agent`), " +
					"these are what it has given, also in mode `default`; elsewhere what the scheduler has recorded.",
				Computed: true, ElementType: types.StringType,
			},
			"confirmed": schema.BoolAttribute{
				MarkdownDescription: "Whether the agents of the nodes have confirmed for every container with GPUs of these members which ones it was given. Null where no agent gives containers their GPUs.",
				Computed:            true,
			},
			"nccl": ncclSchema,
			"conditions": schema.ListNestedAttribute{
				MarkdownDescription: "Conditions that the job's operator reports, or Kubernetes of a Job of its own.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"type":    text("Type of the condition."),
					"status":  text("`True`, `False` or `Unknown`."),
					"reason":  text("Reason in one word."),
					"message": text("Message for people."),
					"since":   text("Time of the last change, RFC 3339."),
				}},
			},
			"start_time":      text("When the operator took on the job, RFC 3339."),
			"completion_time": text("When the job finished, RFC 3339."),
		},
	}
}

// Read looks at the job of any framework.
func (d *courseOfJob) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m courseModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	m.Placement, m.Conditions, m.NCCL = types.MapNull(types.StringType), types.ListNull(conditionType), types.ObjectNull(ncclType)
	client, err := d.Session.Kube()
	if errors.Is(err, session.ErrUnknown) {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
		return
	}
	if err != nil {
		resp.Diagnostics.AddError("Job cannot be read", session.Sentence(err))
		return
	}
	namespace, name, _ := parseID(m.ID.ValueString())
	var refused error // of a kind that the user may not look at, and that the job may be of
	for _, framework := range job.Frameworks() {
		obj, err := find(ctx, client, framework, namespace, name)
		if apierrors.IsForbidden(err) {
			refused = cmp.Or(refused, err)
			continue
		}
		if absent(err) {
			continue
		}
		if err == nil && framework == job.TrainJob && !job.Whole(obj) {
			err = joinSet(ctx, client, obj) // its runtime is not ours
		}
		if refused = err; err == nil {
			resp.Diagnostics.Append(d.fill(ctx, &m, framework, obj)...)
		}
		break
	}
	if refused != nil {
		resp.Diagnostics.AddError("Job cannot be read", session.Sentence(refused))
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (d *courseOfJob) fill(ctx context.Context, m *courseModel, framework job.Framework, obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	at, err := siteAnywhere(ctx, d.Session, framework, obj)
	status, statusErr := job.StatusOf(at.shown(obj))
	if statusErr != nil {
		diags.AddError("Job cannot be read", session.Sentence(statusErr))
		return diags
	}
	m.Status = types.StringValue(string(status.Phase))
	m.StartTime, m.CompletionTime = timeValue(status.Start), timeValue(status.Completion)
	conditions := make([]conditionModel, 0, len(status.Conditions))
	for _, c := range status.Conditions {
		conditions = append(conditions, conditionModel{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			Since: timeValue(&c.LastTransitionTime).ValueString(),
		})
	}
	list, listDiags := types.ListValueFrom(ctx, conditionType, conditions)
	diags.Append(listDiags...)
	m.Conditions = list
	m.Cluster = textOrNull(at.cluster)
	if err == nil && at.obj == nil {
		return diags // it is nowhere yet
	}
	var actual whereabouts
	if err == nil {
		actual, err = whereaboutsOf(ctx, at.seen, at.obj, &diags)
	}
	switch {
	case err != nil && at.cluster != "": // one cluster of a fleet that is away stops no plan
		diags.AddWarning("Placement cannot be read", session.Sentence(err))
		return diags
	case err != nil:
		diags.AddError("Placement cannot be read", session.Sentence(err))
		return diags
	}
	m.Placement, m.Confirmed = assignment.Value(actual.members), actual.confirmed
	m.NCCL = ncclOf(ctx, at, actual.members, &diags)
	return diags
}

// jobID accepts what names a job.
type jobID struct{}

func (jobID) Description(context.Context) string { return "NAMESPACE/NAME" }

func (v jobID) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (jobID) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, _, ok := parseID(req.ConfigValue.ValueString()); !ok {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid job", req.ConfigValue.String()+" does not name a job: write NAMESPACE/NAME, or gpuplan_training_job.NAME.id.")
	}
}
