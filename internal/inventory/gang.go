package inventory

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Problem is something odd in the description of a gang that does not stop it.
type Problem struct {
	// Reason is in the form of an event's reason.
	Reason string
	// Text says what is odd and what is assumed instead.
	Text string
}

// Reasons of problems.
const (
	ReasonInvalidReplicaCount = "InvalidReplicaCount"
	ReasonCountsDisagree      = "ReplicaCountsDisagree"
	ReasonInvalidGPUCount     = "InvalidGPUCount"
	ReasonInvalidPlan         = "InvalidPlannedPlacement"
)

// defaultRole is the role of pods that no training operator labelled.
const defaultRole = "member"

// Gang describes the gang that the pods make: real pods of a job, or those that the
// provider expects the operator to create. podGroup is the gang's PodGroup object, or
// nil; tree gives the quota leaf of the namespace, or nil. A pod of its own is a gang
// of one. Finished pods are left out, and those that succeeded count towards the minimum.
func Gang(pods []*corev1.Pod, podGroup *unstructured.Unstructured, tree *quota.Tree) (placement.Gang, []Problem) {
	return GangAmid(pods, podGroup, tree, nil)
}

// GangAmid is [Gang] within a cluster that keeps some of the pods from some of its nodes; nil for none.
func GangAmid(pods []*corev1.Pod, podGroup *unstructured.Unstructured, tree *quota.Tree, amid *Surroundings) (placement.Gang, []Problem) {
	members := make([]Member, len(pods))
	for i, p := range pods {
		members[i] = MemberOf(p)
	}
	members = current(members)
	amid.restrict(members)
	g, _, problems := gang(members, podGroup, tree, func(string) *gpu.Table { return nil })
	return g, problems
}

// gang is [Gang] with the GPUs of bound members translated to positions in their node's table,
// and with their counts.
func gang(members []Member, podGroup *unstructured.Unstructured, tree *quota.Tree, gpus func(node string) *gpu.Table) (placement.Gang, MemberCounts, []Problem) {
	if len(members) == 0 {
		return placement.Gang{}, MemberCounts{}, nil
	}
	c, problems := count(members, podGroup)
	pods := make([]*corev1.Pod, len(members))
	for i, m := range members {
		pods[i] = m.Pod
		problems = append(problems, m.problems...)
	}
	names := MemberNames(pods)
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return natural.Compare(names[a], names[b]) })

	keys := selectedBy(members)
	g := placement.Gang{ID: GangID(pods[0]), Minimum: c.Minimum, Preemptible: true}
	for _, i := range order {
		p, role := pods[i], members[i].Role
		role.Late, role.Labels = c.IsLate(&members[i]), labelsOf(p, keys)
		if members[i].left() || members[i].gated != "" && (!role.Late || members[i].Refused == "") { // a late one was refused as a member
			continue
		}
		if len(g.Roles) == 0 {
			g.Priority = priorityOf(p)
		}
		g.Roles = addMember(g.Roles, role, names[i])
		g.Priority = max(g.Priority, priorityOf(p))
		g.Preemptible = g.Preemptible && Preemptible(p)
		g.NeverPreempts = g.NeverPreempts || p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == corev1.PreemptNever
		if g.Leaf == "" {
			g.Leaf = LeafOf(p, tree)
		}
		if g.Domains == nil && !role.Late {
			g.Domains = domains(p)
		}
		if p.Spec.NodeName != "" {
			g.Running = append(g.Running, assignment(p, names[i], gpus(p.Spec.NodeName)))
		}
	}
	slices.SortFunc(g.Roles, func(a, b placement.Role) int { return cmp.Compare(a.Name, b.Name) })
	g.Whole = ofJobSet(pods[0]) && g.Minimum == c.Present
	if c.Running < c.Present {
		planned, odd := plannedFor(slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return Gone(p) }))
		g.Planned, problems = planned, append(problems, odd...)
	}
	g.Subgroups = subgroups(c.parts, g.Roles)
	return g, c, problems
}

// roleOf describes a pod's role, without members.
func roleOf(p *corev1.Pod, request placement.Request) placement.Role {
	role := placement.Role{
		Name:         roleName(p),
		Request:      request,
		NodeSelector: p.Spec.NodeSelector,
		Affinity:     nodeAlternatives(p),
		Pools:        pools(p),
		Apart:        antiAffinity(p),
		Neighbors:    neighbors(p),
		Spreads:      spreads(p),
		Preferred:    preferences(p),
		Mounts:       mounts(p),
	}
	for _, t := range p.Spec.Tolerations {
		role.Tolerations = append(role.Tolerations, placement.Toleration{
			Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: string(t.Effect)})
	}
	return role
}

// addMember puts a member into the role of its name and shape. Pods of one name with
// different shapes make several roles: "worker", "worker.2".
func addMember(roles []placement.Role, role placement.Role, member string) []placement.Role {
	same := 0
	for i := range roles {
		if baseName(roles[i].Name) != role.Name {
			continue
		}
		same++
		known := roles[i]
		known.Name, known.Members = role.Name, nil
		if reflect.DeepEqual(known, role) {
			roles[i].Members = append(roles[i].Members, member)
			return roles
		}
	}
	if same > 0 {
		role.Name = fmt.Sprintf("%s.%d", role.Name, same+1)
	}
	role.Members = []string{member}
	return append(roles, role)
}

// assignment reads where a bound member runs.
func assignment(p *corev1.Pod, member string, gpus *gpu.Table) placement.Assignment {
	a := placement.Assignment{Member: member, Node: p.Spec.NodeName}
	if record, ok, err := contract.AllocationFrom(p.Annotations); ok && err == nil {
		a.Own = Positions(record.GPUs, gpus)
		a.Visible = Positions(record.Visible, gpus)
		a.Shares = shares(record.Shares, gpus)
		a.Ring = gpu.Ring{GBps: record.RingGBps, NVLinkRings: record.NVLinkRings}
	}
	return a
}
