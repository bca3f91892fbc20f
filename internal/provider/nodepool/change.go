package nodepool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// change is an update of a pool.
type change struct {
	before, after capacity.Pool
	from, to      model
}

func (c change) replaces() bool { return c.to.replaces(c.from) }

// replaces reports whether the pool of a state cannot become the one of the model, but only make room for it.
func (m model) replaces(state model) bool {
	return leaving(state.State.ValueString()) || len(m.Replaces(state.Values)) > 0 || !m.Name.Equal(state.Name) || !m.InstanceType.Equal(state.InstanceType) || m.Mode.IsUnknown() || mode.Replaces(state.Mode.ValueString(), m.Mode.ValueString())
}

// allowed tells whether the change may take nodes away from running jobs. A replacement
// deletes the pool that is in the state, and the apply asks that one.
func (c change) allowed() bool {
	if c.replaces() {
		return c.from.AllowDisruption.ValueBool()
	}
	return c.to.AllowDisruption.ValueBool()
}

// changesNodes tells whether the nodes will offer something else.
func (c change) changesNodes() bool {
	return !c.from.Size.Equal(c.to.Size) || c.relabels() || !slices.Equal(c.before.Fallbacks, c.after.Fallbacks) || len(c.replaced()) > 0
}

// relabels tells whether nodes that stay get other labels or taints.
func (c change) relabels() bool {
	return c.before.Mode != c.after.Mode || c.before.GPUPolicy != c.after.GPUPolicy ||
		!maps.Equal(c.before.Labels, c.after.Labels) || !slices.Equal(c.before.Taints, c.after.Taints)
}

// unset is what nodes of the pool that stay no longer have as it was: labels, by their keys, and taints.
func (c change) unset() (pool string, labels []string, taints []placement.Taint) {
	labels = changedKeys(wanted(c.before), wanted(c.after))
	for _, t := range c.before.Taints {
		if !slices.Contains(c.after.Taints, t) {
			taints = append(taints, placement.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	return c.after.Name, labels, taints
}

// changesPool tells whether the service has to be told anything.
func (c change) changesPool() bool {
	return c.changesNodes() || !c.from.VSwitchIDs.Equal(c.to.VSwitchIDs) || !c.from.Values.Equal(c.to.Values)
}

// differs names the attributes in which the pool becomes another, as far as that is known: what the
// user leaves out or empty stays.
func (c change) differs(ctx context.Context) (names []string) {
	for _, attribute := range []struct {
		name    string
		differs bool
	}{
		{"instance_type", c.before.InstanceType != c.after.InstanceType},
		{"fallback_instance_types", !slices.Equal(c.before.Fallbacks, c.after.Fallbacks)},
		{"size", !c.from.Size.Equal(c.to.Size)},
		{"mode", c.before.Mode != c.after.Mode},
		{"gpu_policy", c.before.GPUPolicy != c.after.GPUPolicy},
		{"labels", !maps.Equal(c.before.Labels, c.after.Labels)},
		{"taints", !slices.Equal(c.before.Taints, c.after.Taints)},
		{"vswitch_ids", known.Wholly(ctx, c.to.VSwitchIDs) && !c.to.VSwitchIDs.Equal(c.from.VSwitchIDs)},
	} {
		if attribute.differs {
			names = append(names, attribute.name)
		}
	}
	return append(names, c.to.Differ(c.from.Values)...)
}

// effect is one way in which a change takes nodes away from some of the pods on them.
type effect struct {
	at path.Path
	// text completes "The plan …".
	text string
	hits func(*corev1.Pod) bool
}

// effects lists what a change does to running jobs, the most drastic first. A pool that is being deleted takes its
// nodes away without it.
func (c change) effects() []effect {
	all := func(*corev1.Pod) bool { return true }
	pool := c.before.Name
	switch c.from.State.ValueString() {
	case acs.PoolDeleting:
		return nil
	case acs.PoolDeleteFailed:
		return []effect{{path.Root("state"), fmt.Sprintf("replaces node pool %s, whose deletion has failed", pool), all}}
	}
	for _, decides := range []struct {
		name  string
		value types.String
	}{{"name", c.to.Name}, {"instance_type", c.to.InstanceType}, {"mode", c.to.Mode}} {
		if decides.value.IsUnknown() {
			return []effect{{path.Root(decides.name), fmt.Sprintf("may replace node pool %s, since %s is unknown until apply", pool, decides.name), all}}
		}
	}
	switch {
	case c.before.Name != c.after.Name:
		return []effect{{path.Root("name"), fmt.Sprintf("replaces node pool %s", pool), all}}
	case c.before.InstanceType != c.after.InstanceType:
		return []effect{{path.Root("instance_type"), fmt.Sprintf("replaces node pool %s", pool), all}}
	}
	for _, name := range c.to.Replaces(c.from.Values) {
		return []effect{{path.Root(name), fmt.Sprintf("replaces node pool %s", pool), all}}
	}
	var effects []effect
	if c.before.Mode != c.after.Mode {
		verb := "switches"
		if c.replaces() {
			verb = "replaces"
		}
		effects = append(effects, effect{path.Root("mode"), fmt.Sprintf("%s node pool %s from mode %s to %s", verb, pool, c.before.Mode, c.after.Mode), all})
	}
	if from, to := c.from.Size.ValueInt64(), c.to.Size.ValueInt64(); to < from && len(c.leaving()) > 0 {
		names := c.leaving()
		effects = append(effects, effect{path.Root("remove_nodes"), fmt.Sprintf("shrinks node pool %s from %d to %s (%s)", pool, from, nodeCount(to), join(names)),
			func(p *corev1.Pod) bool { return slices.Contains(names, p.Spec.NodeName) }})
	} else if to < from && !c.to.Size.IsUnknown() {
		effects = append(effects, effect{path.Root("size"), fmt.Sprintf("shrinks node pool %s from %d to %s (the cloud chooses which ones go)", pool, from, nodeCount(to)), all})
	}
	if names := c.replaced(); len(names) > 0 {
		effects = append(effects, effect{path.Root("mode_change_policy"), fmt.Sprintf("replaces nodes of node pool %s that are of another mode (%s)", pool, join(names)),
			func(p *corev1.Pod) bool { return slices.Contains(names, p.Spec.NodeName) }})
	}
	if keys := changedKeys(wanted(c.before), wanted(c.after)); len(keys) > 0 {
		effects = append(effects, effect{path.Root("labels"), fmt.Sprintf("changes labels of node pool %s that jobs select their nodes by (%s)", pool, join(keys)), running.Selects(keys)})
	}
	if added := addedEvictions(c.before.Taints, c.after.Taints); len(added) > 0 {
		effects = append(effects, effect{path.Root("taints"), fmt.Sprintf("adds taints to node pool %s that evict jobs without a toleration", pool), evicted(added)})
	}
	return effects
}

// givesUp says how the change takes nodes away, whatever runs on them; "" when it takes none.
func (c change) givesUp() string {
	for _, e := range c.effects() {
		if !e.at.Equal(path.Root("labels")) && !e.at.Equal(path.Root("taints")) {
			return e.text
		}
	}
	return ""
}

// checkDisplaced refuses a change that takes nodes away from running jobs, unless these
// belong to this configuration and do not stay: that shows when Terraform visits them. A plan of
// one that is allowed names those jobs.
func (r *pool) checkDisplaced(ctx context.Context, c change) (diags diag.Diagnostics) {
	if c.allowed() && r.Session.Ledger.Applying() {
		return nil
	}
	displaced, diags := r.displaced(ctx, c)
	if c.allowed() {
		for _, s := range displaced {
			diags.AddAttributeWarning(s.at, "Running jobs may lose their nodes", fmt.Sprintf(
				"The plan %s, which allow_disruption permits. Jobs run there, of which those that stay may lose their nodes: %s.", s.text, running.Describe(s.pods)))
		}
		return diags
	}
	if what := c.givesUp(); what != "" {
		diags.Append(session.Diagnostics(r.shrink(ctx, c.before.Name, what))...)
	}
	for _, s := range displaced {
		diags.Append(r.refuseForeign(s.at, s.text, s.consent, s.pods, r.Session.Owns)...)
	}
	return diags
}

// refuseDisplaced refuses a change without consent while any job runs on the nodes that it takes, as an
// apply does: those of this configuration that leave have left by then.
func (r *pool) refuseDisplaced(ctx context.Context, c change) (diags diag.Diagnostics) {
	if c.allowed() {
		return nil
	}
	displaced, diags := r.displaced(ctx, c)
	for _, s := range displaced {
		diags.AddAttributeError(s.at, "Running jobs would lose their nodes", refusal(s.text, s.consent, s.pods))
	}
	return diags
}

// shrink tells the ledger that a pool gives up nodes, and shows it who waits for them.
func (r *pool) shrink(ctx context.Context, pool, what string) []ledger.Finding {
	if r.Session.Ledger.Applying() {
		return nil // it says nothing then
	}
	r.Session.ShowCluster(ctx)
	return r.Session.Ledger.ShrinkPool(pool, what)
}

// showOffer tells the ledger what a pool will offer that the plan adds or changes, since gangs that wait may take it.
func (r *pool) showOffer(ctx context.Context, plan model) diag.Diagnostics {
	if r.Session.Ledger.Applying() || !known.Wholly(ctx, plan.Capacity) {
		return nil
	}
	offer, diags := capacity.From(ctx, plan.Capacity)
	nodes, _, err := offer.Planner()
	if err != nil || diags.HasError() {
		return diags // it says so where a job is to run there
	}
	r.Session.ShowCluster(ctx)
	return append(diags, session.Diagnostics(r.Session.Ledger.PlanPool(offer.Pool, nodes))...)
}

// refuseForeign refuses to take nodes away from jobs of others, and tells the ledger about
// those of this configuration, which own knows by their labels.
func (r *pool) refuseForeign(at path.Path, what, consent string, pods []running.Pod, own func(labels map[string]string) bool) (diags diag.Diagnostics) {
	if foreign := running.Foreign(pods, own); len(foreign) > 0 {
		diags.AddAttributeError(at, "Running jobs would lose their nodes", refusal(what, consent, foreign))
	}
	diags.Append(session.Diagnostics(r.Session.Ledger.DisplaceJobs(what, consent, running.Owners(pods)))...)
	return diags
}

// displaced is an effect with the running pods that it hits, and how it is allowed all the same.
type displaced struct {
	effect
	pods    []running.Pod
	consent string
}

// displaced lists what a change takes from running jobs.
func (r *pool) displaced(ctx context.Context, c change) (list []displaced, diags diag.Diagnostics) {
	effects := c.effects()
	if len(effects) == 0 {
		return nil, nil
	}
	pods, diags := r.podsOn(ctx, c.from)
	for _, e := range effects {
		hit := slices.DeleteFunc(slices.Clone(pods), func(p running.Pod) bool { return !e.hits(p.Object) })
		if len(hit) > 0 {
			list = append(list, displaced{effect: e, pods: hit, consent: c.consent(e, pods)})
		}
	}
	return list, diags
}

// podsOn lists the pods of jobs on the pool's nodes, in an apply those that hold GPUs: a launcher
// may run anywhere, so nothing orders the end of its job before that of a pool.
func (r *pool) podsOn(ctx context.Context, state model) (pods []running.Pod, diags diag.Diagnostics) {
	snapshot, err := r.Session.Snapshot(ctx)
	if r.Session.NotChecked(err, &diags) {
		return nil, diags
	}
	if err != nil {
		diags.AddError("Running jobs cannot be listed", session.Sentence(err))
		return nil, diags
	}
	pods = running.On(running.Pods(snapshot.Pods), names(nodesOf(snapshot, state.NodePoolID.ValueString())))
	if r.Session.Ledger.Applying() {
		pods = slices.DeleteFunc(pods, func(p running.Pod) bool { return p.Request.Mode == placement.ModeNone })
	}
	return pods, diags
}

// checkReplaced looks at running jobs under a replacement that no attribute asks for, but
// whoever runs the plan: Terraform plans the pool as it is, and then a new one in its
// place, and shows no warning of that. Jobs of this configuration are warned of where they are planned.
func (r *pool) checkReplaced(ctx context.Context, record acs.NodePool) diag.Diagnostics {
	pods, diags := r.podsOn(ctx, model{NodePoolID: types.StringValue(record.Info.ID)})
	name := record.Info.Name
	what := "replaces node pool " + name
	if foreign := running.Foreign(pods, r.Session.Owns); len(foreign) > 0 {
		diags.AddAttributeError(path.Root("name"), "Running jobs would lose their nodes", refusal(what, consentBefore(record.Status.State), foreign))
	}
	findings := r.Session.Ledger.DisplaceJobsOnRequest(what, running.Owners(pods))
	for _, f := range append(findings, r.shrink(ctx, name, what)...) {
		if f.Kind == ledger.PoolTaken && !f.Error {
			f.Error = true
			f.Detail += " Terraform shows no warning about a pool that is replaced by -replace or replace_triggered_by, so that the plan fails instead."
		}
		diags.Append(session.Diagnostic(f))
	}
	return diags
}

// consentBefore is how a replacement or a deletion is allowed, which asks the pool in the Terraform state, of a pool in a
// state of the service. Where a deletion has failed every plan is a replacement, so that none can take consent before.
func consentBefore(state string) string {
	if leaving(state) {
		return "delete the node pool at the cloud, with force"
	}
	return "set allow_disruption = true and apply that before"
}

// consent is how the change is allowed, as [change.allowed] asks for it, or does no harm to pods that run on the pool.
func (c change) consent(e effect, pods []running.Pod) string {
	const allow = "set allow_disruption = true"
	if c.replaces() {
		return consentBefore(c.from.State.ValueString())
	}
	from, to := c.from.Size.ValueInt64(), c.to.Size.ValueInt64()
	if to >= from || !e.at.Equal(path.Root("size")) {
		return allow
	}
	idle := slices.DeleteFunc(texts(c.from.NodeNames.Elements()), func(node string) bool {
		return slices.ContainsFunc(pods, func(p running.Pod) bool { return p.Object.Spec.NodeName == node })
	})
	if len(idle) == 0 {
		return allow
	}
	idle = idle[:min(len(idle), int(from-to))]
	return fmt.Sprintf("let nodes go that run no jobs: size = %d, remove_nodes = [\"%s\"], or %s", from-int64(len(idle)), strings.Join(idle, `", "`), allow)
}

func refusal(what, consent string, pods []running.Pod) string {
	return fmt.Sprintf("The plan %s, and there are running jobs that would lose their nodes: %s. "+
		"Wait until they have finished, delete them first, or %s.", what, running.Describe(pods), consent)
}

// changedKeys returns the labels that a node has no more, or with another value.
func changedKeys(before, after map[string]string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if value, ok := after[key]; !ok || value != before[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// addedEvictions returns the new taints that evict pods.
func addedEvictions(before, after []capacity.Taint) []corev1.Taint {
	var added []corev1.Taint
	for _, t := range after {
		if t.Effect == string(corev1.TaintEffectNoExecute) && !slices.Contains(before, t) {
			added = append(added, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoExecute})
		}
	}
	return added
}

// evicted matches pods that do not tolerate one of the taints.
func evicted(taints []corev1.Taint) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		for i := range taints {
			tolerates := func(t corev1.Toleration) bool { // one with an end lets the pod be evicted later
				return t.TolerationSeconds == nil && t.ToleratesTaint(logr.Discard(), &taints[i], false)
			}
			if !slices.ContainsFunc(p.Spec.Tolerations, tolerates) {
				return true
			}
		}
		return false
	}
}

// describe lists the entries of drifted_nodes.
func describe(drifted types.Map) string {
	elements := drifted.Elements()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		if text, ok := elements[name].(types.String); ok {
			parts = append(parts, name+" ("+text.ValueString()+")")
		}
	}
	return join(parts)
}

func join(list []string) string { return strings.Join(list, ", ") }
