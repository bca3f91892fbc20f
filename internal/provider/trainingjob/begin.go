package trainingjob

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// begin submits the job. One that an apply of this configuration submitted, and did not
// live to record, goes on if it is the same; a job that cannot become the one that is
// wanted makes room for it, and so does one that ran for other triggers. goesOn means that
// it is not a new job.
func (r *trainingJob) begin(ctx context.Context, client *kube.Client, m model, of tfsdk.State, spec job.Spec, notes map[string]string) (obj *unstructured.Unstructured, goesOn bool, err error) {
	defer r.Session.Ledger.Begin(object(spec))()
	for {
		live, err := r.existing(ctx, client, spec)
		if err != nil {
			return nil, false, err
		}
		obj, goesOn, err = r.beginFrom(ctx, client, live, m, of, spec, notes)
		if !kube.IsAlreadyExists(err) {
			return obj, goesOn, err
		} // an apply at the same time was faster
	}
}

// existing is the job of that name that an apply of this configuration submitted, nil when there is
// none. One of someone else is refused.
func (r *trainingJob) existing(ctx context.Context, client *kube.Client, spec job.Spec) (*unstructured.Unstructured, error) {
	live, err := find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	if err == nil {
		live, err = settled(ctx, client, live)
	}
	switch {
	case kube.IsNotFound(err):
		return nil, nil
	case notServed(err):
		return nil, operatorMissing(ctx, client, spec.Framework)
	case err != nil:
		return nil, err
	}
	return live, r.refuseForeign(live, spec.Framework)
}

// beginFrom submits the job where there was none, or that one was.
func (r *trainingJob) beginFrom(ctx context.Context, client *kube.Client, live *unstructured.Unstructured, m model, of tfsdk.State, spec job.Spec, notes map[string]string) (obj *unstructured.Unstructured, goesOn bool, err error) {
	if err := r.clearName(ctx, client, spec); err != nil {
		return nil, false, err
	}
	if live != nil {
		// One that takes another's place in this walk has not been submitted before: jobs change names.
		same := r.Session.Ledger.Replaced(spec.ID()) == ""
		if live, spec, err = r.goOn(ctx, client, live, m, of, spec, same); err != nil {
			return nil, false, err
		}
	}
	if live == nil {
		if spec, _, err = inVersion(client, spec); err != nil {
			return nil, false, err
		}
	}
	obj, err = submit(ctx, client, spec, live, notes)
	return obj, live != nil, err
}

// ranFor are the settings with which a live job was created.
func ranFor(ctx context.Context, of tfsdk.State, live *unstructured.Unstructured) (was model) {
	written.Blank(ctx, of, &was)
	written.Restore(ctx, of, live.GetAnnotations()[contract.SettingsAnnotation], &was)
	return was
}

// inPoolsOf is a job that keeps to the pools of the one that exists where nothing names other ones.
func inPoolsOf(before, spec job.Spec) job.Spec {
	if len(spec.Pools) == 0 {
		spec.Pools = before.Pools
	}
	return spec
}

// sameTriggers reports whether no trigger differs: without any, it is all the same how that is written.
func sameTriggers(a, b types.Map) bool {
	none := func(m types.Map) bool { return !m.IsUnknown() && len(m.Elements()) == 0 }
	return a.Equal(b) || none(a) && none(b)
}

// goOn returns a live job that can become the one of the spec, and what it is to become, and removes one
// that cannot, or that is not the same for another reason.
func (r *trainingJob) goOn(ctx context.Context, client *kube.Client, live *unstructured.Unstructured, m model, of tfsdk.State, spec job.Spec, same bool) (*unstructured.Unstructured, job.Spec, error) {
	before, replace, err := outdated(ctx, live, m, of, spec)
	if err != nil {
		return nil, spec, err
	}
	tflog.Info(ctx, "an earlier apply submitted the job", map[string]any{"job": spec.ID(), "differs": replace})
	if same && len(replace) == 0 {
		return live, inPoolsOf(before, spec), nil
	}
	return nil, spec, r.discard(ctx, client, before, live)
}

// outdated reads a live job, and names what keeps it from becoming the one of the spec.
func outdated(ctx context.Context, live *unstructured.Unstructured, m model, of tfsdk.State, spec job.Spec) (before job.Spec, replace []string, err error) {
	if before, err = job.Parse(live); err != nil {
		return before, nil, err
	}
	replace, _ = differences(before, inPoolsOf(before, spec))
	return before, append(replace, rerun(ranFor(ctx, of, live), m)...), nil
}

// left returns the job that an earlier apply of this configuration submitted, if begin lets it
// go on, nil otherwise. It has started already, or waits already: what was planned for a new
// one is not to be confirmed.
func (r *trainingJob) left(ctx context.Context, client *kube.Client, m model, of tfsdk.State, spec job.Spec) *unstructured.Unstructured {
	live, err := find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	if err != nil || live.GetDeletionTimestamp() != nil || r.refuseForeign(live, spec.Framework) != nil {
		return nil // begin says what is wrong
	}
	if _, replace, err := outdated(ctx, live, m, of, spec); err != nil || len(replace) > 0 {
		return nil
	}
	return live
}

// object is the ledger's name of a job's object.
func object(spec job.Spec) string { return "job " + spec.ID() }
