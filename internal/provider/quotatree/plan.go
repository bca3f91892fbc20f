package quotatree

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// ModifyPlan makes the leaves known, tells the other resources of this walk about the
// tree, and refuses changes that running jobs would suffer from.
func (r *tree) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Session == nil {
		return
	}
	isNew := req.State.Raw.IsNull()
	resp.Diagnostics.Append(noteReplacement(ctx, isNew, resp.Private)...)
	if req.Plan.Raw.IsNull() {
		r.Session.ShowCluster(ctx)
		for _, f := range r.Session.Ledger.RecordTree(nil) {
			resp.Diagnostics.Append(session.Diagnostic(f))
		}
		return
	}
	var plan model
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); resp.Diagnostics.HasError() {
		return
	}
	if !isNew && r.leaves(ctx, plan) {
		plan.ID = types.StringUnknown()
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("id"))
	}
	if isNew {
		plan.ID = types.StringValue(contract.QuotaTreeNamespace + "/" + contract.QuotaTreeName)
	}
	names, diags := leavesValue(ctx, plan.Quotas)
	resp.Diagnostics.Append(diags...)
	plan.Leaves = names
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)

	spec, known, diags := plan.spec(ctx)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	if !known {
		r.Session.Ledger.ExpectTree()
		if !isNew && !plan.AllowDisruption.ValueBool() {
			resp.Diagnostics.Append(r.checkUnknown(ctx, req.State, plan)...)
		}
		return
	}
	tree, err := quota.New(spec)
	if err != nil {
		return // the validation has said so
	}
	if !resp.Plan.Raw.Equal(req.State.Raw) {
		r.Session.ShowCluster(ctx)
	}
	for _, f := range r.Session.Ledger.RecordTree(tree) {
		resp.Diagnostics.Append(session.Diagnostic(f))
	}
	if !resp.Plan.Raw.Equal(req.State.Raw) {
		resp.Diagnostics.Append(r.checkWrite(ctx, req.State, plan)...)
	}
	if isNew {
		resp.Diagnostics.Append(r.checkExisting(ctx, plan, spec, tree)...)
		resp.Diagnostics.Append(r.checkKind()...)
		return
	}
	var state model
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	if plan.Quotas.Equal(state.Quotas) && plan.Total.Equal(state.Total) {
		return
	}
	before, _, diags := state.spec(ctx)
	if diags.HasError() {
		return // someone broke the live tree; the change repairs it
	}
	resp.Diagnostics.Append(r.checkUsage(ctx, before, spec, tree, plan.AllowDisruption.ValueBool())...)
}

// leaves reports whether the tree's deletion has begun, which nothing stops: a destroy waits for its
// end, and any other plan for a new tree.
func (r *tree) leaves(ctx context.Context, plan model) bool {
	if r.Session.Ledger.Applying() {
		return false // Terraform accepts no replacement that it was not told of
	}
	client, err := r.Session.Kube()
	if err != nil {
		return false
	}
	// The object alone: a configuration of a tree and nothing else lists no nodes and pods for it.
	obj, err := client.Get(ctx, kind, contract.QuotaTreeNamespace, objectName(plan))
	return err == nil && obj.GetDeletionTimestamp() != nil
}

// toWrite is the object that a plan writes, by its kind and name.
func toWrite(plan model) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(contract.QuotaTreeNamespace)
	obj.SetName(objectName(plan))
	return obj
}

// checkWrite asks whether the kubeconfig's user may write the tree, and whether admission lets it.
func (r *tree) checkWrite(ctx context.Context, of tfsdk.State, plan model) diag.Diagnostics {
	diags := r.Session.Rights(ctx, toWrite(plan))
	if diags.HasError() || r.Session.Ledger.Applying() {
		return diags
	}
	obj, more := r.described(ctx, of, &plan)
	if diags.Append(more...); diags.HasError() {
		return diags
	}
	return append(diags, r.Session.Writes(ctx, obj, r.Session.Ledger.Owns(owned), "quota tree", "quotas")...)
}

// checkExisting refuses to plan a second tree beside one that exists. One that this configuration has
// made is what the apply goes on with: its change is checked like any other.
func (r *tree) checkExisting(ctx context.Context, plan model, spec quota.Spec, tree *quota.Tree) (diags diag.Diagnostics) {
	lost := !r.Session.Ledger.Owns(owned)
	snapshot, err := r.Session.Snapshot(ctx)
	if r.Session.NotChecked(err, &diags) {
		return diags
	}
	if err == nil && snapshot.QuotaTree != nil && lost {
		err = r.second(snapshot.QuotaTree)
	}
	if err != nil {
		diags.AddError("Quota tree cannot be created", session.Sentence(err))
		return diags
	}
	live := snapshot.QuotaTree
	if live == nil || live.GetDeletionTimestamp() != nil {
		return diags
	}
	if live.GetName() != contract.QuotaTreeName && !plan.AllowDisruption.ValueBool() { // an error, since Terraform shows no warning of -replace
		diags.AddError("Running jobs may be evicted", fmt.Sprintf(
			"Until %s is made in the place of %s/%s the cluster has no quota tree, and running jobs may be evicted for others that start beyond their quota. Set allow_disruption = true to permit it.",
			plan.ID.ValueString(), live.GetNamespace(), live.GetName()))
		return diags
	}
	if lost && !r.Session.Ledger.Applying() {
		diags.AddWarning("Quota tree exists already", fmt.Sprintf(
			"Quota tree %s/%s of this configuration exists, and Terraform makes a new one without regard to it, as after an apply that was cut off, `terraform state rm`, "+
				"or a change of the address without a moved block. The apply goes on with it, changed where it differs.", live.GetNamespace(), live.GetName()))
	}
	before, err := inventory.QuotaSpec(live)
	if err != nil {
		return diags // of a live tree that someone broke, the change repairs it
	}
	return append(diags, r.checkUsage(ctx, before, spec, tree, plan.AllowDisruption.ValueBool())...)
}

// checkKind warns that nothing installs the kind of the tree before an apply writes it.
func (r *tree) checkKind() (diags diag.Diagnostics) {
	if installed, _ := r.Session.Ledger.Program(contract.SchedulerName); installed || r.Session.Ledger.Applying() {
		return nil
	}
	client, err := r.Session.Kube()
	if err != nil {
		return nil // what looks at the cluster has said so
	}
	if served, err := client.Serves(kind); served || err != nil {
		return nil
	}
	diags.AddWarning("The cluster has no quota trees", fmt.Sprintf(
		"The kind %s is not installed, and no gpuplan_scheduler comes before the quota tree that installs it: an apply waits for it as long as timeouts.create says, and fails. "+
			"Declare a gpuplan_scheduler and name it in depends_on of the quota tree, so that it comes first, or install the kind; on ACK the add-on ack-kube-queue has it.", kind.Kind))
	return diags
}

// checkUnknown refuses that leaves in use go, of a tree of which something else is unknown until apply, and says
// that the apply looks at the rest.
func (r *tree) checkUnknown(ctx context.Context, of tfsdk.State, plan model) diag.Diagnostics {
	var state model
	diags := of.Get(ctx, &state)
	before, _, more := state.spec(ctx)
	if diags.HasError() || more.HasError() {
		return diags // someone broke the live tree; the change repairs it
	}
	u, more := r.inUse(ctx, before)
	if diags.Append(more...); u == nil {
		return diags
	}
	if !plan.Quotas.IsUnknown() {
		remaining := leaves(slices.Sorted(maps.Keys(plan.Quotas.Elements())))
		diags.Append(r.cut(func(stays func(job string) bool) []ledger.Finding {
			return orphaned(r.going(u.jobs, stays), func(leaf string) bool { return slices.Contains(remaining, leaf) })
		})...)
	}
	if !r.Session.Ledger.Applying() && u.any() {
		diags.AddAttributeWarning(path.Root("quotas"), "Use of the quota is checked at apply", "Some of the quota tree is unknown until apply, and its quota is in use. "+
			"Without allow_disruption the apply refuses to take away what others use, and does not look at the jobs of this configuration. To have a plan look at these, apply first what makes the tree unknown, with -target.")
	}
	return diags
}

// checkUsage names who would be over the quota: of a leaf that goes away, the running jobs; of a
// maximum, all pods that the scheduler charges to it, jobs or not. Where that is permitted it warns.
func (r *tree) checkUsage(ctx context.Context, before, spec quota.Spec, tree *quota.Tree, permitted bool) diag.Diagnostics {
	u, diags := r.inUse(ctx, before)
	if permitted {
		diags = lifecycle.Warnings(diags)
	}
	if u == nil {
		return diags
	}
	return append(diags, r.cut(func(stays func(job string) bool) []ledger.Finding {
		lost := r.lost(*u, before, spec, tree, stays)
		for i := range lost {
			if permitted {
				what, _, _ := strings.Cut(lost[i].Detail, ". ")
				lost[i].Error, lost[i].Detail = false, what+". That is permitted (allow_disruption)."
			}
		}
		return lost
	})...)
}

// refuseUsed is [tree.checkUsage] of an apply, which knows all of the tree, for what others use. Jobs of this
// configuration that the same plan suspends may do so after the tree has changed, and the plan has looked at them.
func (r *tree) refuseUsed(ctx context.Context, state, m model) (diags diag.Diagnostics) {
	if m.AllowDisruption.ValueBool() || m.Quotas.Equal(state.Quotas) && m.Total.Equal(state.Total) {
		return nil
	}
	before, _, brokenBefore := state.spec(ctx)
	spec, _, broken := m.spec(ctx)
	tree, err := quota.New(spec)
	if err != nil || broken.HasError() || brokenBefore.HasError() {
		return nil // of a live tree that someone broke, the change repairs it
	}
	u, diags := r.inUse(ctx, before)
	if u == nil {
		return diags
	}
	for _, f := range r.lost(*u, before, spec, tree, func(string) bool { return false }) {
		diags.Append(diag.WithPath(path.Root("quotas"), session.Diagnostic(f)))
	}
	return diags
}

// usage are the pods that run, charged to a tree: those of jobs, and all.
type usage struct {
	jobs, all []running.Pod
	old       *quota.Tree
}

// any reports whether the tree is charged with anything.
func (u usage) any() bool {
	all := slices.Clone(u.all)
	charge(all, u.old)
	return slices.ContainsFunc(all, func(p running.Pod) bool { return u.old.HasLeaf(p.Leaf) })
}

// inUse is what a tree is charged with, nil where that is not known.
func (r *tree) inUse(ctx context.Context, before quota.Spec) (u *usage, diags diag.Diagnostics) {
	snapshot, err := r.Session.Snapshot(ctx)
	if r.Session.NotChecked(err, &diags) {
		return nil, diags
	}
	if err != nil {
		diags.AddError("Running jobs cannot be listed", session.Sentence(err))
		return nil, diags
	}
	old, err := quota.New(before)
	if err != nil {
		return nil, nil // someone broke the live tree; the change repairs it
	}
	u = &usage{jobs: running.Pods(snapshot.Pods), all: running.All(snapshot.Pods), old: old}
	charge(u.jobs, old)
	return u, nil
}

// lost is what a change of the tree takes away, if of the jobs of this configuration those go on of which stays is true.
func (r *tree) lost(u usage, before, spec quota.Spec, tree *quota.Tree, stays func(job string) bool) []ledger.Finding {
	all := slices.Clone(u.all)
	charge(all, tree)
	return append(orphaned(r.going(u.jobs, stays), tree.HasLeaf), exceeded(r.going(all, stays), before, spec, tree)...)
}

// going are the pods that go on: what the same plan deletes, suspends or replaces gives back what it uses.
func (r *tree) going(pods []running.Pod, stays func(job string) bool) []running.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p running.Pod) bool {
		return r.Session.Owns(p.Object.Labels) && !stays(p.Owner)
	})
}

// cut tells the ledger what a change of the tree takes away.
func (r *tree) cut(lost func(stays func(job string) bool) []ledger.Finding) (diags diag.Diagnostics) {
	for _, f := range r.Session.Ledger.CutQuota(lost) {
		diags.Append(diag.WithPath(path.Root("quotas"), session.Diagnostic(f)))
	}
	return diags
}

// charge fills in the leaf of pods whose namespace decides.
func charge(pods []running.Pod, tree *quota.Tree) {
	for i := range pods {
		if pods[i].Leaf == "" {
			pods[i].Leaf = tree.LeafOf(pods[i].Object.Namespace)
		}
	}
}

// orphaned names the jobs whose leaf goes away.
func orphaned(pods []running.Pod, remains func(leaf string) bool) (findings []ledger.Finding) {
	lost := slices.DeleteFunc(slices.Clone(pods), func(p running.Pod) bool { return p.Leaf == "" || remains(p.Leaf) })
	byLeaf := map[string][]running.Pod{}
	for _, p := range lost {
		byLeaf[p.Leaf] = append(byLeaf[p.Leaf], p)
	}
	for _, leaf := range slices.Sorted(maps.Keys(byLeaf)) {
		owners := running.Owners(byLeaf[leaf])
		findings = append(findings, ledger.Cut("leaf "+leaf, "Quota leaf is in use", fmt.Sprintf(
			"The plan removes the leaf %q, to which running jobs are charged: %s. Remove the jobs as well, wait until they have finished, keep the leaf, or set allow_disruption = true.",
			leaf, running.Some(owners)), owners))
	}
	return findings
}

// exceeded names the jobs below nodes whose lowered maximum is less than what is in use.
func exceeded(pods []running.Pod, before, spec quota.Spec, tree *quota.Tree) (findings []ledger.Finding) {
	view := snapshot.NewView()
	for _, p := range pods {
		view.AddPod(p.Pod)
	}
	view.SetQuota(tree)
	charged := view.Quota()
	check := func(at path.Path, what string, was, now *quota.Spec, below []running.Pod) {
		for _, name := range slices.Sorted(maps.Keys(now.Max)) {
			used := charged.Used(now.Name)[name]
			if used <= now.Max[name] || was != nil && !lowered(was.Max, now.Max, name) {
				continue
			}
			owners := running.Owners(slices.DeleteFunc(slices.Clone(below), func(p running.Pod) bool { return p.Request.Charge()[name] == 0 }))
			findings = append(findings, ledger.Cut(at.AtMapKey(name).String(), "Quota is in use", fmt.Sprintf(
				"The plan lowers the maximum of %s for %s to %s, but at least %s stay in use, by %s. Remove some as well, wait until they have finished, choose a maximum that holds them, or set allow_disruption = true.",
				name, what, quota.Format(name, now.Max[name]), quota.Format(name, used), running.Some(owners)), owners))
		}
	}
	inTree := slices.DeleteFunc(slices.Clone(pods), func(p running.Pod) bool { return charged.Payer(p.Leaf) == "" })
	check(path.Root("total"), "the whole tree", &before, &spec, inTree)
	for _, key := range keys(spec) {
		below := slices.DeleteFunc(slices.Clone(inTree), func(p running.Pod) bool { return !isBelow(charged, key, p.Leaf) })
		check(path.Root("quotas").AtMapKey(key).AtName("max"), key, find(before, key), find(spec, key), below)
	}
	return findings
}

// lowered tells whether the limit of a resource is new or lower than it was.
func lowered(was, now quota.Resources, name string) bool {
	limit, limited := was[name]
	return !limited || now[name] < limit
}

// isBelow tells whether what names a leaf is charged to the node of that key or below it.
func isBelow(tree *quota.Tree, key, leaf string) bool {
	at := tree.Path(tree.Payer(leaf))
	top := quota.RootName + "/" + key
	return at == top || strings.HasPrefix(at, top+"/")
}

// unit says what the amounts of a resource in a text count, where that is not plain.
func unit(name string) string {
	switch name {
	case "cpu":
		return " (in thousandths of a core)"
	case "memory", "ephemeral-storage":
		return " (in bytes)"
	}
	return ""
}
