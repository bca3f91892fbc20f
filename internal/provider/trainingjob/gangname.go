package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// gangFindings says what the scheduler would take for a part of the job's gang, which it knows by its
// namespace and name alone: pods of others, and a PodGroup that no job of this name owns.
func gangFindings(snapshot *cluster.Snapshot, spec job.Spec) (findings []preflight.Finding) {
	if !spec.Gang {
		return nil
	}
	var strangers []*corev1.Pod
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		key, _ := inventory.GangKey(pod)
		if key == spec.ID() && pod.DeletionTimestamp == nil && !inventory.Finished(pod) && !spec.OwnsPod(pod) {
			strangers = append(strangers, pod)
		}
	}
	if len(strangers) > 0 {
		findings = append(findings, strangersFinding(strangers, spec))
	}
	for i := range snapshot.PodGroups {
		group := &snapshot.PodGroups[i]
		if group.GetNamespace() == spec.Namespace && group.GetName() == spec.Name && group.GetDeletionTimestamp() == nil && !spec.Owns(group.GetOwnerReferences()) {
			findings = append(findings, podGroupFindings(group, spec)...)
		}
	}
	return findings
}

// mostNamed is how many pods a finding names.
const mostNamed = 8

func strangersFinding(strangers []*corev1.Pod, spec job.Spec) preflight.Finding {
	var names []string
	for _, pod := range strangers[:min(len(strangers), mostNamed)] {
		names = append(names, pod.Name)
	}
	if more := len(strangers) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	pods := fmt.Sprintf("%d pods", len(strangers))
	if len(strangers) == 1 {
		pods = "1 pod"
	}
	return preflight.Finding{Attribute: "name", Summary: "Other pods are in the job's gang", Detail: fmt.Sprintf(
		"The gang of job %[1]s is called %[1]s, and a label puts %[2]s into it, not of the job%[3]s: %[4]s. The scheduler takes all of them for one gang, so that the job waits for ever, or starts in part. "+
			"Choose another name for the job, or delete what is not the job's.",
		spec.ID(), pods, job.Whose(strangers[0].OwnerReferences), strings.Join(names, ", "))}
}

// podGroupFindings holds how many members a PodGroup asks for against those that the job has and needs:
// the scheduler goes by the PodGroup.
func podGroupFindings(group *unstructured.Unstructured, spec job.Spec) []preflight.Finding {
	pods, err := spec.Pods()
	if err != nil {
		return nil // said elsewhere
	}
	asked, have := needed(pods, group)
	wanted, _ := needed(pods, nil)
	what := fmt.Sprintf("%s %s/%s, which no job of this name owns, says that its gang needs %d members (minMember)", contract.PodGroupKind, group.GetNamespace(), group.GetName(), asked)
	const remedy = "Delete the PodGroup, or choose another name for the job."
	switch {
	case asked > have:
		return []preflight.Finding{{Attribute: "name", Summary: "PodGroup asks for more members than the job has", Detail: fmt.Sprintf(
			"%s, and job %s has %d: the job waits for ever. %s", what, spec.ID(), have, remedy)}}
	case asked != wanted:
		effect := "waits until there is room for as many"
		if asked < wanted {
			effect = fmt.Sprintf("may start in part, with %d of its %d members", asked, have)
		}
		return []preflight.Finding{{Warning: true, Attribute: "name", Summary: "PodGroup says how many members the job needs", Detail: fmt.Sprintf(
			"%s, and job %s needs %d. The scheduler goes by the PodGroup, so the job %s. %s", what, spec.ID(), wanted, effect, remedy)}}
	}
	return nil
}

// needed is how many members the gang of some pods needs, and how many it has.
func needed(pods []*corev1.Pod, group *unstructured.Unstructured) (minimum, members int) {
	gang, _ := inventory.Gang(pods, group, nil)
	for _, role := range gang.Roles {
		if !role.Late {
			members += len(role.Members)
		}
	}
	return cmp.Or(gang.Minimum, members), members
}

// gangAtPlan are the gangFindings of a plan.
func (r *trainingJob) gangAtPlan(ctx context.Context, spec job.Spec) []preflight.Finding {
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		return nil // said elsewhere
	}
	return gangFindings(snapshot, spec)
}

// checkGang looks once more, before a job starts, who is in its gang. Of what is a warning the plan has
// warned.
func (r *trainingJob) checkGang(ctx context.Context, m model, spec job.Spec) (diags diag.Diagnostics) {
	seen, err := r.Session.Cluster()
	if err != nil || r.checker(m, spec).level != session.CheckError {
		return nil
	}
	snapshot, err := seen.Recent(ctx, recent)
	if err != nil {
		return nil // said elsewhere
	}
	for _, f := range gangFindings(snapshot, spec) {
		if !f.Warning {
			diags.AddAttributeError(path.Root(f.Attribute), "Job was not started", f.Detail)
		}
	}
	return diags
}
