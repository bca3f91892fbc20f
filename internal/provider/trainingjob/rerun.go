package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewRerun returns the action that runs a finished job again.
func NewRerun() action.Action {
	return &rerunJob{session.Action{Type: "gpuplan_rerun_training_job"}}
}

type rerunJob struct{ session.Action }

type rerunModel struct {
	ID      types.String   `tfsdk:"id"`
	WaitFor types.String   `tfsdk:"wait_for"`
	Timeout duration.Value `tfsdk:"timeout"`
}

func (a *rerunJob) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Runs a training job of this configuration again that has succeeded or failed: deletes it, with its pods and their logs, and creates it with what it says. Terraform 1.14 and later has actions; OpenTofu has none.\n\n" +
			"A job that has not finished, or that is not this configuration's (`owner` of the provider), is refused, and stays. One that is gone, as after `ttl_seconds_after_finished`, the action cannot read: change `triggers` of its resource instead, which also plans a new place. " +
			"The job keeps its planned placement; where that is taken, the scheduler finds another. The resource has the new job with the next refresh, and nothing is left to do. " +
			"An apply that is cut off between the two says so: `terraform apply -replace` of the resource then creates the job.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "Namespace and name of the job, `gpuplan_training_job.NAME.id`.",
				Required:            true, Validators: []validator.String{jobID{}},
			},
			"wait_for": schema.StringAttribute{
				MarkdownDescription: "What the action waits for: `running` (default), `succeeded` or `none`, as `wait_for` of `gpuplan_training_job`. A job that fails meanwhile, or does not come so far in time, fails the action, and is left as it is.",
				Optional:            true, Validators: []validator.String{stringvalidator.OneOf(waitRunning, waitSucceeded, waitNone)},
			},
			"timeout": schema.StringAttribute{
				MarkdownDescription: "How long all of it may take, such as `2h`. Default `20m`.",
				Optional:            true, CustomType: duration.Type{},
				Validators: []validator.String{duration.Between{Least: time.Second, Most: 90 * 24 * time.Hour}},
			},
		},
	}
}

// ModifyPlan says what the action would refuse, as far as that is known: the job may finish until then.
func (a *rerunJob) ModifyPlan(ctx context.Context, req action.ModifyPlanRequest, resp *action.ModifyPlanResponse) {
	var m rerunModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() || a.Session == nil || m.ID.IsUnknown() || a.Session.Ledger.Applying() {
		return
	}
	client, err := a.Session.Kube()
	if a.Session.NotChecked(err, &resp.Diagnostics) {
		return
	}
	if err == nil {
		_, err = a.finished(ctx, client, m.ID.ValueString())
	}
	if missing := (*noJobError)(nil); err != nil && !errors.As(err, &missing) {
		resp.Diagnostics.AddAttributeWarning(path.Root("id"), "Job cannot be run again now", session.Sentence(err))
	}
}

// Invoke runs the job again.
func (a *rerunJob) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m rerunModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout := limits.Create
	var err error
	if !m.Timeout.IsNull() {
		timeout, err = m.Timeout.Length()
	}
	a.Session.Ledger.StartApplying()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var client *kube.Client
	if err == nil {
		client, err = a.Session.Kube()
	}
	if err == nil {
		err = a.run(limited, client, m, func(format string, args ...any) {
			resp.SendProgress(action.InvokeProgressEvent{Message: fmt.Sprintf(format, args...)})
		})
	}
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("id"), "Job was not run again", session.Sentence(err))
	}
}

// run deletes the job and creates it again.
func (a *rerunJob) run(ctx context.Context, client *kube.Client, m rerunModel, say func(format string, args ...any)) error {
	r := &trainingJob{lifecycle.Resource[model]{Session: a.Session}}
	namespace, name, _ := parseID(m.ID.ValueString())
	defer a.Session.Ledger.Begin(object(job.Spec{Namespace: namespace, Name: name}))()
	live, err := a.finished(ctx, client, m.ID.ValueString())
	if err != nil {
		return err
	}
	spec, err := job.Parse(live)
	if err != nil {
		return err
	}
	if spec.Queue {
		if err := needQueue(ctx, client); err != nil {
			return err
		}
	}
	spec.Planned = live.GetAnnotations()[contract.PlannedPlacementAnnotation]
	notes := map[string]string{}
	if text, ok := live.GetAnnotations()[contract.SettingsAnnotation]; ok {
		notes[contract.SettingsAnnotation] = text
	}
	say("Deleting %s %s, which has finished, and its pods.", live.GetKind(), spec.ID())
	if err := r.discard(ctx, client, spec, live); err != nil {
		return err
	}
	created, err := submit(context.WithoutCancel(ctx), client, spec, nil, notes) // or nothing would be left of the job
	if err != nil {
		return fmt.Errorf("job %s was deleted, and could not be created: %w; apply with -replace of its resource, which creates it", spec.ID(), err)
	}
	defer a.Session.Changed()
	say("Created %s %s.", live.GetKind(), spec.ID())
	if err := tellArena(ctx, client, spec, created.GetUID()); err != nil {
		return fmt.Errorf("job %s runs, but arena does not know it: %w", spec.ID(), err)
	}
	if err := showTensorBoard(ctx, client, spec, created.GetUID()); err != nil {
		return fmt.Errorf("job %s runs, but its TensorBoard does not: %w", spec.ID(), err)
	}
	last, err := r.wait(ctx, client, spec, m.WaitFor.ValueString(), 0)
	if err != nil {
		return fmt.Errorf("job %s was created again, and goes on as it is: %w", spec.ID(), err)
	}
	status, err := job.StatusOf(last)
	if err != nil {
		return err
	}
	say("%s %s is %s.", live.GetKind(), spec.ID(), status.Phase)
	return nil
}

// noJobError says that there is no job of that name.
type noJobError struct{ id string }

func (e *noJobError) Error() string {
	return fmt.Sprintf("the cluster has no job %s: its time to live may have removed it; change triggers of its resource, which runs it again", e.id)
}

// finished returns the job of this configuration that has that ID, once it has finished.
func (a *rerunJob) finished(ctx context.Context, client *kube.Client, id string) (*unstructured.Unstructured, error) {
	namespace, name, _ := parseID(id)
	var refused error
	for _, framework := range job.Frameworks() {
		live, err := find(ctx, client, framework, namespace, name)
		switch {
		case absent(err):
			continue
		case err != nil:
			return nil, err
		case !a.Session.Mine(live.GetLabels()[contract.OwnerLabel]):
			refused = fmt.Errorf("%s %s is not this configuration's, and stays: %s", live.GetKind(), id, a.Session.Whose(live.GetLabels()[contract.OwnerLabel]))
			continue
		case live.GetDeletionTimestamp() != nil:
			return nil, fmt.Errorf("%s %s is being deleted: apply, which creates it again", live.GetKind(), id)
		}
		at, _ := siteAnywhere(ctx, a.Session, framework, live) // who does not know more goes by the object
		status, err := job.StatusOf(at.shown(live))
		if err != nil {
			return nil, err
		}
		if !status.Finished() {
			return nil, fmt.Errorf("%s %s has not finished (it is %s), and only one that has is run again; change triggers of its resource to end it and run it again", live.GetKind(), id, status.Phase)
		}
		return live, nil
	}
	if refused == nil {
		refused = &noJobError{id}
	}
	return nil, refused
}
