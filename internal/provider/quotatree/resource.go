// Package quotatree is the resource gpuplan_quota_tree: the cluster's ElasticQuotaTree.
package quotatree

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
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// New returns the resource.
func New() resource.Resource {
	r := &tree{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_quota_tree", Title: "Quota tree",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Object: func(*model) string { return owned },
		Identity: lifecycle.Identity{
			{Name: "namespace", Description: "Namespace of the ElasticQuotaTree; default: " + contract.QuotaTreeNamespace + ".", Default: func() string { return contract.QuotaTreeNamespace }},
			{Name: "name", Description: "Name of the ElasticQuotaTree."},
		},
		ID: func(m *model) string { return m.ID.ValueString() }, Import: r.importID,
		Add: r.add, Look: r.look, Change: r.change, Recollect: r.recallReplacement, Remove: r.remove,
		Kept:      func(m *model) *lifecycle.Kept { return &m.kept },
		InCluster: true,
	}
	return r
}

type tree struct{ lifecycle.Resource[model] }

// importID takes "kube-system/NAME" or "NAME".
func (r *tree) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	objectName := strings.TrimPrefix(id, contract.QuotaTreeNamespace+"/")
	if objectName == "" || strings.Contains(objectName, "/") {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name a quota tree: write %s/NAME or NAME. `kubectl get elasticquotatrees -n %s` lists what there is.",
			id, contract.QuotaTreeNamespace, contract.QuotaTreeNamespace))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), contract.QuotaTreeNamespace+"/"+objectName)...)
}

func (r *tree) look(ctx context.Context, of tfsdk.State, m *model) (found bool, diags diag.Diagnostics, err error) {
	client, err := r.Session.Kube()
	if err != nil {
		return false, nil, err
	}
	obj, err := client.Get(ctx, kind, contract.QuotaTreeNamespace, objectName(*m))
	switch {
	case kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case r.Foreign(m, obj):
		return false, nil, nil
	}
	m.kept.UIDs = lifecycle.UIDsOf(obj)
	r.NoteOwner(m, obj.GetLabels()[contract.OwnerLabel])
	if m.Total.IsNull() {
		diags.Append(r.SayImported(m, obj.GetLabels()[contract.OwnerLabel])...)
		diags.Append(m.imported(ctx, obj)...)
		diags.Append(written.Restore(ctx, of, obj.GetAnnotations()[contract.SettingsAnnotation], m)...)
	}
	diags.Append(m.refresh(ctx, obj)...)
	r.Session.Ledger.Own(owned)
	return true, diags, nil
}

// imported makes a resource of the object alone.
func (m *model) imported(ctx context.Context, obj *unstructured.Unstructured) diag.Diagnostics {
	m.AllowDisruption = types.BoolValue(false)
	return m.refresh(ctx, obj)
}

// owned is the ledger's ID of the tree, of which a cluster has one.
const owned = "quota tree"

// objectName is the name of the object, also of an imported one.
func objectName(m model) string {
	if name := strings.TrimPrefix(m.ID.ValueString(), contract.QuotaTreeNamespace+"/"); name != "" {
		return name
	}
	return contract.QuotaTreeName
}
