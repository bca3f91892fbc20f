package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// arriving is how long a planned place of new nodes may take until the cluster shows it.
const arriving = 15 * time.Second

// fleetModel is the attribute fleet.
type fleetModel struct {
	Policy   types.String `tfsdk:"policy"`
	Clusters types.Map    `tfsdk:"clusters"`
}

// fleetClusterModel is one of its clusters; the pools are write-only.
type fleetClusterModel struct {
	Pools types.List `tfsdk:"pools"`
}

var fleetSchema = schema.SingleNestedAttribute{
	MarkdownDescription: "Sends the job to a member cluster of a fleet. The provider, or an alias of it, is configured for the hub then. The plan names the cluster as well as the nodes and GPUs, by the rules of the hub's scheduler of gangs, which keeps to it. " +
		"The job is a gang of any framework but `trainjob`; what is made beside it (`arena_compatible`, `tensorboard`), `suspend`, `queue`, `pools`, `allow_preemption` and `ttl_seconds_after_finished` are not for jobs of a fleet. The plan looks in the member clusters for the PriorityClass, the ServiceAccount, the Secrets and the claims that its pods name; what admission and ResourceQuotas there make of its pods, and whether claims can be mounted by as many, is not known to it.",
	Optional: true,
	Attributes: map[string]schema.Attribute{
		"policy": schema.StringAttribute{
			MarkdownDescription: "Name of the policy that sends the job to clusters, in the namespace of the job: `gpuplan_propagation_policy.NAME.name`, or one that the hub has.",
			Required:            true,
		},
		"clusters": schema.MapNestedAttribute{
			MarkdownDescription: "What member clusters offer, by their names. With it the plan names the cluster and the GPUs; without it they are known after apply, and the plan only says whether there is a place now.",
			Optional:            true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"pools": schema.ListAttribute{
					MarkdownDescription: "Capacity of node pools of the cluster, of the alias of the provider for that, `[gpuplan_node_pool.NAME.capacity]`. The members are kept on pools of these names, in every cluster. It is not stored.",
					Optional:            true, WriteOnly: true, ElementType: capacity.Type,
				},
			}},
		},
	},
}

// ofFleet reports whether the job is sent to a cluster by a hub.
func (m model) ofFleet() bool { return !m.Fleet.IsNull() }

// fleet reads the attribute; known is false where it is unknown until apply.
func (m model) fleet(ctx context.Context) (f fleetModel, known bool, diags diag.Diagnostics) {
	if m.Fleet.IsUnknown() {
		return f, false, nil
	}
	diags = m.Fleet.As(ctx, &f, basetypes.ObjectAsOptions{})
	return f, !f.Policy.IsUnknown(), diags
}

// fillClusters gives clusters of a plan that are unknown until apply the value that they have then: all of a cluster is write-only, and
// Terraform takes no unknown object for one that has no such value.
func (m *model) fillClusters(ctx context.Context) (filled bool) {
	clusters, ok := m.Fleet.Attributes()["clusters"].(types.Map)
	if !ok || clusters.IsUnknown() {
		return false
	}
	all := map[string]attr.Value{}
	for name, element := range clusters.Elements() {
		if element.IsUnknown() {
			element, filled = types.ObjectValueMust(fleetClusterType.AttrTypes, map[string]attr.Value{"pools": types.ListNull(capacity.Type)}), true
		}
		all[name] = element
	}
	if !filled {
		return false
	}
	fleet := maps.Clone(m.Fleet.Attributes())
	fleet["clusters"] = types.MapValueMust(fleetClusterType, all)
	m.Fleet = types.ObjectValueMust(m.Fleet.AttributeTypes(ctx), fleet)
	return true
}

var fleetClusterType = types.ObjectType{AttrTypes: map[string]attr.Type{"pools": types.ListType{ElemType: capacity.Type}}}

// fleetOffer is what the clusters of a job of a fleet offer, by the configuration.
func (m model) fleetOffer(ctx context.Context) (o offer, diags diag.Diagnostics) {
	f, known, diags := m.fleet(ctx)
	o = offer{known: known && !f.Clusters.IsUnknown(), names: types.ListUnknown(types.StringType), clusters: map[string][]capacity.Capacity{}}
	if diags.HasError() || f.Clusters.IsUnknown() || m.Fleet.IsUnknown() {
		return o, diags
	}
	unnamed := false
	var clusters map[string]types.Object
	if diags.Append(f.Clusters.ElementsAs(ctx, &clusters, false)...); diags.HasError() {
		return o, diags
	}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		var c fleetClusterModel
		if clusters[name].IsUnknown() {
			o.known, unnamed = false, true
			continue
		}
		if diags.Append(clusters[name].As(ctx, &c, basetypes.ObjectAsOptions{})...); diags.HasError() {
			return o, diags
		}
		if c.Pools.IsNull() {
			continue
		}
		pools, poolsKnown, more := capacity.List(ctx, c.Pools)
		for _, d := range more {
			diags.Append(diag.WithPath(path.Root("fleet").AtName("clusters").AtMapKey(name).AtName("pools"), d))
		}
		o.known = o.known && poolsKnown
		o.pools, o.clusters[name] = append(o.pools, pools...), pools
		if names, ok := capacity.Pools(c.Pools); ok && !poolsKnown {
			for _, pool := range names {
				o.pools = append(o.pools, capacity.Capacity{Pool: pool})
			}
		} else if !poolsKnown {
			unnamed = true
		}
	}
	o.names = poolNames(types.ListNull(types.StringType), o.pools, !unnamed)
	if unnamed {
		o.names = types.ListUnknown(types.StringType)
	}
	return o, diags
}

// inFleet tells the fleet of a job what becomes of it.
func (r *trainingJob) inFleet(m model, of func(*fleetplan.Fleet, string)) {
	if !m.ofFleet() {
		return
	}
	if fleet, err := r.Session.Fleet(); err == nil {
		of(fleet, id(m).ValueString())
	}
}

// leavesFleet reports whether a plan takes the job of a state out of its fleet, which needs another job: the hub goes on to send the one
// that is there.
func (m model) leavesFleet(state model) bool { return state.ofFleet() && !m.ofFleet() }

// copyOfHub refuses a job that a hub has sent to this cluster, and brings back when it is deleted here.
func copyOfHub(live *unstructured.Unstructured) error {
	if !fleet.Managed(live) {
		return nil
	}
	return fmt.Errorf("%s %s/%s was sent to this cluster by the hub of a fleet, which brings it back when it is deleted here: "+
		"configure the provider of the job for the hub, where it can be changed and destroyed, or give the job here another name", live.GetKind(), live.GetNamespace(), live.GetName())
}

// keepInFleet tells the fleet of a job that it goes on, and where it is to go if it has no cluster yet.
func (r *trainingJob) keepInFleet(ctx context.Context, state model, spec job.Spec) {
	if !state.ofFleet() {
		return
	}
	fleet, err := r.Session.Fleet()
	if err != nil {
		return
	}
	var diags diag.Diagnostics // the state was read before
	place := fleetplan.PlaceOf(state.PlannedCluster.ValueString(), placementOf(ctx, state.PlannedPlacement, &diags))
	if place == nil || finished(state) || !state.Cluster.IsNull() || r.Session.Ledger.Applying() {
		fleet.Keep(spec.ID())
		return
	}
	policy, _, err := r.policyOf(ctx, state)
	var j fleetplan.Job
	if err == nil {
		j, err = r.checker(state, spec).fleetJob(policy)
	}
	if err != nil {
		fleet.Keep(spec.ID())
		return
	}
	fleet.Expect(ctx, j, place)
}

// checkFleet refuses what a job of a fleet cannot have.
func (m model) checkFleet(spec job.Spec) (diags diag.Diagnostics) {
	if !known.Set(m.Fleet) { // it may be for no fleet: who knows it looks again
		return nil
	}
	refuse := func(attribute, why string) {
		diags.AddAttributeError(path.Root(attribute), "Not for jobs of a fleet", fmt.Sprintf("%s is not for jobs with fleet: %s.", attribute, why))
	}
	for _, wrong := range []struct {
		is             bool
		attribute, why string
	}{
		{known.Set(m.Pools), "pools", "name the pools by cluster, as in fleet = { clusters = { NAME = { pools = […] } } }"},
		{m.AllowPreemption.ValueBool(), "allow_preemption", "the scheduler of a fleet evicts nobody"},
		{m.Suspend.ValueBool(), "suspend", "the hub would send the suspended job to a cluster; a policy with suspension.scheduling holds jobs on the hub"},
		{m.Queue.ValueBool(), "queue", "a policy with suspension.scheduling has its jobs wait in the queue of the hub"},
		{known.Set(m.TTLSecondsAfterFinished), "ttl_seconds_after_finished", "the hub makes a job again that is deleted in its cluster, where it would run once more"},
		{m.ArenaCompatible.ValueBool(), "arena_compatible", "arena would look for it in the member cluster"},
		{known.Set(m.TensorBoard), "tensorboard", "it would be made on the hub, which runs no pods"},
		{spec.Framework == job.TrainJob, "framework", "a TrainJob has its pods in a TrainingRuntime, which no policy sends along; with framework = \"jobset\" the same roles run in a fleet"},
		{!spec.Gang && !m.Gang.IsUnknown(), "gang", "the scheduler of a fleet sends gangs"},
	} {
		if wrong.is {
			refuse(wrong.attribute, wrong.why)
		}
	}
	return diags
}

// fleetJob is the job as the fleet plans it.
func (c checker) fleetJob(policy *fleetplan.Policy) (j fleetplan.Job, err error) {
	spec := c.spec
	spec.Planned = ""
	object, err := spec.Render()
	if err != nil {
		return j, err
	}
	j = fleetplan.Job{ID: spec.ID(), Kind: object.GroupVersionKind(), Labels: object.GetLabels(), Policy: policy, Immediate: c.requireImmediate}
	if j.Gang, err = spec.PlannerGang(nil); err != nil {
		return j, err
	}
	if j.Pods, err = job.Expected(object); err != nil {
		return j, err
	}
	if !policy.Has(j.Kind, spec.Name, object.GetLabels()) {
		return j, fmt.Errorf("policy %s does not select %s %s: add it to its resource_selectors, or name another policy", policy.Name, j.Kind.Kind, j.ID)
	}
	return j, nil
}

// policyOf finds the policy of a job of a fleet. ours reports whether our scheduler sends its jobs to clusters.
func (r *trainingJob) policyOf(ctx context.Context, m model) (policy *fleetplan.Policy, ours bool, err error) {
	f, _, diags := m.fleet(ctx)
	if diags.HasError() {
		return nil, false, errors.New(diags[0].Detail())
	}
	fleet, err := r.Session.Fleet()
	if err != nil {
		return nil, false, err
	}
	policy, err = fleet.Policy(ctx, m.Namespace.ValueString(), f.Policy.ValueString())
	switch {
	case kube.IsNotFound(err):
		return nil, false, fmt.Errorf("the hub has no policy %s/%s: name one that it has, or refer to the resource that makes it, as in policy = gpuplan_propagation_policy.NAME.name",
			m.Namespace.ValueString(), f.Policy.ValueString())
	case err != nil:
		return nil, false, err
	}
	return policy, policy.Scheduler == contract.FleetSchedulerName, nil
}

// checkPolicy refuses another policy for a job that goes on, which it cannot have.
func (r *trainingJob) checkPolicy(ctx context.Context, m, state model, spec job.Spec) (diags diag.Diagnostics) {
	if !known.Set(m.Fleet) || !state.ofFleet() || r.Session.Ledger.Applying() {
		return nil
	}
	wanted, _, diags := m.fleet(ctx)
	before, _, more := state.fleet(ctx)
	if diags.Append(more...); diags.HasError() || wanted.Policy.Equal(before.Policy) || wanted.Policy.IsUnknown() {
		return diags
	}
	policy, _, err := r.policyOf(ctx, m)
	if err == nil {
		_, err = r.checker(m, spec).fleetJob(policy)
	}
	if err != nil && !errors.Is(err, fleetplan.ErrPolicyOpen) {
		diags.AddAttributeError(path.Root("fleet").AtName("policy"), "Policy cannot be used", session.Sentence(err))
	}
	return diags
}

// placeInFleet is place for a job of a fleet, of which on is what its clusters offer.
func (r *trainingJob) placeInFleet(ctx context.Context, m *model, after types.List, on offer) (diags diag.Diagnostics) {
	m.PlannedCluster = types.StringUnknown()
	spec, unknown, diags := m.spec(ctx)
	if diags.HasError() {
		return diags
	}
	c := r.checker(*m, spec)
	before, known, afterDiags := c.before(after)
	if diags.Append(afterDiags...); diags.HasError() {
		return diags
	}
	if !on.known {
		unknown = append(unknown, "fleet")
	}
	if !known {
		unknown = append(unknown, "after")
	}
	fleet, err := r.Session.Fleet()
	if err != nil {
		if !r.Session.NotChecked(err, &diags) {
			diags.AddError("Placement cannot be checked", session.Sentence(err))
		}
		return diags
	}
	later := func(why string) diag.Diagnostics {
		fleet.Keep(spec.ID())
		if c.level != session.CheckOff {
			diags.AddAttributeWarning(path.Root("fleet"), "Placement is not checked", fmt.Sprintf("Whether the job fits in its fleet is not checked: %s.", why))
		}
		return diags
	}
	if len(unknown) > 0 {
		return later(are(unknown) + " unknown until apply")
	}
	policy, ours, err := r.policyOf(ctx, *m)
	if errors.Is(err, fleetplan.ErrPolicyOpen) {
		return later("some of its policy is unknown until apply")
	}
	var j fleetplan.Job
	if err == nil {
		j, err = c.fleetJob(policy)
	}
	if err != nil {
		diags.AddAttributeError(path.Root("fleet").AtName("policy"), "Policy cannot be used", session.Sentence(err))
		return diags
	}
	gone := r.Session.Ledger.Vacated(spec.ID(), before)
	if old := r.Session.Ledger.Replaced(spec.ID()); old != "" {
		fleet.Leave(old)
	}
	j.After, j.Given = before, map[string]fleetplan.Given{}
	for name, pools := range on.clusters {
		var given fleetplan.Given
		for _, pool := range pools {
			nodes, occupants, err := pool.Without(gone...).Planner()
			if err != nil {
				diags.AddAttributeError(path.Root("fleet").AtName("clusters").AtMapKey(name), "Capacity cannot be used", session.Sentence(err))
				return diags
			}
			given.Nodes, given.Occupants = append(given.Nodes, nodes...), append(given.Occupants, occupants...)
		}
		j.Given[name] = given
	}
	answer, err := fleet.Plan(ctx, j)
	if errors.Is(err, kube.ErrNotServed) {
		err = fleetplan.ErrNoHub
	}
	if err != nil {
		diags.AddError("Placement cannot be checked", session.Sentence(err))
		return diags
	}
	if c.level != session.CheckOff {
		diags.Append(c.fleetFindings(answer.Findings)...)
		diags.Append(c.hubQueue(ctx, fleet, j)...)
	}
	if !ours {
		if c.level != session.CheckOff && !r.Session.Ledger.Applying() {
			diags.AddAttributeWarning(path.Root("fleet").AtName("policy"), "Another scheduler sends the job to its cluster", fmt.Sprintf(
				"Policy %s has its jobs sent to clusters by %s, not by %s: the plan says whether the fleet has a place, and promises none.", policy.Name, schedulerOf(policy), contract.FleetSchedulerName))
		}
		m.setPlanned(nil)
	} else if r.Session.Ledger.Applying() && answer.Place != nil || answer.Promised {
		m.setPlanned(answer.Place.Members)
		m.PlannedCluster = types.StringValue(answer.Place.Cluster)
		if !r.Session.Ledger.Applying() {
			diags.Append(c.partly(answer.Place.Count())...)
			diags.Append(c.apart(answer.Place.Members)...)
		}
	}
	m.Placed = placed(m.ID, fleet.Mark(spec.ID()))
	return diags
}

// hubQueue says what the queue of the hub has against a job, as far as the plan can look.
func (c checker) hubQueue(ctx context.Context, fleet *fleetplan.Fleet, j fleetplan.Job) (diags diag.Diagnostics) {
	if c.session.Ledger.Applying() {
		return nil // the plan has said it
	}
	tree := c.session.Ledger.Tree()
	if tree == nil {
		snapshot, err := c.session.Snapshot(ctx)
		if err == nil {
			tree, err = snapshot.Quota()
		}
		if err != nil {
			return nil // who reads the tree says so
		}
	}
	gang, err := c.spec.PlannerGang(tree)
	if err != nil {
		return nil // said already
	}
	j.Gang = gang
	found, err := fleet.Queue(ctx, j, tree)
	if err != nil {
		diags.AddWarning("The queue of the hub was not looked at", session.Sentence(err))
	}
	return append(diags, c.fleetFindings(found)...)
}

func schedulerOf(policy *fleetplan.Policy) string {
	if policy.Scheduler == "" {
		return "the scheduler of the hub"
	}
	return policy.Scheduler
}

// fleetFindings say what the fleet has found, at the attributes of the job.
func (c checker) fleetFindings(found []fleetplan.Finding) (diags diag.Diagnostics) {
	for _, f := range found {
		at := c.at()
		if f.Pools {
			at = path.Root("fleet").AtName("clusters")
		}
		if f.Error && c.level == session.CheckError {
			diags.AddAttributeError(at, f.Summary, f.Detail)
		} else {
			diags.AddAttributeWarning(at, f.Summary, f.Detail)
		}
	}
	return diags
}

// placeNow makes sure, before a job of a fleet starts, that it gets the place that its plan has promised, or finds it one now.
func (r *trainingJob) placeNow(ctx context.Context, m *model, spec job.Spec) (diags diag.Diagnostics) {
	c := r.checker(*m, spec)
	promised := len(m.PlannedPlacement.Elements()) > 0
	fleet, err := r.Session.Fleet()
	var policy *fleetplan.Policy
	var j fleetplan.Job
	ours := false
	if err == nil {
		policy, ours, err = r.policyOf(ctx, *m)
	}
	if err == nil {
		j, err = c.fleetJob(policy)
	}
	if err != nil {
		diags.AddAttributeError(path.Root("fleet").AtName("policy"), "Job was not created", session.Sentence(err))
		return diags
	}
	place := fleetplan.PlaceOf(m.PlannedCluster.ValueString(), placementOf(ctx, m.PlannedPlacement, &diags))
	answer, err := fleet.Now(ctx, j, place)
	for begun := time.Now(); err == nil && answer.Arriving && !answer.Promised && time.Since(begun) < arriving && ctx.Err() == nil; {
		time.Sleep(time.Second)
		answer, err = fleet.Now(ctx, j, place)
	}
	if err != nil {
		diags.AddWarning("Planned placement is not confirmed", session.Sentence(err))
		return diags
	}
	for _, d := range c.fleetFindings(answer.Findings) {
		if d.Severity() == diag.SeverityError {
			d = diag.NewErrorDiagnostic("Job was not started", d.Detail()+" Plan again.")
		}
		if c.level != session.CheckOff {
			diags.Append(d)
		}
	}
	if promised || diags.HasError() {
		return diags
	}
	m.setPlanned(nil)
	if answer.Actual != nil && ours {
		m.setPlanned(answer.Actual.Members)
		m.PlannedCluster = types.StringValue(answer.Actual.Cluster)
	}
	return diags
}

// mark is [ledger.Ledger.Mark], also of jobs of a fleet.
func (c checker) mark(id string) string {
	if fleet, err := c.session.Fleet(); err == nil && fleet.Knows(id) {
		return fleet.Mark(id)
	}
	return c.session.Ledger.Mark(id)
}
