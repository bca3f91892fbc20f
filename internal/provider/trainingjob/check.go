package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// checker checks one job at plan.
type checker struct {
	session          *session.Session
	spec             job.Spec
	level            session.Check
	requireImmediate bool
}

func (r *trainingJob) checker(m model, spec job.Spec) checker {
	c := checker{session: r.session, spec: spec, level: r.session.PlacementCheck, requireImmediate: m.RequireImmediate.ValueBool()}
	if !m.PlacementCheck.IsNull() && !m.PlacementCheck.IsUnknown() {
		c.level = session.Check(m.PlacementCheck.ValueString())
	}
	return c
}

// promised reports whether the scheduler keeps to a planned placement of this job.
func (c checker) promised() bool {
	return c.spec.Gang && c.spec.SchedulerName == contract.SchedulerName
}

// onPools places the job on the capacity that it was given. The assignments depend
// on that capacity and on the jobs named in after alone.
func (c checker) onPools(ctx context.Context, pools []capacity.Capacity, after []string) (assignments []assignment.Model, diags diag.Diagnostics) {
	limits, diags := c.quotaTrees(ctx)
	gang, err := c.spec.PlannerGang(limits.limits)
	if err != nil {
		diags.AddError("Placement cannot be planned", session.Sentence(err))
		return nil, diags
	}
	planned := ledger.Job{Gang: gang, After: after, RequireImmediate: c.requireImmediate, Limits: limits.limits}
	for _, pool := range pools {
		nodes, occupants, err := pool.Planner()
		if err != nil {
			diags.AddAttributeError(path.Root("pools"), "Capacity cannot be used", session.Sentence(err))
			return nil, diags
		}
		planned.Nodes, planned.Occupants = append(planned.Nodes, nodes...), append(planned.Occupants, occupants...)
	}
	result, findings := c.session.Ledger.PlanJob(planned)
	for _, f := range findings {
		diags.Append(c.finding(f)...)
	}
	if result.Placement == nil {
		diags.Append(c.misfit(result.Verdict)...)
		return nil, diags
	}
	diags.Append(c.withinQuota(gang, planned, limits)...)
	return assignmentsOf(*result.Placement, planned.Nodes), diags
}

// withinQuota reports that the job alone exceeds its quota, and warns when it only
// does together with what runs now.
func (c checker) withinQuota(gang placement.Gang, planned ledger.Job, limits trees) (diags diag.Diagnostics) {
	if limits.limits == nil || gang.Leaf == "" || c.level == session.CheckOff {
		return nil
	}
	if !limits.limits.HasLeaf(gang.Leaf) {
		if limits.live { // the ledger reports leaves that a planned tree lacks
			diags.Append(c.report(path.Root("quota"), "No such quota leaf", noSuchLeaf(c.spec, gang.Leaf, limits.limits))...)
		}
		return diags
	}
	view := placement.NewView()
	for _, n := range planned.Nodes {
		view.SetNode(n)
	}
	for _, p := range planned.Occupants {
		view.AddPod(p)
	}
	view.SetQuota(limits.limits)
	if result := view.Plan(gang); result.Placement == nil {
		return c.report(path.Root("quota"), "Job exceeds its quota", fmt.Sprintf(
			"Job %s fits on its pools, but can never run within its quota: %s", c.spec.ID(), result.Verdict))
	}
	if limits.used == nil {
		return nil
	}
	view.SetQuota(limits.used)
	if result := view.Plan(gang); result.Placement == nil {
		severity := diag.SeverityWarning
		if c.requireImmediate && c.level == session.CheckError {
			severity = diag.SeverityError
		}
		diags.Append(diag.WithPath(path.Root("quota"), diagnostic(severity, "Job waits for its quota", fmt.Sprintf(
			"Job %s fits on its pools, but not into its quota beside what runs now: %s", c.spec.ID(), result.Verdict))))
	}
	return diags
}

// onCluster checks a job that names no pools against the live cluster.
func (c checker) onCluster(ctx context.Context) (diags diag.Diagnostics) {
	if c.level == session.CheckOff || c.session.Ledger.Applying() {
		return nil
	}
	snapshot, err := c.session.Snapshot(ctx)
	if c.session.NotChecked(err, &diags) {
		return diags
	}
	var view *placement.View
	if err == nil {
		view, err = snapshot.View()
	}
	if err != nil {
		diags.AddError("Placement cannot be checked", session.Sentence(err))
		return diags
	}
	gang, err := c.spec.PlannerGang(view.Quota())
	if err != nil {
		diags.AddError("Placement cannot be planned", session.Sentence(err))
		return diags
	}
	if tree := view.Quota(); tree != nil && gang.Leaf != "" && !tree.HasLeaf(gang.Leaf) {
		diags.Append(c.report(path.Root("quota"), "No such quota leaf", noSuchLeaf(c.spec, gang.Leaf, tree))...)
		return diags
	}
	if result := view.Plan(gang); result.Placement == nil {
		verdict := c.misfit(result.Verdict)
		for i, d := range verdict {
			verdict[i] = diag.WithPath(c.at(), diagnostic(d.Severity(), d.Summary(),
				d.Detail()+" The job names no pools, so it was checked against the cluster as it is now; a job that waits for a node pool of this configuration names it in pools."))
		}
		diags.Append(verdict...)
	}
	return diags
}

// trees are the quota tree that decides about a job.
type trees struct {
	// limits is the tree without usage, nil when there is none or it was not looked at.
	limits *quota.Tree
	// live tells that it is the cluster's; used is the same tree with what runs now.
	live bool
	used *quota.Tree
}

// quotaTrees returns the tree planned in this walk, else the cluster's when the job
// names a leaf.
func (c checker) quotaTrees(ctx context.Context) (t trees, diags diag.Diagnostics) {
	if t.limits = c.session.Ledger.Tree(); t.limits != nil || c.spec.Quota == "" || c.level == session.CheckOff {
		return t, nil
	}
	snapshot, err := c.session.Snapshot(ctx)
	if c.session.NotChecked(err, &diags) {
		return t, diags
	}
	if err == nil {
		t.limits, err = snapshot.Quota()
	}
	if err == nil && !c.session.Ledger.Applying() {
		var view *placement.View
		if view, err = snapshot.View(); err == nil {
			t.used = view.Quota()
		}
	}
	if err != nil {
		diags.AddAttributeError(path.Root("quota"), "Quota cannot be checked", session.Sentence(err))
	}
	t.live = true
	return t, diags
}

func notServed(err error) bool { return errors.Is(err, kube.ErrNotServed) }

// misfit reports that the job does not fit, at the attribute that says how much it asks for.
func (c checker) misfit(v placement.Verdict) diag.Diagnostics {
	return c.report(c.at(), "Gang does not fit", fmt.Sprintf("Job %s does not fit: %s", c.spec.ID(), v))
}

// at is the number of replicas of the role with the most members.
func (c checker) at() path.Path {
	most := ""
	for _, name := range c.spec.RoleNames() {
		if !c.spec.Late(name) && (most == "" || c.spec.Roles[name].Replicas > c.spec.Roles[most].Replicas) {
			most = name
		}
	}
	return path.Root("roles").AtMapKey(most).AtName("replicas")
}

// report is an error, a warning or nothing, as the job's placement_check says.
func (c checker) report(at path.Path, summary, detail string) diag.Diagnostics {
	switch c.level {
	case session.CheckOff:
		return nil
	case session.CheckWarn:
		return diag.Diagnostics{diag.NewAttributeWarningDiagnostic(at, summary, detail)}
	default:
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(at, summary, detail)}
	}
}

// finding reports what the ledger found about several jobs together.
func (c checker) finding(f ledger.Finding) diag.Diagnostics {
	if c.level == session.CheckOff && slices.Contains(f.Jobs, c.spec.ID()) {
		return nil
	}
	severity := diag.SeverityWarning
	if f.Error && c.level != session.CheckWarn {
		severity = diag.SeverityError
	}
	d := diagnostic(severity, f.Summary, f.Detail)
	if len(f.Jobs) == 0 || f.Jobs[0] != c.spec.ID() {
		return diag.Diagnostics{d}
	}
	at := path.Root("pools")
	if f.Kind == ledger.NoSuchLeaf {
		at = path.Root("quota")
	}
	return diag.Diagnostics{diag.WithPath(at, d)}
}

func diagnostic(severity diag.Severity, summary, detail string) diag.Diagnostic {
	if severity == diag.SeverityError {
		return diag.NewErrorDiagnostic(summary, detail)
	}
	return diag.NewWarningDiagnostic(summary, detail)
}

func noSuchLeaf(spec job.Spec, leaf string, tree *quota.Tree) string {
	return fmt.Sprintf("Job %s is charged to the quota leaf %q, which the cluster's quota tree does not have; its leaves are %v. "+
		"When a gpuplan_quota_tree of this configuration adds it, name it as gpuplan_quota_tree.NAME.leaves[%q], so that the tree comes first.",
		spec.ID(), leaf, tree.Leaves(), leaf)
}
