package trainingjob

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// follow waits for a job that was created, and keeps the model up to date. From the job's
// creation on an error makes Terraform delete it with the next apply and run another, so only
// what says that the job itself is lost is one.
func (r *trainingJob) follow(ctx context.Context, client *kube.Client, m *model, spec job.Spec, obj *unstructured.Unstructured, asPlanned bool) (diags diag.Diagnostics) {
	alive := context.WithoutCancel(ctx) // an apply that is interrupted still writes down what it has
	note := func(obj *unstructured.Unstructured) (why string) {
		why, found := r.refresh(alive, m, obj)
		diags.Append(lifecycle.Warnings(found)...)
		m.settle()
		return why
	}
	note(obj)
	if err := tellArena(alive, client, spec, obj.GetUID()); err != nil {
		diags.AddAttributeWarning(path.Root("arena_compatible"), "Job was created, but arena does not know it", session.Sentence(err)+
			" The job goes on. To tell arena of it, apply arena_compatible = false, and then true again.")
	}
	if err := showTensorBoard(alive, client, spec, obj.GetUID()); err != nil {
		diags.AddAttributeWarning(path.Root("tensorboard"), "Job was created, but its TensorBoard was not", session.Sentence(err)+
			" The job goes on. The next plan makes what is missing.")
	}
	await := r.wait
	if m.ofFleet() {
		await = func(ctx context.Context, _ *kube.Client, spec job.Spec, goal string, placed int) (*unstructured.Unstructured, error) {
			return r.waitInFleet(ctx, m, spec, goal, placed)
		}
	}
	last, err := await(ctx, client, spec, m.WaitFor.ValueString(), m.expected(ctx, asPlanned))
	if kube.IsNotFound(err) && m.mayBeCleanedUp() {
		m.Status = types.StringValue(phaseCleanedUp)
		return diags
	}
	if last != nil {
		// The time for the wait may be over; what the job came to is looked up all the same.
		if why := note(last); asPlanned {
			diags.Append(m.elsewhere(why)...)
		}
	}
	if err != nil {
		is := "is not running"
		if m.WaitFor.ValueString() == waitSucceeded {
			is = "has not succeeded"
		}
		diags.Append(m.unreached(ctx, "Job was created, but "+is, last, err))
	}
	return diags
}

// expected is how many members are to run as soon as the job does, as far as is known: those that the
// plan has placed, unless the cluster has changed since.
func (m model) expected(ctx context.Context, asPlanned bool) int {
	var diags diag.Diagnostics // said where the placement was written on the job
	if !asPlanned {
		return 0
	}
	return len(placementOf(ctx, m.PlannedPlacement, &diags))
}

// unreached says of a job that exists why it has not come as far as it was to. That nobody
// waited long enough, or could look, is no fault of the job, which goes on.
func (m model) unreached(ctx context.Context, summary string, last *unstructured.Unstructured, err error) diag.Diagnostic {
	lost := errors.Is(err, errFailed) || errors.Is(err, errRefused) || kube.IsNotFound(err)
	late := m.RequireImmediate.ValueBool() && errors.Is(ctx.Err(), context.DeadlineExceeded) && idle(last)
	if lost || late {
		return diag.NewErrorDiagnostic(summary, session.Sentence(err))
	}
	ask := fmt.Sprintf("\"kubectl gpuplan why %s -n %s\" says what it waits for", m.Name.ValueString(), m.Namespace.ValueString())
	if m.ofFleet() {
		ask = fmt.Sprintf("The events of the job on the hub (\"kubectl describe\" of %s in namespace %s) say where it was sent, or why nowhere", m.Name.ValueString(), m.Namespace.ValueString())
	}
	return diag.NewWarningDiagnostic(summary, fmt.Sprintf(
		"%s The wait is over, and the job goes on as it is: it is in the state. %s, and \"terraform plan -refresh-only\" how it stands. What depends on it was not held back; a postcondition on its status does that.",
		session.Sentence(err), ask))
}

// idle reports whether none of a job's replicas was seen to run.
func idle(obj *unstructured.Unstructured) bool {
	if obj == nil {
		return true
	}
	status, err := job.StatusOf(obj)
	return err == nil && status.Active+status.Done == 0
}

// settle gives a value to what could not be looked up.
func (m *model) settle() {
	if m.Status.IsUnknown() {
		m.Status = types.StringValue(string(job.Pending))
	}
	if m.PlacementAsPlanned.IsUnknown() {
		m.PlacementAsPlanned = types.BoolNull()
	}
	if m.Cluster.IsUnknown() {
		m.Cluster = types.StringNull()
	}
}
