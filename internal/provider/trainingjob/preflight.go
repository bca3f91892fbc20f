package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// asked returns the client of a cluster that a plan can ask about a job, nil when it cannot.
func (r *trainingJob) asked(ctx context.Context, level session.Check) *kube.Client {
	if level == session.CheckOff || r.Session.Ledger.Applying() {
		return nil
	}
	client, err := r.Session.Kube()
	if err != nil {
		return nil // what looks at the cluster has said so
	}
	unreachable := (*kube.UnreachableError)(nil)
	if _, err := r.Session.Snapshot(ctx); errors.As(err, &unreachable) {
		return nil
	}
	return client
}

// preflightChange asks the cluster whether it would accept a change of the job in the state; starts is what it answers where
// that lets the job start.
func (r *trainingJob) preflightChange(ctx context.Context, m, state model, before, after job.Spec, starts preflight.Answer) (diags diag.Diagnostics) {
	level := r.checker(m, after).level
	client := r.asked(ctx, level)
	if client == nil {
		return nil
	}
	after.Owner = r.Session.Owner
	findings := preflight.JobChange(ctx, client, before, after)
	if live, err := find(ctx, client, after.Framework, after.Namespace, after.Name); err == nil && !state.kept.UIDs.Other(live) { // else who reads the job says so
		after.Version = job.VersionOf(live)
		findings = append(findings, changeFindings(ctx, client, state, live, before, after)...)
	}
	if state.resumes(before, after) {
		findings = slices.Concat(findings, r.gangAtPlan(ctx, after), preflight.Taken(ctx, client, after), admissionFindings(after, starts.Admission), starts.Findings(int(m.PlannedNodeCount.ValueInt64())))
	}
	for _, f := range findings {
		diags.Append(session.Preflight(f, level))
	}
	return diags
}

// changeFindings says what the version in which the job exists cannot express of a change, and
// whose change it undoes.
func changeFindings(ctx context.Context, client *kube.Client, state model, live *unstructured.Unstructured, before, after job.Spec) (findings []preflight.Finding) {
	if state.moves(before, after) {
		findings = heldFindings(live, before, after)
	}
	if fault := faults(after); fault != nil {
		findings = append(findings, preflight.Finding{Attribute: after.VersionFaults()[0].Field, Summary: "The job's version cannot say all of it", Detail: session.Sentence(fault) +
			" The job exists in that version and cannot change to this: undo the change, or delete the job and create another where the cluster serves the Kubeflow training operator's version."})
		return findings
	}
	obj, takes, err := described(after, live, nil)
	if err != nil {
		return findings // the apply says so
	}
	runtime, bare := job.Split(obj)
	if runtime != nil {
		err = client.TryApply(ctx, runtime)
	}
	if err == nil {
		err = client.TryApply(ctx, bare, takes...)
	}
	if job.MissesRuntime(err) {
		return findings // the apply writes it before
	}
	if owned := (*kube.ConflictError)(nil); errors.As(err, &owned) {
		mine := func(c kube.Conflict) bool {
			return c.Manager == contract.FieldManager || slices.ContainsFunc(takes, func(f kube.Field) bool { return f.String() == c.Field })
		}
		owned.Conflicts = slices.DeleteFunc(owned.Conflicts, mine)
		if _, written := differences(before, after); len(written) > 0 && len(owned.Conflicts) > 0 {
			findings = append(findings, preflight.Finding{Attribute: "framework", Summary: "Job was changed by someone else", Detail: session.Sentence(owned)})
		}
		return findings
	}
	return append(findings, preflight.Refusal(after, err)...)
}

// heldFindings says that someone else has suspended a job that the apply resumes, or the reverse.
func heldFindings(live *unstructured.Unstructured, before, after job.Spec) []preflight.Finding {
	managers := kube.Managers(live, job.HoldField(live))
	if before.Suspend == after.Suspend || len(managers) == 0 || slices.Contains(managers, contract.FieldManager) {
		return nil
	}
	who := strings.Join(managers, ", ")
	if after.Suspend {
		return []preflight.Finding{{Warning: true, Attribute: "suspend", Summary: "Job was resumed by someone else", Detail: fmt.Sprintf(
			"Someone else has let job %s run (field manager %s). This apply suspends it, which ends its pods; to let it run, leave suspend out.", after.ID(), who)}}
	}
	return []preflight.Finding{{Warning: true, Attribute: "suspend", Summary: "Job was suspended by someone else", Detail: fmt.Sprintf(
		"Someone else has suspended job %s (field manager %s). This apply lets it run again; to leave it as it is, set suspend = true.", after.ID(), who)}}
}

// question is a job that a plan has asked the cluster about.
type question struct {
	spec   job.Spec
	level  session.Check
	answer preflight.Answer
	// asked is false when nobody could ask; forArena means that the cluster serves what arena knows.
	asked, forArena bool
	// onHub is what the hub of a fleet and its clusters have answered.
	onHub []preflight.Finding
}

// ask asks the cluster whether it would let the job be created and its pods start.
func (r *trainingJob) ask(ctx context.Context, m model) (q question) {
	spec, unknown, specDiags := m.spec(ctx)
	if specDiags.HasError() || len(unknown) > 0 {
		return q
	}
	q.level = r.checker(m, spec).level
	if m.ofFleet() { // its pods start in another cluster
		if hub := r.asked(ctx, q.level); hub != nil && !m.Fleet.IsUnknown() {
			spec.Owner = r.Session.Owner
			if spec, _, err := inVersion(hub, sameUnknownImage(spec)); err == nil {
				q.onHub = append(preflight.OnHub(ctx, hub, spec), r.inMembers(ctx, m, hub, spec)...)
			}
		}
		return q
	}
	if q.level == session.CheckOff {
		q.answer.Admission = r.admissionAtPlan(ctx, spec, nil)
		return q
	}
	client := r.asked(ctx, q.level)
	if client == nil {
		return q
	}
	var err error
	spec.Owner = r.Session.Owner
	if q.spec, q.forArena, err = inVersion(client, sameUnknownImage(spec)); err != nil {
		return q
	}
	q.asked, q.answer = true, preflight.Job(ctx, client, q.spec, unknownClaim, r.Session.StorageClass)
	return q
}

// inMembers asks the clusters to which a job of a fleet may go for what its pods name. Who places the job says which cannot be asked.
func (r *trainingJob) inMembers(ctx context.Context, m model, hub *kube.Client, spec job.Spec) []preflight.Finding {
	fleet, err := r.Session.Fleet()
	if err != nil {
		return nil
	}
	policy, _, err := r.policyOf(ctx, m)
	if err != nil {
		return nil
	}
	all, err := fleet.Clusters(ctx)
	if err != nil {
		return nil
	}
	members := preflight.Members{Hub: hub, Clients: map[string]*kube.Client{}, Policy: policy.Name, Dependencies: policy.Dependencies}
	for _, of := range all {
		if _, why := policy.Bars(of, spec.GVK()); why != "" {
			continue
		}
		member, err := fleet.Member(ctx, of)
		if err == nil {
			_, err = member.Seen.Snapshot(ctx)
		}
		if err == nil {
			members.Clients[of.Name] = member.Client
		}
	}
	return preflight.InMembers(ctx, members, spec, unknownClaim)
}

// askResume asks the cluster whether it would let the pods of a job that exists start, whatever the check: what admission makes
// of them decides who would be evicted.
func (r *trainingJob) askResume(ctx context.Context, spec job.Spec, unknown []string) (starts preflight.Answer) {
	client := r.asked(ctx, session.CheckError)
	if client == nil || len(unknown) > 0 {
		return starts
	}
	live, err := find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	if err != nil {
		return starts // who reads the job says so
	}
	spec = sameUnknownImage(spec)
	spec.Owner, spec.Version = r.Session.Owner, job.VersionOf(live)
	return preflight.Resume(ctx, client, spec, unknownClaim, r.Session.StorageClass)
}

// admissionAtPlan asks the cluster what it would make of a job's pods, whatever the check: it
// decides who would be evicted.
func (r *trainingJob) admissionAtPlan(ctx context.Context, spec job.Spec, unknown []string) job.Admission {
	if client := r.asked(ctx, session.CheckError); client != nil && len(unknown) == 0 {
		return r.admission(ctx, client, spec)
	}
	return nil
}

// admissionOf is admissionAtPlan of a job that has its pods in the cluster, nothing of one of a fleet.
func (r *trainingJob) admissionOf(ctx context.Context, m model, spec job.Spec, unknown []string) job.Admission {
	if m.ofFleet() {
		return nil
	}
	return r.admissionAtPlan(ctx, spec, unknown)
}

// admission asks the cluster what it would make of a job's pods.
func (r *trainingJob) admission(ctx context.Context, client *kube.Client, spec job.Spec) job.Admission {
	spec.Owner = r.Session.Owner
	spec, _, err := inVersion(client, sameUnknownImage(spec))
	if err != nil {
		return nil
	}
	return preflight.Admission(ctx, client, spec)
}

// preflight says what the cluster has answered.
func (r *trainingJob) preflight(ctx context.Context, m model, q question, on offer) (diags diag.Diagnostics) {
	for _, f := range q.onHub {
		diags.Append(session.Preflight(f, q.level))
	}
	if !q.asked {
		return diags
	}
	spec, level := q.spec, q.level
	for _, f := range slices.Concat(versionFindings(spec, q.forArena), r.schedulerFindings(ctx, spec), r.erdmaFindings(ctx, m, spec), r.podFindings(ctx, spec), r.gangAtPlan(ctx, spec), storedFindings(spec, q.answer.Stored), admissionFindings(spec, q.answer.Admission), r.claimFindings(ctx, spec, on), r.sharingFindings(ctx, spec, on), r.portFindings(ctx, spec, on)) {
		diags.Append(session.Preflight(f, level))
	}
	for _, f := range q.answer.Findings(int(m.PlannedNodeCount.ValueInt64())) {
		diags.Append(session.Preflight(f, level))
	}
	return diags
}

// sayMissing looks once more, before a job starts, whether what its pods name is there: what the plan has seen may be gone. It is
// a warning, since another resource of the same apply may be about to create it. In the same words as in the plan it is not said again.
func (r *trainingJob) sayMissing(ctx context.Context, client *kube.Client, m model, spec job.Spec) (diags diag.Diagnostics) {
	level := r.checker(m, spec).level
	if level == session.CheckOff || spec.Suspend {
		return nil
	}
	for _, f := range preflight.Missing(ctx, client, spec, unknownClaim) {
		diags.Append(session.Preflight(f, level))
	}
	return diags
}

// storedFindings says that the cluster would store another job than the one that is written, nil for one that it did not show: the
// next refresh reads it, and its plan replaces the job to have the written one, each time.
func storedFindings(spec job.Spec, stored *job.Spec) []preflight.Finding {
	if stored == nil {
		return nil
	}
	replace, _ := differences(*stored, inPoolsOf(*stored, spec))
	if len(replace) == 0 {
		return nil
	}
	return []preflight.Finding{{Attribute: replace[0], Summary: "Admission makes another job of it", Detail: fmt.Sprintf(
		"The API server's admission (a webhook or a policy) changes %s of %s %s as soon as it is created: it would not run as planned, and every later plan would replace it. Write here what admission makes of the job, or change what does so.",
		strings.Join(replace, ", "), spec.GVK().Kind, spec.ID())}}
}

// admissionFindings says that by what admission makes of the pods nobody keeps to a plan.
func admissionFindings(spec job.Spec, admission job.Admission) (findings []preflight.Finding) {
	for _, role := range slices.Sorted(maps.Keys(admission)) {
		before, after := admission[role].Predicted.Spec, admission[role].Pod.Spec
		if after.SchedulerName != before.SchedulerName {
			findings = append(findings, preflight.Finding{Warning: true, Attribute: "scheduler_name", Summary: "Another scheduler will place the job", Detail: fmt.Sprintf(
				"The API server's admission (a webhook or a policy) gives the pods of role %s of job %s the scheduler %s instead of %s, so nobody keeps to the planned placement. Change what does so.",
				role, spec.ID(), after.SchedulerName, before.SchedulerName)})
		}
		if gates := after.SchedulingGates; len(gates) > len(before.SchedulingGates) {
			findings = append(findings, preflight.Finding{Warning: true, Attribute: "roles", Summary: "Job will wait for a scheduling gate", Detail: fmt.Sprintf(
				"The API server's admission (a webhook or a policy) gives the pods of role %s of job %s the scheduling gate %s: they wait until who added it takes it off.",
				role, spec.ID(), gates[len(gates)-1].Name)})
		}
	}
	return append(findings, admittedGangFindings(spec, admission)...)
}

// admittedGangFindings says that admission puts pods of the job into another gang than its own, or has the gang need other
// members than it plans with.
func admittedGangFindings(spec job.Spec, admission job.Admission) (findings []preflight.Finding) {
	for _, role := range slices.Sorted(maps.Keys(admission)) {
		before, _ := inventory.GangKey(admission[role].Predicted)
		after, _ := inventory.GangKey(admission[role].Pod)
		if before != after {
			findings = append(findings, preflight.Finding{Warning: true, Attribute: "gang", Summary: "Pods will be in another gang", Detail: fmt.Sprintf(
				"The API server's admission (a webhook or a policy) changes the labels of the pods of role %s of job %s: they are in %s then, and in %s by the configuration, so nobody keeps to the planned placement. Change what does so.",
				role, spec.ID(), gangCalled(after), gangCalled(before))})
		}
	}
	configured, err := spec.Pods()
	if err != nil || !spec.Gang || len(findings) > 0 {
		return findings // the first is said elsewhere
	}
	wanted, have := needed(configured, nil)
	asked, _ := needed(admission.Admit(slices.Clone(configured)), nil)
	if asked == wanted {
		return nil
	}
	finding := preflight.Finding{Warning: asked <= have, Attribute: "gang", Summary: "Gang will need other members", Detail: fmt.Sprintf(
		"The API server's admission (a webhook or a policy) changes the labels of the pods of job %s: its gang needs %d members then, and %d by the configuration, of which there are %d", spec.ID(), asked, wanted, have)}
	switch {
	case asked > have:
		finding.Detail += ". The job waits for ever. Change what does so."
	case asked > wanted:
		finding.Detail += ". The job waits until there is room for as many. Change what does so."
	default:
		finding.Detail += ". The job may start in part. Change what does so."
	}
	return append(findings, finding)
}

// gangCalled is a gang in a text, by its key.
func gangCalled(key string) string {
	if key == "" {
		return "no gang"
	}
	return "gang " + key
}

// schedulerFindings says that nobody will place the job's pods.
func (r *trainingJob) schedulerFindings(ctx context.Context, spec job.Spec) []preflight.Finding {
	if spec.SchedulerName != contract.SchedulerName {
		return r.unknownScheduler(ctx, spec)
	}
	installed, known := r.Session.Ledger.Program(contract.SchedulerName)
	if !known {
		snapshot, err := r.Session.Snapshot(ctx)
		installed = err != nil || !snapshot.NoScheduler
	}
	if installed {
		return nil
	}
	return []preflight.Finding{{Warning: true, Attribute: "scheduler_name", Summary: "No scheduler runs that places the job", Detail: fmt.Sprintf(
		"No scheduler named %s runs in the cluster, so the pods of job %s wait for one. Declare a gpuplan_scheduler and name it in depends_on of the job, so that it comes first, or install it.",
		spec.SchedulerName, spec.ID())}}
}

// unknownScheduler says that nothing in the cluster hints at a scheduler of others by the job's name for it: whether one
// runs nobody can ask.
func (r *trainingJob) unknownScheduler(ctx context.Context, spec job.Spec) []preflight.Finding {
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil || spec.SchedulerName == corev1.DefaultSchedulerName || slices.ContainsFunc(snapshot.Pods, func(p corev1.Pod) bool {
		return p.Spec.SchedulerName == spec.SchedulerName && p.Spec.NodeName != ""
	}) {
		return nil
	}
	return []preflight.Finding{{Warning: true, Attribute: "scheduler_name", Summary: "Nothing is known of the scheduler", Detail: fmt.Sprintf(
		"Job %s leaves its pods to a scheduler named %s, which has placed no pod that is in the cluster now. Where none of that name runs they wait for ever. The scheduler of Kubernetes is called %s, that of gpuplan %s, which is the default; "+
			"if yours has that name, go on.", spec.ID(), spec.SchedulerName, corev1.DefaultSchedulerName, contract.SchedulerName)}}
}

// versionFindings says what the version of the job's kind cannot express of it: nothing of
// that can be written, or arena will not know the job well.
func versionFindings(spec job.Spec, forArena bool) (findings []preflight.Finding) {
	if fault := faults(spec); fault != nil {
		precedence := "and none that goes before it"
		if spec.Version == "" {
			precedence = "which goes before others"
		}
		return []preflight.Finding{{Attribute: "framework", Summary: "The job's version cannot say all of it", Detail: fmt.Sprintf(
			"%s The cluster serves that version, %s: change the job%s.", session.Sentence(fault), precedence, elsewhere(spec))}}
	}
	alpha := spec
	alpha.Version = contract.MPIAlphaVersion
	if fault := faults(alpha); forArena && spec.Version != alpha.Version && fault != nil {
		return []preflight.Finding{{Warning: true, Attribute: "arena_compatible", Summary: "arena will list the job as PENDING", Detail: session.Sentence(fault) +
			" So it is written in version " + spec.GVK().Version + ", of which arena knows only that it exists."}}
	}
	return nil
}

// sameUnknownImage leaves out an image that another role of the job will have too, for all
// that is known.
func sameUnknownImage(spec job.Spec) job.Spec {
	for _, role := range spec.Roles {
		if role.Image != unknownImage {
			continue
		}
		spec.Roles = maps.Clone(spec.Roles)
		for name, role := range spec.Roles {
			role.Image = unknownImage
			spec.Roles[name] = role
		}
		break
	}
	return spec
}
