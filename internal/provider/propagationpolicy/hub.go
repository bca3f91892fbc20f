package propagationpolicy

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

const noHub = "The cluster is no hub"

// kindOf is the kind that the policy of a model has, or gets, with the errors of [fleetplan.PolicyKinds].
func kindOf(ctx context.Context, client *kube.Client, m *model) (schema.GroupVersionKind, error) {
	if has := m.APIVersion.ValueString(); has != "" {
		return schema.FromAPIVersionAndKind(has, contract.PropagationPolicyKind), nil
	}
	kinds, err := fleetplan.PolicyKinds(ctx, client)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

// find is [fleetplan.FindPolicy] of a model, the one of its state first.
func find(ctx context.Context, client *kube.Client, m *model) (*unstructured.Unstructured, error) {
	return fleetplan.FindPolicy(ctx, client, m.namespace(), m.Name.ValueString(), m.APIVersion.ValueString())
}

// notHub says that policies cannot be written to the cluster.
func notHub(err error) (diags diag.Diagnostics) {
	summary := "Propagation policies cannot be looked up"
	if errors.Is(err, fleetplan.ErrNoHub) {
		summary = noHub
	}
	diags.AddError(summary, session.Sentence(err))
	return diags
}
