package trainingjob

import (
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// existsMark is the mark of a job that was there when Terraform read it: its pods hold
// what they hold, whatever was planned.
const existsMark = "exists"

// placed is the token by which other jobs are planned around this one: its ID and a mark
// of where this walk places it. Nobody can write it by hand, so whoever has it got it by
// reference, and Terraform visits the job first.
func placed(id types.String, mark string) types.String {
	if id.IsUnknown() {
		return id
	}
	return types.StringValue(id.ValueString() + "#" + mark)
}

// checkAfter refuses what no job's "placed" can be.
func checkAfter(after types.List) (diags diag.Diagnostics) {
	for i, element := range after.Elements() {
		token, ok := element.(types.String)
		if !ok || element.IsUnknown() {
			continue
		}
		at := path.Root("after").AtListIndex(i)
		switch text := token.ValueString(); {
		case text == "":
			diags.AddAttributeError(at, "No such job", "An entry of after names no job: leave it out.")
		case !strings.Contains(text, "#"):
			diags.AddAttributeError(at, "Order is left open", fmt.Sprintf(
				"after names a job by %.80q, which does not say where that job is placed: its place would be known in some plans and not in others. "+
					"Use .placed instead of .id, or of a name in quotes: after = [gpuplan_training_job.NAME.placed]. Jobs of one for_each or count cannot refer to each other: make two resources of them, one after the other.", text))
		}
	}
	return diags
}

// before returns the jobs of this walk that are placed first; known is false when one is
// unknown until apply. Jobs that exist hold their place in the capacity already.
func (c checker) before(after types.List) (ids []string, known bool, diags diag.Diagnostics) {
	if after.IsUnknown() {
		return nil, false, nil
	}
	if diags.Append(checkAfter(after)...); diags.HasError() {
		return nil, true, diags
	}
	for i, element := range after.Elements() {
		token, ok := element.(types.String)
		if !ok || element.IsUnknown() {
			return nil, false, diags
		}
		at := path.Root("after").AtListIndex(i)
		id, mark, _ := strings.Cut(token.ValueString(), "#")
		switch {
		case id == c.spec.ID():
			diags.AddAttributeError(at, "Job comes after itself", fmt.Sprintf("after of job %s names the job itself: leave it out. Where a job of the same name in another cluster is meant: after orders the jobs of one cluster.", id))
		case mark == existsMark:
		case mark == c.mark(id):
			ids = append(ids, id)
		case c.session.Ledger.Keeps(id):
			diags.AddAttributeError(at, "Job was not read", fmt.Sprintf(
				"Job %s exists, but this plan has not read what it holds now. Plan without -refresh=false.", id))
		default:
			diags.AddAttributeError(at, "No such job in this plan", fmt.Sprintf(
				"after holds %.80q, which is no job's placed in this plan of the cluster; after orders the jobs of one cluster. Refer to the job, as in after = [gpuplan_training_job.NAME.placed], and do not copy the value.", token.ValueString()))
		}
	}
	return ids, true, diags
}
