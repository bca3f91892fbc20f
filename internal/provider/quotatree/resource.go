// Package quotatree is the resource gpuplan_quota_tree: the cluster's ElasticQuotaTree.
package quotatree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// New returns the resource.
func New() resource.Resource { return &tree{} }

type tree struct{ session *session.Session }

func (r *tree) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_quota_tree"
}

func (r *tree) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.session = session.Of(req.ProviderData, &resp.Diagnostics)
}

// ImportState takes "kube-system/NAME" or "NAME".
func (r *tree) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	objectName := strings.TrimPrefix(req.ID, contract.QuotaTreeNamespace+"/")
	if objectName == "" || strings.Contains(objectName, "/") {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name a quota tree: write %s/NAME or NAME. `kubectl get elasticquotatrees -n %s` lists what there is.",
			req.ID, contract.QuotaTreeNamespace, contract.QuotaTreeNamespace))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), contract.QuotaTreeNamespace+"/"+objectName)...)
}

func (r *tree) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m model
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	client, err := r.session.Kube()
	if errors.Is(err, session.ErrUnknown) {
		return // what is in the state stays as it is
	}
	if err != nil {
		resp.Diagnostics.AddError("Quota tree cannot be read", session.Sentence(err))
		return
	}
	obj, err := client.Get(ctx, kind, contract.QuotaTreeNamespace, objectName(m))
	switch {
	case kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed) || err == nil && obj.GetDeletionTimestamp() != nil:
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		resp.Diagnostics.AddError("Quota tree cannot be read", session.Sentence(err))
		return
	}
	if m.Total.IsNull() {
		resp.Diagnostics.Append(m.imported(ctx, obj)...)
		resp.Diagnostics.Append(written.Restore(ctx, resp.State, obj.GetAnnotations()[contract.SettingsAnnotation], &m)...)
	}
	resp.Diagnostics.Append(m.refresh(ctx, obj)...)
	r.session.Ledger.Own(owned)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
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
