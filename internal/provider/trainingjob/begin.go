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
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// begin submits the job. One that an apply of this configuration submitted, and did not
// live to record, goes on if it is the same; a job that cannot become the one that is
// wanted makes room for it, and so does one that ran for other triggers. goesOn means that
// it is not a new job.
func (r *trainingJob) begin(ctx context.Context, client *kube.Client, m model, of tfsdk.State, spec job.Spec, notes map[string]string) (obj *unstructured.Unstructured, goesOn bool, err error) {
	defer r.Session.Ledger.Begin(object(spec))()
	live, err := find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	if err == nil {
		live, err = client.GetSettled(ctx, live.GroupVersionKind(), spec.Namespace, spec.Name, nil)
	}
	switch {
	case kube.IsNotFound(err):
		live = nil
	case notServed(err):
		return nil, false, operatorMissing(ctx, client, spec.Framework)
	case err != nil:
		return nil, false, err
	}
	if live != nil {
		if err := r.refuseForeign(live, spec.Framework); err != nil {
			return nil, false, err
		}
	}
	if !r.Session.Ledger.Take(object(spec)) {
		return nil, false, session.Taken(object(spec))
	}
	if err := r.clearName(ctx, client, spec); err != nil {
		return nil, false, err
	}
	if live != nil {
		if live, err = goOn(ctx, client, live, spec, ranFor(ctx, of, live).Equal(m.Triggers)); err != nil {
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

// ranFor are the triggers for which a live job was created.
func ranFor(ctx context.Context, of tfsdk.State, live *unstructured.Unstructured) types.Map {
	var was model
	written.Blank(ctx, of, &was)
	written.Restore(ctx, of, live.GetAnnotations()[contract.SettingsAnnotation], &was)
	return was.Triggers
}

// goOn returns a live job that can become the one of the spec, and removes one that cannot.
func goOn(ctx context.Context, client *kube.Client, live *unstructured.Unstructured, spec job.Spec, sameTriggers bool) (*unstructured.Unstructured, error) {
	before, err := job.Parse(live)
	if err != nil {
		return nil, err
	}
	replace, _ := differences(before, spec)
	if !sameTriggers {
		replace = append(replace, "triggers")
	}
	tflog.Info(ctx, "an earlier apply submitted the job", map[string]any{"job": spec.ID(), "differs": replace})
	if len(replace) == 0 {
		return live, nil
	}
	return nil, remove(ctx, client, before)
}

// object is the ledger's name of a job's object.
func object(spec job.Spec) string { return "job " + spec.ID() }
