package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// limits hold unless the user sets others.
var limits = lifecycle.Limits{Create: 20 * time.Minute, Update: 20 * time.Minute, Delete: 10 * time.Minute}

// add submits the job and waits as wait_for says. A job that was submitted is in
// the state whatever becomes of the wait.
func (r *trainingJob) add(ctx context.Context, of tfsdk.State, m *model) (exists bool, diags diag.Diagnostics) {
	spec, _, diags := m.spec(ctx)
	spec.Owner = r.Session.Owner
	if diags.HasError() {
		return false, diags
	}
	client, err := r.Session.Kube()
	if err == nil {
		err = awaitServed(ctx, client, spec.Framework)
	}
	if err == nil && spec.Queue {
		err = needQueue(ctx, client)
	}
	if err != nil {
		diags.AddError("Job was not created", session.Sentence(err))
		return false, diags
	}
	m.ID = id(*m)
	defer func() {
		if !exists {
			r.Session.Ledger.Withdraw(spec.ID())
		}
	}()
	left := r.left(ctx, client, *m, of, spec)
	promised := spec.Suspend || len(m.PlannedPlacement.Elements()) > 0
	switch {
	case left == nil && m.ofFleet():
		diags.Append(r.placeNow(ctx, m, spec)...)
	case promised:
	case left == nil:
		diags.Append(r.planOnCluster(ctx, client, m, spec)...)
	case m.PlannedPlacement.IsUnknown():
		diags.Append(m.takePlanned(left)...)
	}
	if diags.HasError() {
		return false, diags
	}
	if diags.Append(m.carry(ctx, &spec)...); diags.HasError() {
		return false, diags
	}
	var stale diag.Diagnostics
	if promised && left == nil && !m.ofFleet() {
		stale = r.confirm(ctx, client, *m, spec)
	}
	if diags.Append(stale...); diags.HasError() {
		return false, diags
	}
	if left == nil && !m.ofFleet() {
		if diags.Append(r.checkGang(ctx, *m, spec)...); diags.HasError() {
			return false, diags
		}
		diags.Append(r.sayMissing(ctx, client, *m, spec)...)
	}
	notes, err := m.notes(ctx, of, spec)
	var obj *unstructured.Unstructured
	goesOn := false
	if err == nil {
		obj, goesOn, err = r.begin(ctx, client, *m, of, spec, notes)
	}
	if err != nil {
		diags.AddError("Job was not created", session.Sentence(err))
		return false, diags
	}
	m.kept.UIDs, spec.Version = lifecycle.UIDsOf(obj), job.VersionOf(obj)
	if goesOn {
		diags.AddWarning("Job was there already", fmt.Sprintf(
			"Job %s of this configuration exists, and is what it should be, so it goes on; it was not run again.", spec.ID()))
	}
	return true, append(diags, r.follow(ctx, client, m, spec, obj, len(stale) == 0)...)
}

// operatorMissing says what a cluster lacks that does not serve the framework's kind.
func operatorMissing(ctx context.Context, client *kube.Client, framework job.Framework) error {
	gvk := framework.GVK()
	if version, served, err := client.Served(ctx, gvk.Group, gvk.Kind); err == nil && served {
		return fmt.Errorf("the cluster serves %s in version %s of %s, and this provider writes %s: install %s",
			gvk.Kind, version, gvk.Group, gvk.Version, framework.Runner())
	}
	return fmt.Errorf("the cluster serves no %s: install %s", gvk.Kind, framework.Runner())
}

// awaitServed waits until the server serves the framework's kinds, whose CRDs the same apply may have created a moment
// ago. Without CRDs it does not wait.
func awaitServed(ctx context.Context, client *kube.Client, framework job.Framework) error {
	for _, resource := range framework.Resources() {
		if err := client.AwaitServed(ctx, resource); err != nil {
			return err
		}
	}
	return nil
}

// needQueue refuses to queue a job where nobody would ever let it start.
func needQueue(ctx context.Context, client *kube.Client) error {
	_, served, err := client.Served(ctx, contract.QueueGroup, contract.QueueUnitKind)
	if err == nil && !served {
		err = errors.New("the cluster has no job queue: install gpuplan_scheduler and name it in depends_on, or leave queue out")
	}
	return err
}

// submit writes the job's object, with annotations for a later import. live is the job as
// it is, nil for a new one.
func submit(ctx context.Context, client *kube.Client, spec job.Spec, live *unstructured.Unstructured, notes map[string]string) (*unstructured.Unstructured, error) {
	obj, takes, err := described(spec, live, notes)
	if err != nil {
		return nil, err
	}
	submitted, err := write(ctx, client, spec, obj, live, takes)
	if err != nil {
		return nil, err
	}
	tflog.Info(ctx, "submitted the job", map[string]any{"job": spec.ID(), "kind": obj.GetKind()})
	return submitted, nil
}

// described is the job's object as it is to be written, with the fields that are taken from other managers.
func described(spec job.Spec, live *unstructured.Unstructured, notes map[string]string) (obj *unstructured.Unstructured, takes []kube.Field, err error) {
	if live != nil {
		spec.Version = job.VersionOf(live)
	}
	if err := faults(spec); err != nil {
		return nil, nil, err
	}
	if obj, err = spec.Render(); err != nil {
		return nil, nil, err
	}
	if live != nil {
		obj.SetUID(live.GetUID()) // one that is gone by now is not created again
		hold := spec.Suspend
		if spec.Queue || job.Queued(live) {
			hold = job.Held(live) // whether it runs now is for the queue to say
		} else {
			takes = append(takes, job.HoldField(live))
		}
		if err := job.Keep(obj, live); err != nil {
			return nil, nil, err
		}
		if hold != job.Held(obj) || hold != job.Held(live) {
			if err := job.Hold(obj, hold); err != nil {
				return nil, nil, fmt.Errorf("render job %s: %w", spec.ID(), err)
			}
		}
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, notes)
	obj.SetAnnotations(annotations)
	return obj, takes, nil
}

// planOnCluster fills in the planned placement of a job that had none at plan: where the
// planner would put it now. A job that must wait has none. One that a plan which knew all of it would have
// refused is refused, and so is one for which others would be evicted when nobody has agreed to that: the plan
// has not seen them.
func (r *trainingJob) planOnCluster(ctx context.Context, client *kube.Client, m *model, spec job.Spec) (diags diag.Diagnostics) {
	c := r.checker(*m, spec)
	c.admission = r.admission(ctx, client, spec)
	plan := func(v *snapshot.View, g placement.Gang) placement.Result {
		if result := planner.Plan(v, g); result.Placement != nil || !c.ours() {
			return result
		}
		return preemption.Plan(v, g)
	}
	at, err := r.prospect(ctx, c, plan, func(at prospect) bool {
		return !c.promised() || at.Beside.Placement != nil && len(at.Beside.Victims) == 0
	})
	switch {
	case err == nil:
	case !c.promised(): // there is nothing that a plan has said of its place
		m.setPlanned(nil)
		return nil
	case c.level == session.CheckOff:
		diags.AddWarning("Planned placement is not known", session.Sentence(err))
		m.setPlanned(nil)
		return diags
	default:
		diags.AddError("Job was not started", session.Sentence(err))
		return diags
	}
	if at.barred != "" {
		m.setPlanned(nil)
		return r.invalidQuota(c, at)
	}
	since := fmt.Sprintf("The plan did not see whom job %s may evict, or what it needs was taken since. ", spec.ID())
	if c.allowPreemption {
		since = fmt.Sprintf("Job %s has no free place now; the plan has named those that it saw leave for it. ", spec.ID())
	}
	if at.added != "" {
		since += at.added + " "
	}
	if diags.Append(r.evictions(ctx, client, c, at, since)...); diags.HasError() {
		return diags
	}
	result := at.Beside
	if result.Placement == nil && c.level != session.CheckOff {
		diags.Append(r.unplaced(c, at, plan))
	}
	if result.Placement == nil || !c.promised() {
		m.setPlanned(nil)
		return diags
	}
	assignments := assignmentsOf(*result.Placement, nodesIn(at.view))
	m.setPlanned(assignments)
	diags.Append(c.partly(len(result.Placement.Assignments))...)
	return append(diags, c.apart(assignments)...)
}

// invalidQuota says of a job that the cluster's quota tree keeps it from starting, which is not valid. One of this configuration the
// same apply may repair yet.
func (r *trainingJob) invalidQuota(c checker, at prospect) (diags diag.Diagnostics) {
	if c.level != session.CheckOff {
		f := ledger.InvalidQuota(c.spec.ID(), at.barred)
		f.Error = c.level == session.CheckError && !r.Session.Owns(at.snapshot.QuotaTree.GetLabels())
		diags.Append(c.finding(f))
	}
	return diags
}

// unplaced says of a job that has no place now whether it waits for one, which is a warning, or is what a plan refuses.
// The pools that it names are as they will be. What others of the same apply can change yet makes it wait: jobs of this
// configuration, the quota tree, and for a job that names no pools, any pool.
func (r *trainingJob) unplaced(c checker, at prospect, plan func(*snapshot.View, placement.Gang) placement.Result) diag.Diagnostic {
	id, verdict := c.spec.ID(), at.Beside.Verdict
	unsettled := unsettled(at.snapshot.Nodes, at.view)
	settled := r.Session.Ledger.Settled(id, func(n placement.Node) bool {
		known, exists := at.view.Node(n.Name)
		return unsettled(n.Name, n.GPUs != nil) || exists && known.GPUs == nil && n.GPUs != nil
	})
	if settled && at.Alone.Placement == nil && plan(r.emptied(c, at), at.gang).Placement == nil {
		if f := r.Session.Ledger.Misfit(id, verdict); f.Error {
			f.Detail = strings.TrimSpace(f.Detail + " " + at.added)
			return c.finding(f)
		}
	}
	return diag.NewAttributeWarningDiagnostic(path.Root("planned_placement"), "Job will wait",
		strings.TrimSpace(fmt.Sprintf("Job %s does not fit now. %s %s", id, verdict, at.added)))
}

// emptied is the cluster without what may leave by itself or by this apply: pods that are being deleted, jobs of this
// configuration, what waits, and quota; for a job of the queue, which waits for them, also those that use quota.
func (r *trainingJob) emptied(c checker, at prospect) *snapshot.View {
	view := r.withoutOwn(at)
	for _, node := range view.Nodes() {
		for _, p := range view.Pods(node) {
			if p.Leaving || slices.Contains(at.Pending, p.Gang) || c.spec.Queue && p.Leaf != "" {
				view.RemovePod(p.ID)
			}
		}
	}
	view.DropReservations(func(*snapshot.Reserved) bool { return true })
	view.SetQuota(nil)
	return view
}
