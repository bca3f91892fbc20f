package trainingjob

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// replacedBy is the key in the private data of a plan under which the deletion of a job finds
// the ID of the one that is created in its place. An apply asks for the plan of that one
// again, and does not say then whose place it takes.
const replacedBy = "replaced_by"

// noteReplacement writes down that a job is created in the place of one of another ID.
func (r *trainingJob) noteReplacement(ctx context.Context, id string, plan lifecycle.Private) (diags diag.Diagnostics) {
	if r.Session.Ledger.Applying() || r.Session.Ledger.Replaced(id) == "" {
		return nil
	}
	value, err := json.Marshal(id)
	if err != nil {
		diags.AddError("Plan cannot be written", err.Error())
		return diags
	}
	return plan.SetKey(ctx, replacedBy, value)
}

// recallReplacement remembers what is created in the place of a job that is deleted.
func (r *trainingJob) recallReplacement(ctx context.Context, from lifecycle.Private, m *model) diag.Diagnostics {
	var by string
	value, diags := from.GetKey(ctx, replacedBy)
	if err := json.Unmarshal(value, &by); err == nil {
		r.Session.Ledger.ReplaceJob(id(*m).ValueString(), by)
	}
	return diags
}
