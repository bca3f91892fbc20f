package trainingjob

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// uidKey is the key in a job's private data of the UID of its object.
const uidKey = "uid"

// another reports whether an object of the job's name is another job's: a plan with -target can give
// a name to one resource while another still has it in Terraform's state.
func (m *model) another(obj *unstructured.Unstructured) bool {
	return m.uid != "" && m.uid != string(obj.GetUID())
}

// again reports whether another object of the job's name is the same job, written again: by a restored
// backup, or kubectl replace --force.
func (r *trainingJob) again(ctx context.Context, of tfsdk.State, m model, obj *unstructured.Unstructured) bool {
	spec, _, diags := m.spec(ctx)
	if diags.HasError() || !r.Session.Mine(obj.GetLabels()[contract.OwnerLabel]) {
		return false
	}
	_, replace, err := outdated(ctx, obj, m, of, spec)
	return err == nil && len(replace) == 0
}

// note keeps the UID.
func note(ctx context.Context, private lifecycle.Private, m *model) (diags diag.Diagnostics) {
	value, err := json.Marshal(m.uid)
	if err != nil {
		diags.AddError("State cannot be written", err.Error())
		return diags
	}
	return private.SetKey(ctx, uidKey, value)
}

// recall reads the UID; a state of an earlier version has none.
func recall(ctx context.Context, private lifecycle.Private, m *model) diag.Diagnostics {
	value, diags := private.GetKey(ctx, uidKey)
	if err := json.Unmarshal(value, &m.uid); err != nil {
		m.uid = ""
	}
	return diags
}
