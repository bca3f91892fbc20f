package inventory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Member is a pod with what a gang needs to know of it.
type Member struct {
	Pod *corev1.Pod
	// Role is the pod's role, without members.
	Role placement.Role
	// Lost means that the pod is about to be failed.
	Lost bool
	// Refused says why a plugin of the scheduler refuses the pod whatever the node, "" while none does.
	Refused string
	// gated says why a pod that is not bound is not ours to place yet, "" when it is ([MarkGated]).
	gated    string
	problems []Problem
}

// left reports whether the pod is no member any more, or about to be none.
func (m *Member) left() bool { return m.Lost || Gone(m.Pod) }

// MemberOf reads from a pod what its gang needs to know of it.
func MemberOf(p *corev1.Pod) Member {
	request, problems := requestOf(p)
	return Member{Pod: p, Role: roleOf(p, request), problems: problems}
}

// MarkGated marks those of a gang's pods that its scheduler cannot place as the cluster is: pods
// with scheduling gates, in a gang of ours those of another scheduler, and those that a plugin
// refuses whatever the node. A gang that needs one of them waits as if it was not there; it would
// hold room, or evict others for it, that it cannot take. One that does not need them starts without them.
func MarkGated(members []Member) {
	ours := slices.ContainsFunc(members, func(m Member) bool { return m.Pod.Spec.SchedulerName == contract.SchedulerName })
	for i := range members {
		switch m := &members[i]; {
		case m.Pod.Spec.NodeName != "" || m.left():
		case len(m.Pod.Spec.SchedulingGates) > 0:
			m.gated = fmt.Sprintf("pod %s has the scheduling gate %s", m.Pod.Name, m.Pod.Spec.SchedulingGates[0].Name)
		case ours && m.Pod.Spec.SchedulerName != contract.SchedulerName:
			m.gated = fmt.Sprintf("pod %s names the scheduler %s", m.Pod.Name, m.Pod.Spec.SchedulerName)
		case m.Refused != "":
			m.gated = fmt.Sprintf("pod %s: %s", m.Pod.Name, m.Refused)
		}
	}
}

// asks reports whether the member asks for GPUs.
func (m Member) asks() bool { return m.Role.Request.Mode != placement.ModeNone }

// launches reports whether a pod's labels say that it launches the processes of the others,
// as the launcher of an MPI job does: it needs them to run first.
func launches(p *corev1.Pod) bool {
	for _, label := range []string{contract.JobReplicaTypeLabel, contract.JobRoleLabel, contract.ArenaMPIRoleLabel} {
		if strings.EqualFold(p.Labels[label], contract.ReplicaLauncher) {
			return true
		}
	}
	return false
}

// current leaves out what an earlier run of the gang has left behind: bound pods that are being
// deleted, of another controller than those that are not, or of none, which nobody makes again; and
// all that are being deleted when no member that runs stays, as after an eviction: those that replace
// the first of them would start without the others. They hold what they have, and are no members of
// what comes after them.
func current(members []Member) []Member {
	if !slices.ContainsFunc(members, func(m Member) bool { return m.Pod.DeletionTimestamp != nil }) {
		return members
	}
	runs := map[string]bool{}
	stays, gpus := false, slices.ContainsFunc(members, Member.asks)
	for i := range members {
		if m := &members[i]; m.Pod.DeletionTimestamp == nil && !m.left() {
			runs[runOf(m.Pod)] = true
			stays = stays || m.Pod.Spec.NodeName != "" && (m.asks() || !gpus)
		}
	}
	if len(runs) == 0 {
		return members
	}
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool {
		run := runOf(m.Pod)
		return m.Pod.DeletionTimestamp != nil && m.Pod.Spec.NodeName != "" && (!stays || run == "" || !runs[run])
	})
}

func (m *Member) succeeded() bool { return m.Pod.Status.Phase == corev1.PodSucceeded }

// placed reports whether the planner has placed the pod.
func (m *Member) placed() bool {
	_, ok := m.Pod.Annotations[contract.AllocationAnnotation]
	return ok
}
