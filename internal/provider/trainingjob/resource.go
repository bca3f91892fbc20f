// Package trainingjob is the resource gpuplan_training_job: a distributed training
// job whose gang is placed at plan.
//
// A job runs to completion: once it has finished, or has been cleaned up after it
// finished, nothing about it is drift any more.
package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// New returns the resource.
func New() resource.Resource { return newJob() }

func newJob() *trainingJob {
	r := &trainingJob{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_training_job", Title: "Job",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Object: func(m *model) string {
			return object(job.Spec{Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString()})
		},
		Identity: lifecycle.Identity{
			{Name: "namespace", Description: "Namespace of the job."},
			{Name: "name", Description: "Name of the job."},
			{Name: "framework", Description: "Framework of the job, where the cluster has jobs of two with that name.", Default: func() string { return "" }},
		},
		ID: func(m *model) string {
			return strings.Join([]string{m.Namespace.ValueString(), m.Name.ValueString(), m.Framework.ValueString()}, "/")
		},
		Import: r.importID,
		Add:    r.add, Look: r.look, Change: r.update, Recollect: r.recallReplacement, Remove: r.remove,
		Kept:      func(m *model) *lifecycle.Kept { return &m.kept },
		InCluster: true,
	}
	return r
}

type trainingJob struct{ lifecycle.Resource[model] }

// importID takes "namespace/name" of a job of any framework, or "namespace/name/framework".
func (r *trainingJob) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	jobID, frameworks, ok := parseImport(id)
	namespace, name, valid := parseID(jobID)
	if !ok || !valid {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name a job: write NAMESPACE/NAME, or NAMESPACE/NAME/FRAMEWORK. `kubectl get pytorchjobs,mpijobs,trainjobs,jobsets,jobs -A` lists what there is.", id))
		return
	}
	client, err := r.Session.Kube()
	if err != nil {
		resp.Diagnostics.AddError("Job cannot be imported", session.Sentence(err))
		return
	}
	var found []job.Framework
	var refused error // of a kind that the user may not look at, and that the job may be of
	for _, framework := range frameworks {
		if framework == job.Batch && len(found) > 0 {
			break // a Job of that name is another one
		}
		obj, err := find(ctx, client, framework, namespace, name)
		switch {
		case err == nil && job.Foreign(obj) != "":
			resp.Diagnostics.AddError("Job cannot be imported", fmt.Sprintf(
				"Job %s is none that this resource can describe: %s. Write it as a resource, and let Terraform run it again once this one has finished or is deleted.", jobID, job.Foreign(obj)))
			return
		case err == nil:
			found = append(found, framework)
		case absent(err):
		case apierrors.IsForbidden(err):
			refused = cmp.Or(refused, err)
		default:
			resp.Diagnostics.AddError("Job cannot be imported", session.Sentence(err))
			return
		}
	}
	switch {
	case len(found) == 0 && refused != nil:
		resp.Diagnostics.AddError("Job cannot be imported", session.Sentence(refused))
	case len(found) == 0:
		resp.Diagnostics.AddError("No such job", fmt.Sprintf("The cluster has no PyTorchJob, MPIJob, TrainJob, JobSet or Job %s. Write NAMESPACE/NAME of one that it has.", id))
	case len(found) == 1:
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("namespace"), namespace)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("framework"), string(found[0]))...)
	default:
		kinds := make([]string, len(found))
		for i, framework := range found {
			kinds[i] = "a " + framework.GVK().Kind
			if framework == job.MPI {
				kinds[i] = "an " + framework.GVK().Kind
			}
		}
		resp.Diagnostics.AddError("Two jobs of that name", fmt.Sprintf(
			"The cluster has %s %s. Their pods could not be told apart: delete all but one of them first.", strings.Join(kinds, " and "), jobID))
	}
}

// parseImport returns the ID of a job that an import names, and of which frameworks it may be.
func parseImport(id string) (jobID string, frameworks []job.Framework, ok bool) {
	parts := strings.SplitN(id, "/", 3)
	if len(parts) < 3 {
		return id, job.Frameworks(), true
	}
	framework := job.Framework(parts[2])
	return parts[0] + "/" + parts[1], []job.Framework{framework}, slices.Contains(job.Frameworks(), framework)
}

// parseID takes "namespace/name" apart.
func parseID(id string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(id, "/")
	return namespace, name, ok && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Label(name)) == 0
}

// absent reports whether an error says that an object does not exist, or cannot
// because its kind is not installed.
func absent(err error) bool { return kube.IsNotFound(err) || notServed(err) }
