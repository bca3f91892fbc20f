package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// checker checks one job at plan.
type checker struct {
	session                           *session.Session
	spec                              job.Spec
	level                             session.Check
	requireImmediate, allowPreemption bool
	unawaited                         bool
	// impeded says what of the pools cannot be used, or only in another mode, "" for nothing.
	impeded string
	// admission is what the cluster makes of the job's pods, as far as it is known.
	admission job.Admission
	// draws are what the job takes of its namespace.
	draws []preflight.Draw
}

func (r *trainingJob) checker(m model, spec job.Spec) checker {
	c := checker{
		session: r.Session, spec: spec, level: r.Session.PlacementCheck,
		requireImmediate: m.RequireImmediate.ValueBool(), allowPreemption: m.AllowPreemption.ValueBool(),
		unawaited: m.WaitFor.ValueString() == waitNone,
	}
	if known.Set(m.PlacementCheck) {
		c.level = session.Check(m.PlacementCheck.ValueString())
	}
	return c
}

// promised reports whether the scheduler keeps to a planned placement of this job.
func (c checker) promised() bool { return c.spec.Gang && c.ours() }

// ours reports whether our scheduler places the job.
func (c checker) ours() bool { return c.spec.SchedulerName == contract.SchedulerName }

// lastVisit is how long no visit of Terraform comes before a plan takes it that none will, of the jobs that it needs to
// leave. Visits follow each other within milliseconds; one that reads from a slow API server takes a second.
const lastVisit = 2 * time.Second

// plan places the job on the capacity that it was given, and checks it there and on the
// cluster. The assignments depend on that capacity and on the jobs named in after alone; nil
// means that they are known after apply.
func (c checker) plan(ctx context.Context, pools []capacity.Capacity, after []string) (assignments []assignment.Model, diags diag.Diagnostics) {
	snapshot, diags := c.observe(ctx)
	planned := ledger.Job{
		After: after, Pools: c.spec.Pools, RequireImmediate: c.requireImmediate, Unawaited: c.unawaited,
		MayPreempt: c.ours(), AllowPreemption: c.allowPreemption, Check: strictness[c.level],
		Queued: c.spec.Queue,
	}
	for _, d := range c.draws {
		planned.Draws = append(planned.Draws, ledger.Draw(d))
	}
	if len(pools) == 0 {
		planned.Pools = nil // nobody has said what they offer: the cluster does
	}
	var err error
	if planned.Gang, err = c.gang(snapshot, nil); err != nil {
		diags.AddError("Placement cannot be planned", session.Sentence(err))
		return nil, diags
	}
	for _, pool := range pools {
		nodes, occupants, err := pool.Planner()
		if err != nil {
			diags.AddAttributeError(path.Root("pools"), "Capacity cannot be used", session.Sentence(err))
			return nil, diags
		}
		planned.Nodes, planned.Occupants = append(planned.Nodes, nodes...), append(planned.Occupants, occupants...)
	}
	var delegated placement.Delegated
	if snapshot != nil {
		if diags.Append(c.elsewhere(pools, snapshot.Nodes)...); diags.HasError() {
			return nil, diags
		}
		delegated = snapshot.Delegate(planned.Nodes)
	}
	planned.Admitted, planned.Added = c.admitted(snapshot, planned.Gang, nil, planned.Nodes)
	if planned.Admitted != nil {
		diags.Append(uncounted(c.spec.ID(), *planned.Admitted, delegated)...)
	} else {
		diags.Append(uncounted(c.spec.ID(), planned.Gang, delegated)...)
	}
	result, findings := c.session.Ledger.PlanJob(planned)
	c.impeded = capacity.Impeded(pools, result.Verdict.Reasons) + capacity.OtherMode(pools, string(c.spec.Mode), result.Verdict)
	for _, f := range findings {
		if f.Kind != ledger.Elsewhere || c.promised() {
			diags.Append(c.finding(f))
		}
	}
	for _, f := range c.session.Ledger.Await(ctx, c.spec.ID(), lastVisit) {
		diags.Append(c.finding(f))
	}
	if !c.session.Ledger.Promised(c.spec.ID()) {
		return nil, diags
	}
	if !c.session.Ledger.Applying() {
		diags.Append(c.partly(len(result.Placement.Assignments))...)
	}
	assignments = assignmentsOf(*result.Placement, planned.Nodes)
	if !c.session.Ledger.Applying() {
		diags.Append(c.apart(assignments)...)
	}
	return assignments, diags
}

// elsewhere refuses pools of another cluster than the job's, as far as their nodes exist.
func (c checker) elsewhere(pools []capacity.Capacity, nodes []corev1.Node) (diags diag.Diagnostics) {
	for _, pool := range pools {
		if pool.Elsewhere(c.session.ClusterID, nodes) {
			diags.Append(session.Preflight(preflight.Finding{Attribute: "pools", Summary: "Pool of another cluster", Detail: fmt.Sprintf(
				"Job %s can use no nodes of pool %s: the cluster of the job's provider configuration has none of them. "+
					"Give the job pools of its own cluster, or the provider configuration of theirs. If they were deleted just now, plan again, with a refresh.",
				c.spec.ID(), pool.Pool)}, c.level))
		}
	}
	return diags
}

// alike says what keeps another scheduler than ours from placing replicas by their links: ACK's own takes only
// those that all ask for the same.
func (c checker) alike(m model) (diags diag.Diagnostics) {
	if c.ours() || c.level == session.CheckOff || c.session.Ledger.Applying() {
		return nil
	}
	for _, p := range c.spec.Unlike() {
		detail := fmt.Sprintf("Job %s: %s. With mode %q the scheduler of ACK places only jobs whose replicas all ask for the same. Let them, or leave scheduler_name out: %s places others, too.",
			c.spec.ID(), p.Text, c.spec.Mode, contract.SchedulerName)
		diags.Append(session.Preflight(preflight.Finding{Summary: "Replicas are not alike", Detail: detail}, c.level))
		diags[len(diags)-1] = diag.WithPath(m.at(p), diags[len(diags)-1])
	}
	return diags
}

// apart says of members that are to share a node that NCCL cannot use the NVLink rings between them, which
// the placement counts on.
func (c checker) apart(assignments []assignment.Model) (diags diag.Diagnostics) {
	if c.level == session.CheckOff || c.spec.Mode != job.Topology || c.spec.SharesHost() {
		return nil
	}
	members := map[string]int{}
	for _, a := range assignments {
		members[a.Node]++
	}
	at := slices.IndexFunc(assignments, func(a assignment.Model) bool { return members[a.Node] > 1 && a.NVLinkRings > 0 })
	if at < 0 {
		return nil
	}
	var missing, advice []string
	for name, has := range map[string]bool{"host_ipc": c.spec.HostIPC, "host_network": c.spec.HostNetwork, "host_pid": c.spec.HostPID} {
		if !has {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		advice = append(advice, "set "+strings.Join(missing, ", ")+" to true")
	}
	if !c.spec.SharedMemory.IsZero() {
		missing = append(missing, "shared_memory")
		advice = append(advice, "leave shared_memory out, which hides the host's /dev/shm")
	}
	detail := fmt.Sprintf("%d members of job %s share node %s, and the placement counts on NVLink between their GPUs. NCCL uses it between pods only where they share the IPC, network and PID namespaces "+
		"of the host, and /dev/shm: %s.", members[assignments[at].Node], c.spec.ID(), assignments[at].Node, strings.Join(advice, ", and "))
	if c.spec.Framework == job.PyTorch {
		detail += " Two workers of a PyTorch job cannot share a node then; one replica with all the GPUs of a node, and a process for each of them, needs none of this."
	}
	diags.AddAttributeWarning(path.Root(missing[0]), "Members cannot use the NVLink between them", detail)
	return diags
}

// partly says of a gang that may run with a part of its members that only so many have room.
func (c checker) partly(have int) (diags diag.Diagnostics) {
	all := int(c.spec.Members()) - c.spec.Ended.Count()
	if c.level == session.CheckOff || have == all {
		return nil
	}
	diags.AddAttributeWarning(path.Root("gang"), "Not all members have room", fmt.Sprintf(
		"%d of %d members of job %s have room now; the others start when there is more.", have, all, c.spec.ID()))
	return diags
}

var strictness = map[session.Check]ledger.Check{
	session.CheckError: ledger.Refuse, session.CheckWarn: ledger.Warn, session.CheckOff: ledger.Ignore,
}

// observe shows the cluster to the ledger; the snapshot is nil where a plan cannot look.
func (c checker) observe(ctx context.Context) (snapshot *cluster.Snapshot, diags diag.Diagnostics) {
	if c.session.Ledger.Applying() {
		return nil, nil
	}
	snapshot, err := c.session.Snapshot(ctx)
	if c.session.NotChecked(err, &diags) {
		return nil, diags
	}
	if err != nil && c.level == session.CheckOff {
		diags.AddWarning("Preemption is not checked", session.Sentence(err))
		return nil, diags
	}
	if err != nil {
		text := session.Sentence(err)
		if apierrors.IsForbidden(err) {
			text += " A plan places jobs on what all of the cluster has: have the kubeconfig's user given this right, or set placement_check = \"off\"."
		}
		diags.AddError("Placement cannot be checked", text)
		return nil, diags
	}
	c.session.Ledger.Observe(func() ledger.Live { return snapshot.Live(c.session.Owns) })
	return snapshot, diags
}

// onCluster is what the planner sees in a snapshot: the cluster without what the job itself
// holds, which it gives back before it starts, and the job as admission makes it, with the
// priority and the quota that it has there. added is of [checker.admitted].
func (c checker) onCluster(snapshot *cluster.Snapshot) (view *snapshot.View, gang placement.Gang, added string, err error) {
	view = snapshot.ViewWithout(c.spec.ID())
	if gang, err = c.gang(snapshot, view.Quota()); err != nil {
		return nil, gang, "", err
	}
	snapshot.Reserve(view, gang.ID)
	if admitted, text := c.admitted(snapshot, gang, view.Quota(), nil); admitted != nil {
		return view, *admitted, text, nil
	}
	return view, gang, "", nil
}

// admitted is the job as admission makes it and with the nodes, planned ones too, that other pods and its
// volumes leave it, nil when that is what the configuration says or unknown. added says what they add, and what to
// do about it, in sentences.
func (c checker) admitted(snapshot *cluster.Snapshot, configured placement.Gang, tree *quota.Tree, planned []placement.Node) (gang *placement.Gang, added string) {
	var amid *inventory.Surroundings
	if snapshot != nil {
		amid = snapshot.Surroundings(c.session.Owns, planned)
	}
	if len(c.admission) == 0 && !amid.Concern(len(c.spec.Volumes) > 0) {
		return nil, ""
	}
	admitted, err := c.spec.AdmittedGang(tree, c.admission, amid)
	if err == nil && len(c.admission) == 0 {
		admitted.Priority, admitted.NeverPreempts = configured.Priority, configured.NeverPreempts
	}
	if err != nil || reflect.DeepEqual(admitted, configured) {
		return nil, ""
	}
	if sample, err := c.spec.Sample(); err == nil {
		if text := amid.Restricts(sample); text != "" {
			added = fmt.Sprintf("Pods of job %s cannot run on every node: %s. ", c.spec.ID(), text)
		}
	}
	return &admitted, strings.TrimSpace(added + c.additions())
}

// additions says what admission adds to the job's pods, as a sentence.
func (c checker) additions() string {
	text, attributes := c.admission.Added()
	if text == "" {
		return ""
	}
	advice := "Set the same in the job where it has an attribute for it, or change what adds it"
	if len(attributes) > 0 {
		advice = "Set " + strings.Join(attributes, " and ") + " in the role, so that it is planned with that"
	}
	return fmt.Sprintf("Job %s counts with what the API server's admission (a LimitRange default, a webhook, a policy) adds to its pods: %s. %s.", c.spec.ID(), text, advice)
}

// gang is the job as the planner sees it, with the priority that the cluster gives its pods.
func (c checker) gang(snapshot *cluster.Snapshot, tree *quota.Tree) (placement.Gang, error) {
	gang, err := c.spec.PlannerGang(tree)
	if err == nil && snapshot != nil {
		gang.Priority, gang.NeverPreempts, _ = snapshot.Priority(c.spec.PriorityClass)
	}
	return gang, err
}

func notServed(err error) bool { return errors.Is(err, kube.ErrNotServed) }

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

// finding reports what the ledger found, at the attribute of this job that it is about.
func (c checker) finding(f ledger.Finding) diag.Diagnostic {
	if len(f.Jobs) == 0 || f.Jobs[0] != c.spec.ID() {
		return session.Diagnostic(f)
	}
	if f.Kind == ledger.Misfit {
		f.Detail += c.impeded
	}
	d := session.Diagnostic(f)
	at := path.Root("pools")
	switch f.Kind {
	case ledger.NoSuchLeaf, ledger.ExceedsQuota, ledger.WaitsForQuota, ledger.Ungoverned, ledger.QuotaUnknown, ledger.QuotaInvalid:
		at = path.Root("quota")
	case ledger.NoTree:
		at = path.Root("queue")
	case ledger.Preempts:
		at = path.Root("allow_preemption")
	case ledger.Misfit, ledger.Overtaken, ledger.Elsewhere:
		at = c.at()
	case ledger.LateMisfit:
		at = path.Root("roles").AtMapKey(contract.ReplicaLauncher)
	}
	return diag.WithPath(at, d)
}
