// Package propagationpolicy is the resource gpuplan_propagation_policy: which objects of a fleet's hub go to which member
// clusters.
package propagationpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

const title = "Propagation policy"

// New returns the resource.
func New() resource.Resource {
	r := &policy{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_propagation_policy", Title: title,
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Object: owned,
		Identity: lifecycle.Identity{
			{Name: "namespace", Description: "Namespace of the policy; default: " + defaultNamespace + ".", Default: func() string { return defaultNamespace }},
			{Name: "name", Description: "Name of the policy."},
		},
		ID: func(m *model) string { return m.ID.ValueString() }, Import: r.importID,
		Add: r.add, Look: r.look, Change: r.change, Remove: r.remove,
		Kept:      func(m *model) *lifecycle.Kept { return &m.kept },
		InCluster: true,
	}
	return r
}

type policy struct{ lifecycle.Resource[model] }

// owned is the ledger's ID of a policy.
func owned(m *model) string { return "propagation policy " + m.object() }

// importID takes "NAMESPACE/NAME".
func (r *policy) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name a propagation policy: write NAMESPACE/NAME. `kubectl get propagationpolicies -A` lists what the hub has.", id))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("namespace"), namespace)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

func (r *policy) look(ctx context.Context, of tfsdk.State, m *model) (found bool, diags diag.Diagnostics, err error) {
	client, err := r.Session.Kube()
	if err != nil {
		return false, nil, err
	}
	obj, err := find(ctx, client, m)
	switch {
	case kube.IsNotFound(err) || errors.Is(err, fleetplan.ErrNoHub):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case r.Foreign(m, obj):
		return false, nil, nil
	}
	if m.ResourceSelectors.IsNull() {
		diags.Append(r.SayImported(m, obj.GetLabels()[contract.OwnerLabel])...)
		diags.Append(m.refresh(ctx, obj)...)
		diags.Append(written.Restore(ctx, of, obj.GetAnnotations()[contract.SettingsAnnotation], m)...)
	}
	diags.Append(m.refresh(ctx, obj)...)
	r.NoteOwner(m, obj.GetLabels()[contract.OwnerLabel])
	r.Session.Ledger.Own(owned(m))
	return true, diags, nil
}

// described is the object of the policy, with what the object cannot tell written down on it.
func (r *policy) described(ctx context.Context, of tfsdk.State, client *kube.Client, m *model) (*unstructured.Unstructured, diag.Diagnostics) {
	kind, err := kindOf(ctx, client, m)
	if err != nil {
		return nil, notHub(err)
	}
	obj, diags := m.policy(ctx, kind, r.Session.Owner)
	if diags.HasError() {
		return nil, diags
	}
	var derived model
	diags.Append(written.Blank(ctx, of, &derived)...)
	diags.Append(derived.refresh(ctx, obj)...)
	diags.Append(written.Note(ctx, of, obj, m, derived)...)
	return obj, diags
}
