package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fields"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// ModifyPlan decides what a change means for a job that exists, and places one that
// will be created.
func (r *trainingJob) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Session == nil {
		return
	}
	if req.Plan.Raw.IsNull() {
		var state model
		resp.Diagnostics.Append(fields.Get(ctx, req.State, &state)...)
		if resp.Diagnostics.Append(r.Recall(ctx, req.Private, &state)...); !resp.Diagnostics.HasError() {
			resp.Diagnostics.Append(r.DeletesTheirs(&state, id(state).ValueString())...)
			r.Session.ShowCluster(ctx)
			r.inFleet(state, (*fleetplan.Fleet).Leave)
			resp.Diagnostics.Append(session.Diagnostics(r.Session.Ledger.DeleteJob(id(state).ValueString()))...)
		}
		return
	}
	var plan, config model
	resp.Diagnostics.Append(fields.Get(ctx, tfsdk.State(req.Config), &config)...)
	if resp.Diagnostics.Append(fields.Get(ctx, tfsdk.State(req.Plan), &plan)...); resp.Diagnostics.HasError() {
		return
	}
	if plan.fillClusters(ctx) {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("fleet"), plan.Fleet)...)
	}
	on, diags := config.offer(ctx) // write-only: the plan does not have it, nor after
	after := config.After
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	plan.ID, plan.PoolNames = id(plan), on.names
	if req.State.Raw.IsNull() {
		if resp.Diagnostics.Append(plan.asNew(ctx, config)...); resp.Diagnostics.HasError() {
			return
		}
		// What someone else's job of that name holds stays taken for all others.
		if resp.Diagnostics.Append(r.checkName(ctx, req.State, plan)...); resp.Diagnostics.HasError() {
			return
		}
		question := r.ask(ctx, plan)
		if resp.Diagnostics.Append(r.checkNeeds(ctx, plan, question)...); resp.Diagnostics.HasError() {
			return
		}
		resp.Diagnostics.Append(r.place(ctx, &plan, after, on, question.answer)...)
		resp.Diagnostics.Append(fields.Set(ctx, (*tfsdk.State)(&resp.Plan), plan)...)
		resp.Diagnostics.Append(r.noteReplacement(ctx, plan.ID.ValueString(), resp.Private)...)
		resp.Diagnostics.Append(r.preflight(ctx, plan, question, on)...)
		return
	}
	var state model
	resp.Diagnostics.Append(fields.Get(ctx, req.State, &state)...)
	if resp.Diagnostics.Append(r.Recall(ctx, req.Private, &state)...); resp.Diagnostics.HasError() {
		return
	}
	if config.Pools.IsNull() && on.names.IsNull() {
		// Terraform leaves out what lifecycle.ignore_changes names. Nor does a job move that need not keep to its pools.
		plan.PoolNames = state.PoolNames
	}
	old, _, diags := state.spec(ctx)
	resp.Diagnostics.Append(diags...)
	wanted, unknown, diags := plan.spec(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	r.Session.Ledger.Own(object(old))
	replace, _ := differences(old, wanted)
	config.PoolNames = plan.PoolNames // which the configuration has as pools
	for _, attribute := range undecided(ctx, config) {
		if !slices.Contains(replace, attribute) {
			replace = append(replace, attribute)
		}
	}
	// A data source that is read at apply makes all of its pool unknown, whose name rarely is another one then: that is for
	// the apply to refuse.
	if len(old.Pools) > 0 && (slices.Contains(unknown, "pools") || r.Session.Ledger.Applying()) {
		replace = slices.DeleteFunc(replace, func(attribute string) bool { return attribute == "pools" })
	}
	replace = append(replace, rerun(state, plan)...)
	if plan.leavesFleet(state) {
		replace = append(replace, "fleet")
	}
	if state.Status.ValueString() == phaseDeleting {
		plan.Status = types.StringUnknown()
		resp.Diagnostics.Append(fields.Set(ctx, (*tfsdk.State)(&resp.Plan), plan)...)
		replace = append(replace, "status")
	}
	if len(replace) > 0 {
		for _, attribute := range replace {
			resp.RequiresReplace = append(resp.RequiresReplace, replacePath(attribute, plan, state))
		}
		plan.PoolNames = on.names // a new job has those that it is given
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("pool_names"), plan.PoolNames)...)
		resp.Diagnostics.Append(plan.asNew(ctx, config)...)
		wanted, unknown, diags = plan.spec(ctx)
		if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
			return
		}
		// Terraform asks again for the plan of the new job, and leaves out what is a warning then.
		if plan.ID.ValueString() != old.ID() {
			if resp.Diagnostics.Append(r.checkName(ctx, req.State, plan)...); resp.Diagnostics.HasError() {
				return
			}
		}
		r.Session.Ledger.ReplaceJob(old.ID(), plan.ID.ValueString())
		r.inFleet(state, (*fleetplan.Fleet).Leave)
		resp.Diagnostics.Append(r.place(ctx, &plan, after, on, preflight.Answer{Admission: r.admissionOf(ctx, plan, wanted, unknown)})...)
		return
	}
	keepResults(&plan, state, state.moves(old, wanted) || len(unknown) > 0)
	if state.kept.Stamp != "" {
		plan.Status = types.StringUnknown() // for the stamp alone there would be no update
		resp.Diagnostics.Append(r.TakesOver(&state, old.ID())...)
	}
	if state.kept.Runtime != "" {
		plan.Status = types.StringUnknown()
		if !r.Session.Ledger.Applying() {
			resp.Diagnostics.AddWarning("TrainingRuntime "+state.kept.Runtime, fmt.Sprintf(
				"TrainingRuntime %s, which says what the pods of this job are, %s. The pods run on as they are, and the apply writes the runtime as it was: without it Kubeflow Trainer could not suspend the job, nor make it again.",
				old.ID(), state.kept.Runtime))
		}
	}
	var starts preflight.Answer
	switch {
	case state.resumes(old, wanted):
		plan.kept.Ended = state.kept.Ended
		starts = r.askResume(ctx, wanted, unknown)
		resp.Diagnostics.Append(r.place(ctx, &plan, after, on, preflight.Answer{Admission: starts.Admission})...)
	case state.moves(old, wanted) && wanted.Suspend && !old.Suspend:
		r.Session.ShowCluster(ctx)
		resp.Diagnostics.Append(session.Diagnostics(r.Session.Ledger.SuspendJob(old.ID()))...)
	default:
		if len(unknown) == 0 {
			resp.Diagnostics.Append(r.checkPolicy(ctx, plan, state, wanted)...)
		}
		r.keepInFleet(ctx, state, wanted)
		resp.Diagnostics.Append(session.Diagnostics(r.Session.Ledger.KeepJob(old.ID()))...)
	}
	resp.Diagnostics.Append(fields.Set(ctx, (*tfsdk.State)(&resp.Plan), plan)...)
	if len(unknown) == 0 && !resp.Plan.Raw.Equal(req.State.Raw) {
		resp.Diagnostics.Append(r.preflightChange(ctx, plan, state, old, wanted, starts)...)
	}
}

// asNew fills in what a new job has where its configuration says nothing, as soon as all is known
// on which that depends.
func (m *model) asNew(ctx context.Context, config model) diag.Diagnostics {
	said := *m
	var left []jobAttribute
	for _, a := range jobAttributes {
		if a.initial != nil && a.property.value(&config).IsNull() {
			left = append(left, a)
			a.property.take(&said, job.Spec{})
		}
	}
	spec, unknown, diags := said.spec(ctx)
	if diags.HasError() || anyOf(unknown, shaping()...) {
		return diags
	}
	for _, a := range left {
		a.initial(&spec)
		a.property.take(m, spec)
	}
	return diags
}

// id is known at plan when its parts are.
func id(m model) types.String {
	if m.Namespace.IsUnknown() || m.Name.IsUnknown() {
		return types.StringUnknown()
	}
	return types.StringValue(m.Namespace.ValueString() + "/" + m.Name.ValueString())
}

// replacePath names the attribute to blame for a replacement. What a job's
// description calls roles comes from several attributes.
func replacePath(attribute string, plan, state model) path.Path {
	switch {
	case attribute == "pools":
		return path.Root("pool_names")
	case attribute != "roles" || !plan.Roles.Equal(state.Roles):
		return path.Root(attribute)
	}
	for _, a := range containerAttributes {
		if !a.property.value(&plan.container).Equal(a.property.value(&state.container)) {
			return path.Root(a.name)
		}
	}
	return path.Root(attribute)
}

// moves reports whether a change of the job in a state ends or starts pods, which one that is over does not. What any
// other change brings about later, the next refresh shows.
func (m model) moves(old, wanted job.Spec) bool {
	return !finished(m) && (old.Suspend != wanted.Suspend || old.Queue != wanted.Queue)
}

// resumes reports whether a change of the job in a state lets it start.
func (m model) resumes(old, wanted job.Spec) bool {
	return m.moves(old, wanted) && old.Suspend && !wanted.Suspend
}

// keepResults carries what is known of a job that stays into its plan. A change
// that ends or starts pods leaves only the planned placement as it is.
func keepResults(plan *model, state model, changes bool) {
	plan.PlannedPlacement, plan.PlannedNodeCount, plan.Placed = state.PlannedPlacement, state.PlannedNodeCount, state.Placed
	plan.PlannedCluster, plan.Cluster = state.PlannedCluster, state.Cluster
	if changes {
		return
	}
	plan.Status, plan.PlacementAsPlanned = state.Status, state.PlacementAsPlanned
}

// offer is what the pools of a job offer; not known means not before apply.
type offer struct {
	pools []capacity.Capacity
	known bool
	// names are those of the pools.
	names types.List
	// clusters are the pools by member cluster, of a job of a fleet.
	clusters map[string][]capacity.Capacity
}

// offer is what the configuration of a job gives it.
func (m model) offer(ctx context.Context) (o offer, diags diag.Diagnostics) {
	if m.ofFleet() {
		return m.fleetOffer(ctx)
	}
	o.pools, o.known, diags = capacity.List(ctx, m.Pools)
	o.names = poolNames(m.Pools, o.pools, o.known)
	return o, diags
}

// anywhere reports whether the job may use any node, as far as is known.
func (o offer) anywhere() bool { return !o.known || len(o.pools) == 0 }

// place checks that the gang fits on the pools and fills in where it will run. What admission
// makes of it decides about the check alone.
func (r *trainingJob) place(ctx context.Context, m *model, after types.List, on offer, starts preflight.Answer) (diags diag.Diagnostics) {
	m.PlannedPlacement, m.PlannedNodeCount, m.Placed = types.MapUnknown(types.StringType), types.Int64Unknown(), types.StringUnknown()
	m.PlannedCluster, m.Cluster = types.StringNull(), types.StringNull()
	if m.ofFleet() {
		m.PlannedCluster, m.Cluster = types.StringUnknown(), types.StringUnknown()
		return r.placeInFleet(ctx, m, after, on)
	}
	spec, unknown, diags := m.spec(ctx)
	if diags.HasError() {
		return diags
	}
	spec.Ended = m.kept.Ended
	c := r.checker(*m, spec)
	before, known, afterDiags := c.before(after)
	if diags.Append(afterDiags...); diags.HasError() {
		return diags
	}
	if !on.known && !slices.Contains(unknown, "pools") {
		unknown = append(unknown, "pools")
	}
	if !known {
		unknown = append(unknown, "after")
	}
	if m.AllowPreemption.IsUnknown() {
		unknown = append(unknown, "allow_preemption")
	}
	if !anyOf(unknown, append(shaping(), "name", "namespace", "scheduler_name")...) { // by which it judges a job, and names it
		if diags.Append(c.alike(*m)...); diags.HasError() {
			return diags
		}
	}
	if len(unknown) > 0 {
		summary, detail := "Placement is not checked", fmt.Sprintf("Whether the job fits is not checked: %s unknown until apply.", are(unknown))
		if c.allowPreemption {
			detail += " Nor is whom the scheduler evicts for it, as allow_preemption agrees: the apply names them."
		}
		switch {
		case c.level == session.CheckError && r.Session.Ledger.Stays(spec.ID()):
			diags.AddAttributeError(path.Root(unknown[0]), summary, detail+" Terraform shows no warning about a job that is replaced by -replace or replace_triggered_by, so that the plan fails instead: "+
				"apply first what makes it unknown, or change triggers of the job to replace it, and this is a warning.")
		case c.level != session.CheckOff:
			diags.AddAttributeWarning(path.Root(unknown[0]), summary, detail)
		}
		return append(diags, session.Diagnostics(r.Session.Ledger.PlaceLater())...)
	}
	if !c.promised() || spec.Suspend {
		m.setPlanned(nil)
	}
	if spec.Suspend {
		m.Placed = placed(m.ID, ledger.Unplanned)
		// It takes nothing until it is resumed, and is checked then.
		return append(diags, session.Diagnostics(r.Session.Ledger.PlaceLater())...)
	}
	gone := r.Session.Ledger.Vacated(spec.ID(), before)
	pools := slices.Clone(on.pools)
	for i := range pools {
		pools[i] = pools[i].Without(gone...)
	}
	c.admission, c.draws = starts.Admission, starts.Draws
	assignments, checkDiags := c.plan(ctx, pools, before)
	diags.Append(checkDiags...)
	if c.promised() && assignments != nil {
		m.setPlanned(assignments)
	}
	m.Placed = placed(m.ID, r.Session.Ledger.Mark(spec.ID()))
	return diags
}

// anyOf reports whether one of the attributes is among those that are unknown.
func anyOf(unknown []string, attributes ...string) bool {
	return slices.ContainsFunc(attributes, func(name string) bool { return slices.Contains(unknown, name) })
}

func are(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}
