// Package trainingjob is the resource gpuplan_training_job: a distributed training
// job whose gang is placed at plan.
//
// A job runs to completion: once it has finished, or has been cleaned up after it
// finished, nothing about it is drift any more.
package trainingjob

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// New returns the resource.
func New() resource.Resource {
	r := &trainingJob{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_training_job", Title: "Job",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Object: func(m *model) string {
			return object(job.Spec{Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString()})
		},
		Add: r.add, Look: r.look, Change: r.update, Remove: r.remove,
		Note: note, Recall: recall,
	}
	return r
}

type trainingJob struct{ lifecycle.Resource[model] }

// ImportState takes "namespace/name" of a job of any framework.
func (r *trainingJob) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	namespace, name, ok := parseID(req.ID)
	if !ok {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name a job: write NAMESPACE/NAME. `kubectl get pytorchjobs,mpijobs,jobs -A` lists what there is.", req.ID))
		return
	}
	client, err := r.Session.Kube()
	if err != nil {
		resp.Diagnostics.AddError("Job cannot be imported", session.Sentence(err))
		return
	}
	var found []job.Framework
	for _, framework := range job.Frameworks() {
		if framework == job.Batch && len(found) > 0 {
			break // a Job of that name is another one
		}
		obj, err := find(ctx, client, framework, namespace, name)
		switch {
		case err == nil && job.Foreign(obj) != "":
			resp.Diagnostics.AddError("Job cannot be imported", fmt.Sprintf(
				"Job %s is none that this resource can describe: %s. Write it as a resource, and let Terraform run it again once this one has finished or is deleted.", req.ID, job.Foreign(obj)))
			return
		case err == nil:
			found = append(found, framework)
		case absent(err):
		default:
			resp.Diagnostics.AddError("Job cannot be imported", session.Sentence(err))
			return
		}
	}
	switch len(found) {
	case 0:
		resp.Diagnostics.AddError("No such job", fmt.Sprintf("The cluster has no PyTorchJob, MPIJob or Job %s.", req.ID))
	case 1:
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("namespace"), namespace)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("framework"), string(found[0]))...)
	default:
		resp.Diagnostics.AddError("Two jobs of that name", fmt.Sprintf(
			"The cluster has both a PyTorchJob and an MPIJob %s. Their pods would have the same names: delete one of the two first.", req.ID))
	}
}

// parseID takes "namespace/name" apart.
func parseID(id string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(id, "/")
	return namespace, name, ok && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Label(name)) == 0
}

// absent reports whether an error says that an object does not exist, or cannot
// because its kind is not installed.
func absent(err error) bool { return kube.IsNotFound(err) || notServed(err) }
