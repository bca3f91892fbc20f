package nodepool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fields"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// ModifyPlan makes the capacity known, shows nodes that are to be repaired, and
// refuses what would fail at apply or take nodes away from running jobs.
func (r *pool) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Session == nil {
		return
	}
	var plan, state *model
	if !req.State.Raw.IsNull() {
		state = new(model)
		resp.Diagnostics.Append(fields.Get(ctx, req.State, state)...)
		resp.Diagnostics.Append(r.Recall(ctx, req.Private, state)...)
	}
	if !req.Plan.Raw.IsNull() {
		plan = new(model)
		resp.Diagnostics.Append(fields.Get(ctx, tfsdk.State(req.Plan), plan)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if state != nil && state.Name.IsNull() { // all would differ, and be replaced
		resp.Diagnostics.AddError("Node pool has to be read first", fmt.Sprintf(
			"The state knows of node pool %s no more than its ID, as after a moved block: plan without -refresh=false.", state.ID.ValueString()))
		return
	}
	if state != nil {
		r.Session.Ledger.VisitPool(state.ID.ValueString())
	}
	if plan == nil {
		resp.Diagnostics.Append(r.planDelete(ctx, *state, resp.Private)...)
		return
	}
	if state == nil || !plan.Values.Equal(state.Values) { // what is left out stays, and need not go with the rest
		resp.Diagnostics.Append(plan.Check(ctx, plan.types())...)
		resp.Diagnostics.Append(r.checkManaged(ctx, *plan)...)
		resp.Diagnostics.Append(r.checkTopology(ctx, state, *plan)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	var disk types.Int64
	if resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("system_disk_size"), &disk)...); resp.Diagnostics.HasError() {
		return
	}
	if state != nil && leaving(state.State.ValueString()) { // Terraform replaces for nothing that stays as it is
		plan.State = types.StringUnknown()
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("state"), plan.State)...)
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("state"))
	}
	switch {
	case !plan.known(ctx) || disk.IsUnknown() || state != nil && plan.shrinksUnknown(ctx, *state):
		if !plan.Name.IsUnknown() {
			resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("capacity"), capacity.NameOnly(plan.Name.ValueString()))...)
		}
		if state != nil {
			resp.Diagnostics.Append(r.planUnknown(ctx, *state, *plan)...)
		}
		return // the rest stays unknown until apply
	case state == nil:
		resp.Diagnostics.Append(r.planCreate(ctx, plan)...)
	default:
		resp.Diagnostics.Append(r.planUpdate(ctx, *state, plan)...)
	}
	if state == nil || !plan.Mode.Equal(state.Mode) {
		resp.Diagnostics.Append(mode.Check(ctx, r.Session, plan.Mode.ValueString(), plan.types())...)
	}
	before := state
	if state != nil && plan.replaces(*state) {
		before = nil
	}
	resp.Diagnostics.Append(r.planDevices(ctx, req.Config, before, *plan)...)
	if before == nil || !plan.Capacity.Equal(before.Capacity) {
		resp.Diagnostics.Append(r.showOffer(ctx, *plan)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(fields.Set(ctx, (*tfsdk.State)(&resp.Plan), plan)...)
}

func (r *pool) planCreate(ctx context.Context, plan *model) diag.Diagnostics {
	p, diags := plan.pool(ctx)
	if diags.HasError() {
		return diags
	}
	plan.DriftedNodes, plan.OtherModeNodes = types.MapValueMust(types.StringType, nil), types.MapValueMust(types.StringType, nil)
	diags.Append(plan.setPlanned(ctx, p, capacity.Capacity{})...)
	diags.Append(atName(r.Session.Ledger.CreatePool(p.Name))...)
	if diags.HasError() {
		return diags
	}
	diags.Append(r.checkName(ctx, *plan)...)
	return diags
}

// planUnknown looks at what an update may do to running jobs of which something is unknown until apply.
func (r *pool) planUnknown(ctx context.Context, state, plan model) diag.Diagnostics {
	before, diags := state.pool(ctx)
	if diags.HasError() {
		return diags
	}
	change := change{before: before, after: before, from: state, to: plan}
	diags.Append(r.checkDisplaced(ctx, change)...)
	if change.replaces() {
		diags.Append(session.Diagnostics(r.Session.Ledger.ReplacePool(before.Name))...)
	}
	return diags
}

func (r *pool) planUpdate(ctx context.Context, state model, plan *model) diag.Diagnostics {
	before, diags := state.pool(ctx)
	after, more := plan.pool(ctx)
	if diags.Append(more...); diags.HasError() {
		return diags
	}
	if diags.Append(r.refuseElsewhere(state)...); diags.HasError() {
		return diags
	}
	change := change{before: before, after: after, from: state, to: *plan}
	diags.Append(r.checkDisplaced(ctx, change)...)
	if change.replaces() {
		return append(diags, session.Diagnostics(r.Session.Ledger.ReplacePool(before.Name))...) // Terraform plans the new pool by itself
	}
	if !state.AllowDisruption.ValueBool() {
		r.Session.Ledger.GuardPool(state.ID.ValueString())
	}
	r.Session.Ledger.UnsetOnNodes(change.unset())
	repaired := state.differs()
	plan.DriftedNodes, plan.OtherModeNodes = types.MapValueMust(types.StringType, nil), change.otherModesLeft()
	plan.Capacity, plan.NodeNames = state.Capacity, state.NodeNames
	live, more := capacity.From(ctx, state.Capacity)
	diags.Append(more...)
	if !slices.Equal(before.Fallbacks, after.Fallbacks) {
		var err error
		if live, err = after.Rebased(before, live); err != nil {
			diags.AddError("Capacity cannot be planned", session.Sentence(err))
			return diags
		}
	}
	short := repaired && len(live.Nodes) != plan.offering()
	gone := change.leaving()
	diags.Append(change.checkLeaving()...)
	diags.Append(r.checkReleased(ctx, change)...)
	switch {
	case len(gone) > 0:
		diags.Append(plan.setWithout(ctx, after, live, gone)...)
	case change.changesNodes() || short:
		diags.Append(plan.setRemaining(ctx, after, live, lacking(state))...)
	}
	if before.Reserved != after.Reserved && len(live.Nodes) > 0 {
		diags.Append(plan.setOpen(ctx, after)...) // the kubelets tell when they have started again
	}
	if !r.Session.Ledger.Applying() {
		diags.Append(change.sayOtherModes()...)
		diags.Append(change.sayStaying()...)
	}
	switch {
	case len(change.replaced()) > 0:
		plan.NodeNames = types.ListUnknown(types.StringType)
	case len(gone) > 0 && !repaired:
		names := slices.DeleteFunc(texts(state.NodeNames.Elements()), func(name string) bool { return slices.Contains(gone, name) })
		diags.Append(plan.setNodeNames(ctx, names)...)
	case !plan.Size.Equal(state.Size) || short:
		plan.NodeNames = types.ListUnknown(types.StringType)
	}
	if repaired {
		diags.AddWarning("Nodes differ from their pool", fmt.Sprintf(
			"Node pool %s will be repaired, and the apply waits until its nodes are ready: %s.", after.Name, cmp.Or(describe(state.DriftedNodes), "its creation did not complete")))
	}
	if (repaired || change.relabels()) && len(state.NodeNames.Elements()) > 0 {
		diags.Append(r.Session.NodeRights(ctx)...)
	}
	plan.State = state.State
	if (repaired || change.changesPool()) && state.State.ValueString() != acs.PoolActive {
		plan.State = types.StringUnknown() // an active pool is waited for until it is active again
	}
	if state.kept.Stamp != "" {
		plan.State = types.StringUnknown() // for the stamp alone there would be no update
		diags.Append(r.TakesOver(&state, after.Name)...)
	}
	return diags
}

// planDelete tells jobs that stay about the pool that goes, and refuses to take nodes
// away from jobs of others; the apply looks once more.
func (r *pool) planDelete(ctx context.Context, state model, private lifecycle.Private) diag.Diagnostics {
	p, diags := state.pool(ctx)
	if diags.Append(r.refuseElsewhere(state)...); diags.HasError() {
		return diags
	}
	diags.Append(r.DeletesTheirs(&state, p.Name)...)
	diags.Append(session.Diagnostics(r.Session.Ledger.DeletePool(p.Name))...)
	if !state.AllowDisruption.ValueBool() {
		diags.Append(session.Diagnostics(r.shrink(ctx, p.Name, "deletes node pool "+p.Name))...)
	}
	pods, more := r.podsOn(ctx, state)
	if state.AllowDisruption.ValueBool() { // whoever runs there
		more = lifecycle.Warnings(more)
	} else if more.HasError() {
		more.AddError("Node pool is not deleted unseen", fmt.Sprintf("Whether jobs run on node pool %s is not known, so it stays. Destroy once Kubernetes answers. "+
			"Where the cluster is gone for good, set allow_disruption = true, `terraform apply -refresh=false`, and destroy then; "+
			"or delete the pool at the cloud and forget it with `terraform state rm`.", p.Name))
	}
	if diags.Append(more...); diags.HasError() {
		return diags
	}
	kin, now := r.kin(ctx, state)
	if state.AllowDisruption.ValueBool() {
		if foreign := running.Foreign(pods, kin); len(foreign) > 0 {
			diags.AddWarning("Running jobs will lose their nodes", fmt.Sprintf(
				"The plan deletes node pool %s, which allow_disruption permits, and with its nodes what runs there: %s.", p.Name, running.Describe(foreign)))
		}
		return diags
	}
	diags.Append(r.refuseForeign(path.Empty(), "deletes node pool "+p.Name, consentBefore(now), pods, kin)...)
	if diags.HasError() {
		return diags
	}
	return append(diags, r.noteJobs(ctx, p.Name, pods, private)...)
}

// kin tells by their labels the jobs that may be deleted with a pool: those of this
// configuration, and those with the pool's own stamp, since both may have been imported, or
// the state have moved. The apply refuses when one is still there. now is the service's state of the pool, "" where it
// does not answer: Terraform plans a deletion by what it had before its refresh.
func (r *pool) kin(ctx context.Context, state model) (own func(labels map[string]string) bool, now string) {
	var stamp string
	client, err := r.Session.ACS()
	if err == nil {
		var record acs.NodePool
		record, err = client.GetNodePool(ctx, state.cluster(), state.NodePoolID.ValueString())
		stamp, now = record.Tag(contract.OwnerTag), record.Status.State
	}
	return func(labels map[string]string) bool {
		return r.Session.Owns(labels) || err == nil && stamp != "" && labels[contract.OwnerLabel] == stamp
	}, now
}

// checkName refuses a name that a pool of the cluster has which this configuration does not manage,
// or which running jobs need, and says what becomes of one that it does.
func (r *pool) checkName(ctx context.Context, plan model) (diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	if r.Session.NotChecked(err, &diags) {
		return diags
	}
	name := plan.Name.ValueString()
	var found *acs.NodePool
	if err == nil {
		found, err = client.FindNodePool(ctx, r.Session.ClusterID, name)
	}
	if own, first := r.unreturned(err); own != nil {
		diags.AddAttributeWarning(path.Root("name"), "Node pool exists already", fmt.Sprintf(
			"%s An apply of this configuration that was killed has created one of that name (%s) at the same time. The apply deletes it, unless jobs run there, and then fails.",
			session.Sentence(r.foreign(&acs.PoolExistsError{ClusterID: r.Session.ClusterID, Pool: *first})), own.Info.ID))
		return diags
	}
	if err != nil {
		diags.AddError("Node pools cannot be listed", session.Sentence(err))
		return diags
	}
	if found == nil {
		return diags
	}
	id, stamp := r.Session.ClusterID+"/"+found.Info.ID, found.Tag(contract.OwnerTag)
	switch mine := r.Session.Mine(stamp); {
	case r.Session.Ledger.VisitedPool(id) || r.Session.Ledger.Owns(id) && !mine:
		diags.Append(session.Diagnostics(r.Session.Ledger.ReplacePool(name))...)
		if r.Session.Ledger.GuardsPool(id) {
			diags.Append(r.checkReplaced(ctx, *found)...)
		}
	case !mine:
		diags.AddAttributeError(path.Root("name"), "Node pool exists already", fmt.Sprintf(
			"Cluster %s has a node pool named %q (%s) already, and %s.", r.Session.ClusterID, name, found.Info.ID,
			r.Session.Advice(session.Foreign{Stamp: stamp, Resource: "gpuplan_node_pool", ID: id, Renamable: true})))
	case found.Status.State != acs.PoolDeleting && !r.Session.Ledger.Applying():
		diags.Append(r.planTakeover(ctx, *found, plan)...)
	}
	return diags
}

// planTakeover says what the apply makes of a pool of this configuration that it meets under the name of
// a new one, and refuses to take its nodes away from running jobs: Terraform shows a pool that is created.
func (r *pool) planTakeover(ctx context.Context, record acs.NodePool, plan model) diag.Diagnostics {
	c, diags := r.changeFrom(ctx, record, plan)
	if diags.HasError() {
		return diags
	}
	why, advice := "and Terraform makes a new one without regard to it, as after an apply that was cut off, `terraform state rm`, a removed block, a change of the address without a moved block, or with create_before_destroy", ""
	if r.Session.Targets {
		why = "and this plan is about a part of the configuration (-target), which may lack the resource that has it"
		advice = " Plan without -target when pools change names."
	}
	becomes := "The apply goes on with that pool and its nodes."
	switch differs := join(c.differs(ctx)); {
	case leaving(record.Status.State):
		becomes = "Its deletion has failed, so the apply replaces it with its nodes."
	case c.replaces():
		becomes = fmt.Sprintf("It differs in %s, so the apply replaces it with its nodes. To keep it, write here what it has.", differs)
	case differs != "":
		becomes = fmt.Sprintf("The apply goes on with that pool, and changes in what it differs: %s. To keep it as it is, write here what it has.", differs)
	}
	if id := r.Session.ClusterID + "/" + record.Info.ID; r.Session.Ledger.Owns(id) {
		// The protocol does not tell a tainted resource from one whose address changes.
		why = "and the state has it. If it is tainted there, the apply deletes it with its nodes and makes a new one, and fails while jobs that stay run on them; `terraform untaint` keeps it"
		if pods, more := r.podsOn(ctx, model{NodePoolID: types.StringValue(record.Info.ID)}); len(pods) > 0 && !more.HasError() {
			why += ". Running there: " + running.Describe(pods)
		}
		becomes = "If its address changes without a moved block, or a removed block gives it up: " + strings.ToLower(becomes[:1]) + becomes[1:] +
			" Where the address changes, write a moved block from the old address to the new one: without it the plan refuses jobs that stay on the nodes, or are to come to them, since it counts these as deleted."
	}
	diags.AddAttributeWarning(path.Root("name"), "Node pool exists already", fmt.Sprintf(
		"Node pool %s (%s) of this configuration exists, %s. %s%s", record.Info.Name, record.Info.ID, why, becomes, advice))
	diags.Append(r.checkDisplaced(ctx, c)...)
	if c.replaces() {
		return append(diags, session.Diagnostics(r.Session.Ledger.ReplacePool(record.Info.Name))...)
	}
	r.Session.Ledger.UnsetOnNodes(c.unset())
	return diags
}

// checkManaged warns that managed operation lacks its add-on, without which the service refuses it.
func (r *pool) checkManaged(ctx context.Context, plan model) (diags diag.Diagnostics) {
	if !plan.Managed() || r.Session.Ledger.Applying() {
		return nil
	}
	installed, err := r.Session.KeepsAddon(ctx, contract.NodeProblemDetector)
	if err != nil {
		return nil // the apply will tell
	}
	if !installed {
		diags.AddAttributeWarning(path.Root("management"), "Managed operation lacks its add-on", fmt.Sprintf(
			"The service operates nodes only in a cluster with the add-on %s, which cluster %s lacks, and will refuse node pool %s. "+
				"Declare a gpuplan_addon of that name, and name it in depends_on of the node pool.", contract.NodeProblemDetector, r.Session.ClusterID, plan.Name.ValueString()))
	}
	return diags
}

// checkTopology warns of a policy by which nodes refuse what the plan places on them.
func (r *pool) checkTopology(ctx context.Context, state *model, plan model) (diags diag.Diagnostics) {
	policy := plan.RefusesPods(ctx)
	if policy == "" || r.Session.Ledger.Applying() || state != nil && state.RefusesPods(ctx) == policy {
		return nil
	}
	diags.AddAttributeWarning(path.Root("kubelet_config"), "Nodes may refuse pods", fmt.Sprintf(
		"With topology_manager_policy = %q a node refuses a pod (TopologyAffinityError) whose CPUs and devices are not of the NUMA nodes that the policy wants. "+
			"Plans and the scheduler choose GPUs by the links between them and do not know of NUMA nodes: a job can fail where it is planned. \"best-effort\" refuses nothing.", policy))
	return diags
}

func atName(findings []ledger.Finding) (diags diag.Diagnostics) {
	for _, f := range findings {
		diags.Append(diag.WithPath(path.Root("name"), session.Diagnostic(f)))
	}
	return diags
}
