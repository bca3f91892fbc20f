package quotatree

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// replacedKey is the key in the private data of a plan under which the deletion of a tree finds that a new one
// follows: without a tree, jobs would start beyond their quota meanwhile, and evict others.
const replacedKey = "replaced"

// noteReplacement writes down whether a plan is for a new tree. Where that replaces one, Terraform hands it to the
// deletion, and keeps it when that fails.
func noteReplacement(ctx context.Context, isNew bool, plan lifecycle.Private) diag.Diagnostics {
	var value []byte
	if isNew {
		value = []byte("true")
	}
	return plan.SetKey(ctx, replacedKey, value)
}

// recallReplacement remembers that a new tree follows one that is deleted.
func (r *tree) recallReplacement(ctx context.Context, from lifecycle.Private, m *model) diag.Diagnostics {
	value, diags := from.GetKey(ctx, replacedKey)
	m.replaced = value != nil
	return diags
}
