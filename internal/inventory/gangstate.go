package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// GangState is a gang as its pods in a cluster make it.
type GangState struct {
	Gang     placement.Gang
	Problems []Problem
	// Pods are the pods of the gang's members by member name, and those that are gated ([MarkGated]).
	Pods map[string]*corev1.Pod
	// Missing is how many members must still appear, and MissingText says in words what must:
	// members, or their PodGroup, or a valid quota tree, or that a fence must go; "" when the gang can start.
	Missing     int
	MissingText string
	// MissingCause is what kind of reason MissingText is, without numbers.
	MissingCause string
	// Barred is the part of MissingText that is about the quota tree, or a fence.
	Barred string
	// Running counts the members that run; those that start late are none.
	Running int
	// PodGroup is the gang's PodGroup object, nil when it has none.
	PodGroup *unstructured.Unstructured
}

// StateOf describes the gang that the members make. podGroup is its PodGroup object, or nil;
// tree and bar are the quota tree in force and whom it holds back, or nil; gpus finds the table
// of a node. ok is false when there are no members.
func StateOf(members []Member, podGroup *unstructured.Unstructured, tree *quota.Tree, bar *Bar, gpus func(node string) *gpu.Table) (state GangState, ok bool) {
	if len(members) == 0 {
		return GangState{}, false
	}
	members = slices.Clone(current(members))
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	state = GangState{PodGroup: podGroup, Pods: make(map[string]*corev1.Pod, len(members))}
	var found MemberCounts
	state.Gang, found, state.Problems = gang(members, podGroup, tree, gpus)
	state.Missing, state.Running = found.missing(), found.Running
	state.Barred = heldBack(bar, members, found, tree)
	state.MissingText, state.MissingCause = found.missingText(placement.NameOf(state.Gang.ID))
	if state.Barred != "" {
		state.MissingText, state.MissingCause = state.Barred, state.Barred
	}
	pods := make([]*corev1.Pod, len(members))
	for i, m := range members {
		pods[i] = m.Pod
	}
	for i, name := range MemberNames(pods) {
		if !Gone(pods[i]) {
			state.Pods[name] = pods[i]
		}
	}
	return state, true
}

// Fence keeps members that have no node from getting one for a reason, "" for none.
func (s *GangState) Fence(why string) {
	if why != "" && s.FirstUnbound() != nil {
		s.Barred, s.MissingText, s.MissingCause = why, why, why
	}
}

// MemberIDs returns the IDs of the gang's members in a view, in the gang's order: those of
// some roles, nil for all.
func (s *GangState) MemberIDs(roles []string) []string {
	var pods []string
	for _, role := range s.Gang.Roles {
		if role.Late || roles != nil && !slices.Contains(roles, role.Name) {
			continue
		}
		for _, name := range role.Members {
			pods = append(pods, PodID(s.Pods[name]))
		}
	}
	return pods
}

// FirstUnbound returns the first member that the scheduler could place and that is not bound, nil when
// there is none: pods that are gated or late, or that name another scheduler, ask for no place.
func (s *GangState) FirstUnbound() *corev1.Pod {
	for _, role := range s.Gang.Roles {
		if role.Late {
			continue
		}
		for _, name := range role.Members {
			if pod := s.Pods[name]; pod.Spec.NodeName == "" {
				return pod
			}
		}
	}
	return nil
}

// GangStatus says how far a gang is, from one pod's point of view.
type GangStatus struct {
	// Known means that the pod is one of the gang's.
	Known bool
	// MissingText says what must still appear before the gang can start, or that the quota tree
	// must be valid, "" when nothing must.
	MissingText string
	// Present counts the members that are there, also those that a plugin refuses whatever the node. Expected is how many more the gang says it
	// has in all, beyond those that it needs, while none of them runs; 0 when it does not say.
	Present, Expected int
	// Runs means that as many members run, or are about to, as the gang needs.
	Runs bool
	// Partial means that some members run, but not as many as the gang needs.
	Partial bool
	// Late means that the pod is no member of its gang, and starts once that runs.
	Late bool
	// Refused means that a plugin refuses the pod whatever the node; Refusals are all pods of the gang that one refuses, with why.
	Refused  bool
	Refusals map[types.UID]string
}

// StatusOf says how far the gang of a key is that the members make, with what was counted of
// them. It speaks of no pod.
func StatusOf(key string, members []Member, found MemberCounts, tree *quota.Tree, bar *Bar) GangStatus {
	missing, _ := found.missingText(key)
	return GangStatus{
		MissingText: cmp.Or(heldBack(bar, current(members), found, tree), missing),
		Present:     found.Present + len(found.refused),
		Refusals:    found.refused,
		Expected:    found.expected,
		Runs:        found.Runs(),
		Partial:     found.Running > 0 && !found.Runs(),
	}
}

// runOf tells the run of its gang to which a pod belongs: the UID of its controller, "" when it has none. Each
// role of a JobSet has a controller of its own, and the set may start again as a whole.
func runOf(p *corev1.Pod) string {
	if ofJobSet(p) {
		return p.Labels[contract.JobSetNameLabel] + "/" + p.Labels[contract.JobSetAttemptLabel]
	}
	return string(controllerOf(p))
}

func ofJobSet(p *corev1.Pod) bool { return p.Labels[contract.JobSetNameLabel] != "" }

// Members says a number of members in words: "1 member".
func Members(n int) string {
	if n == 1 {
		return "1 member"
	}
	return fmt.Sprintf("%d members", n)
}
