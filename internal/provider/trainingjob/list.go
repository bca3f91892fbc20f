package trainingjob

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	fwlist "github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// NewList returns the list of the cluster's jobs.
func NewList() fwlist.ListResource {
	r := newJob()
	return &lifecycle.Lister[model]{
		Resource: &r.Resource,
		Schema: schema.Schema{
			MarkdownDescription: "The training jobs of the cluster, whoever made them: `terraform query` (Terraform ≥ 1.14) shows them with their identities, " +
				"and writes the configuration with which they are imported. Of Jobs of Kubernetes, JobSets and TrainJobs it has those that the resource can describe.",
			Attributes: map[string]schema.Attribute{
				"namespace": schema.StringAttribute{MarkdownDescription: "Namespace of the jobs. Default: all.", Optional: true},
			},
		},
		All: r.all,
	}
}

// all are the jobs in the namespace that a list block names.
func (r *trainingJob) all(ctx context.Context, block tfsdk.Config) (all []lifecycle.Listed, diags diag.Diagnostics, err error) {
	var namespace types.String
	if diags := block.GetAttribute(ctx, path.Root("namespace"), &namespace); diags.HasError() {
		return nil, diags, nil
	}
	if name := namespace.ValueString(); name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		diags.AddAttributeError(path.Root("namespace"), "Invalid namespace", fmt.Sprintf(
			"namespace: %.80q cannot be the name of a namespace: write one of those that `kubectl get namespaces` lists, or leave namespace out for all.", name))
		return nil, diags, nil
	}
	client, err := r.Session.Kube()
	if err != nil {
		return nil, nil, err
	}
	for _, framework := range job.Frameworks() {
		for _, kind := range framework.Kinds() {
			objects, err := client.List(ctx, kind, namespace.ValueString(), "")
			if absent(err) {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			for _, obj := range objects {
				if err := join(ctx, client, &obj); err != nil {
					return nil, nil, err
				}
				if job.Foreign(&obj) == "" {
					id := obj.GetNamespace() + "/" + obj.GetName()
					all = append(all, lifecycle.Listed{ID: id + "/" + string(framework), Name: id})
				}
			}
			break // a server that has both versions of MPIJobs shows all in either
		}
	}
	return all, nil, nil
}
