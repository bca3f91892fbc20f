package nodepool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
)

// deletedJobs is the key in the private data of a plan under which the deletion of a pool finds the jobs on its nodes
// that the same plan deletes: of the deletions of an apply nobody knows before they come.
const deletedJobs = "deleted_jobs"

// lastVisit is how long a plan waits for what becomes of jobs on the nodes of a pool after Terraform has visited anything.
const lastVisit = 2 * time.Second

// noteJobs writes down which jobs on the nodes of a pool the plan deletes. Where it cannot be known of some whether
// it does, since Terraform visits no more at a time, it says so, and these may go: a plan fails when one of them stays.
func (r *pool) noteJobs(ctx context.Context, name string, pods []running.Pod, plan lifecycle.Private) (diags diag.Diagnostics) {
	if r.Session.Ledger.Applying() {
		return nil
	}
	jobs, open := r.Session.Ledger.AwaitFates(ctx, running.Owners(pods), r.Session.Parallelism, lastVisit)
	if len(open) > 0 && !r.Session.Targets {
		jobs = append(jobs, open...)
		diags.AddWarning("Running jobs may lose their nodes", fmt.Sprintf(
			"The plan deletes node pool %s, and jobs of this configuration run on its nodes, to which Terraform has not come in this plan so far: %s. "+
				"What is in the state the plan deletes as well, or it fails. What is in no state, as after an apply that was cut off, or a removed block, loses its nodes: "+
				"plan with a higher -parallelism, which tells the two apart.", name, strings.Join(open, ", ")))
	}
	value, err := json.Marshal(jobs)
	if err != nil {
		diags.AddError("Plan cannot be written", err.Error())
		return diags
	}
	return append(diags, plan.SetKey(ctx, deletedJobs, value)...)
}

// recallJobs remembers the jobs that the plan deletes.
func (r *pool) recallJobs(ctx context.Context, from lifecycle.Private, _ *model) diag.Diagnostics {
	var jobs []string
	value, diags := from.GetKey(ctx, deletedJobs)
	if err := json.Unmarshal(value, &jobs); err == nil {
		r.Session.Ledger.ExpectDeletions(jobs)
	}
	return diags
}
