package inventory

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// gangName finds the name of a pod's gang. In order of precedence: PodGroup label,
// ACK's gang labels, topology labels. "true" instead of a name is a flag that some
// tools write; the name is the job's then.
func gangName(p *corev1.Pod) string {
	for _, label := range []string{contract.PodGroupLabel, contract.LightGangLabel, contract.TopologyGroupLabel} {
		switch name := p.Labels[label]; {
		case !named(name):
		case name == "true":
			return JobName(p)
		default:
			return name
		}
	}
	return ""
}

// named reports whether the value of a gang's label makes a gang.
func named(value string) bool { return value != "" && value != "false" }

// JobName names the job that a pod belongs to, at worst the pod itself.
func JobName(p *corev1.Pod) string {
	for _, label := range []string{contract.JobNameLabel, contract.ArenaReleaseLabel, contract.JobSetNameLabel} {
		if name := p.Labels[label]; name != "" {
			return name
		}
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.Name
	}
	return p.Name
}

// GangKey returns "namespace/name" of the gang that a pod says it belongs to, in any
// of the three spellings; ok is false for a pod on its own.
func GangKey(p *corev1.Pod) (key string, ok bool) {
	name := gangName(p)
	if name == "" {
		return "", false
	}
	return p.Namespace + "/" + name, true
}

// PlanKey returns the key of the gang that a pod is planned with: the gang's
// "namespace/name", or "pod/namespace/name" for a pod on its own that asks for
// GPUs. ok is false for pods that the planner does not place as a rule; it may be told to
// place others.
func PlanKey(p *corev1.Pod) (key string, ok bool) {
	if key, ok := GangKey(p); ok {
		return key, true
	}
	return "pod/" + p.Namespace + "/" + p.Name, AsksForGPUs(p)
}

// Replica returns the role of a pod in its job and its index there, each "" where the
// operator does not say: the training operator and the MPI operator by their labels, the latter's workers of
// v1alpha1 as pods of a StatefulSet, Jobs by the index of completion, which older versions of
// Kubernetes annotate alone. Where a role of a JobSet is several Jobs, theirs comes first.
func Replica(p *corev1.Pod) (role, index string) {
	role = strings.ToLower(cmp.Or(p.Labels[contract.JobReplicaTypeLabel], p.Labels[contract.ArenaMPIRoleLabel], p.Labels[contract.JobSetRoleLabel], p.Labels[contract.JobRoleLabel]))
	index = cmp.Or(p.Labels[contract.JobReplicaIndexLabel], p.Labels[appsv1.PodIndexLabel],
		p.Labels[batchv1.JobCompletionIndexAnnotation], p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if jobs := p.Labels[contract.JobSetJobsLabel]; jobs != "" && jobs != "1" && index != "" {
		index = p.Labels[contract.JobSetJobIndexLabel] + "-" + index
	}
	return role, index
}

// MemberNames returns a name for each pod that is unique in the gang: the job
// operator's role and index, "worker-0", else the pod's name. A pod that is being deleted
// leaves the first to its successor.
func MemberNames(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	seen, stay := map[string]int{}, map[string]int{}
	for i, p := range pods {
		names[i] = p.Name
		if role, index := Replica(p); role != "" && index != "" {
			names[i] = role + "-" + index
		}
		seen[names[i]]++
		if p.DeletionTimestamp == nil {
			stay[names[i]]++
		}
	}
	for i, p := range pods {
		if seen[names[i]] > 1 && (stay[names[i]] != 1 || p.DeletionTimestamp != nil) {
			names[i] = p.Name
		}
	}
	return names
}

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

// Member is a pod with what a gang needs to know of it.
type Member struct {
	Pod *corev1.Pod
	// Role is the pod's role, without members.
	Role placement.Role
	// Lost means that the pod is about to be failed.
	Lost bool
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
// with scheduling gates, and, in a gang of ours, those of another scheduler. A gang that needs
// one of them waits as if it was not there; it would hold room, or evict others for it, that it
// cannot take.
func MarkGated(members []Member) {
	ours := slices.ContainsFunc(members, func(m Member) bool { return m.Pod.Spec.SchedulerName == contract.SchedulerName })
	for i := range members {
		switch m := &members[i]; {
		case m.Pod.Spec.NodeName != "" || m.left():
		case len(m.Pod.Spec.SchedulingGates) > 0:
			m.gated = fmt.Sprintf("pod %s has the scheduling gate %s", m.Pod.Name, m.Pod.Spec.SchedulingGates[0].Name)
		case ours && m.Pod.Spec.SchedulerName != contract.SchedulerName:
			m.gated = fmt.Sprintf("pod %s names the scheduler %s", m.Pod.Name, m.Pod.Spec.SchedulerName)
		}
	}
}

// asks reports whether the member asks for GPUs.
func (m Member) asks() bool { return m.Role.Request.Mode != placement.ModeNone }

// MemberCounts counts the members of a gang.
type MemberCounts struct {
	// gpus means that someone asks for GPUs. Of those who do not, launchers are late, and the
	// others unless the gang needs more members than ask for GPUs, which mixed tells.
	gpus, mixed bool
	// Present are the members that are there, Running those of them that are bound.
	Present, Running int
	// trains counts those that run and ask for GPUs.
	trains int
	// late are the pods that start once the members run.
	late int
	// gated are members that are there and not counted, since they cannot be placed yet, and
	// gatedText says why the first of them cannot ([MarkGated]).
	gated     int
	gatedText string
	// Minimum is how many of the members must run, 0 for all of them.
	Minimum int
	// expected is how many more members the gang says it has in all, 0 once some run that ask for GPUs, where any does.
	expected int
	// groupless means that the pods name a PodGroup that nobody has seen.
	groupless bool
	// nameless says what is wrong with a pod on its own that says how many members its gang has, "" when none is.
	nameless string
	// parts are the roles with a minimum of their own.
	parts []part
}

// missingText says what must still appear before the gang can start, "" when nothing must.
// A gang without its PodGroup does not know how many members it has; one that runs
// already goes on without.
func (c MemberCounts) missingText(key string) string {
	switch missing := c.missing(); {
	case c.groupless && c.Running == 0:
		return fmt.Sprintf("PodGroup %s must appear before its pods can start", key)
	case missing > 0 && c.nameless != "":
		return c.nameless
	case missing > 0 && missing <= c.gated:
		return fmt.Sprintf("gang %s cannot start: %s", key, c.gatedText)
	case missing == 1:
		return fmt.Sprintf("1 more pod of gang %s must appear%s before it can start", key, c.ofRoles())
	case missing > 1:
		return fmt.Sprintf("%d more pods of gang %s must appear%s before it can start", missing, key, c.ofRoles())
	}
	return ""
}

// Runs reports whether as many members run as the gang needs.
func (c MemberCounts) Runs() bool {
	short := func(p part) bool { return p.running < p.minimum }
	return c.Present > 0 && c.Running >= cmp.Or(c.Minimum, c.Present) && !slices.ContainsFunc(c.parts, short)
}

// Incomplete reports whether members must appear before as many can run as the gang needs.
func (c MemberCounts) Incomplete() bool { return c.missing() > 0 }

// IsLate reports whether a pod starts once the members of its gang run, and is none itself.
func (c *MemberCounts) IsLate(m *Member) bool {
	return c.gpus && !m.asks() && (!c.mixed || launches(m.Pod))
}

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

// CountMembers counts the members of a gang. podGroup is its PodGroup object, or nil.
func CountMembers(members []Member, podGroup *unstructured.Unstructured) MemberCounts {
	found, _ := count(current(members), podGroup)
	return found
}

// RunsWithout reports whether a gang runs when some of its bound members, which are being deleted, have gone. What these
// declare counts still, and members that are not bound do not.
func RunsWithout(members []Member, podGroup *unstructured.Unstructured, gone func(*corev1.Pod) bool) bool {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Pod.Spec.NodeName == "" && !m.succeeded() })
	for i := range members {
		if gone(members[i].Pod) {
			pod := *members[i].Pod
			pod.DeletionTimestamp, pod.Spec.NodeName = nil, ""
			members[i].Pod = &pod
		}
	}
	found, _ := count(current(members), podGroup)
	return found.Runs()
}

func count(members []Member, podGroup *unstructured.Unstructured) (MemberCounts, []Problem) {
	var c MemberCounts
	withGPUs := 0
	for i := range members {
		m := &members[i]
		c.gpus = c.gpus || m.asks()
		c.groupless = c.groupless || podGroup == nil && named(m.Pod.Labels[contract.PodGroupLabel])
		if m.asks() && (!m.left() || m.succeeded()) || m.succeeded() && m.placed() {
			withGPUs++
		}
	}
	declared, problems := declaredMembers(members, podGroup)
	c.nameless = namelessText(members)
	var odd []Problem
	c.parts, odd = declaredParts(members, podGroup)
	problems = append(problems, odd...)
	c.needMaster(members, declared)
	launchers := 0
	for i := range members {
		if m := &members[i]; !m.left() && launches(m.Pod) && !m.asks() {
			launchers++
		}
	}
	owned := podGroup != nil && metav1.GetControllerOf(podGroup) != nil
	if owned {
		// Operators count every replica of their job, launchers included.
		c.mixed = declared-launchers > withGPUs
	} else {
		c.mixed = declared > withGPUs
	}
	succeeded := 0
	for i := range members {
		m := &members[i]
		switch {
		case m.succeeded():
			// Members that ask for no GPU have a record, too, and late ones have none.
			if m.placed() || !c.gpus || m.asks() {
				succeeded++
				if p := c.part(m); p != nil {
					p.minimum--
				}
			}
		case m.left():
		case c.IsLate(m):
			c.late++
			if p := c.part(m); p != nil {
				p.minimum = 0
			}
		case m.gated != "":
			if c.gated++; c.gatedText == "" || m.gated < c.gatedText {
				c.gatedText = m.gated
			}
		default:
			c.Present++
			running := 0
			if m.Pod.Spec.NodeName != "" {
				running = 1
			}
			c.Running += running
			if m.asks() {
				c.trains += running
			}
			if p := c.part(m); p != nil {
				p.present, p.running = p.present+1, p.running+running
			}
		}
	}
	if owned {
		declared = max(declared-c.late, min(declared, c.Present+succeeded))
	}
	if c.Minimum = max(0, declared-succeeded); c.Minimum == 0 && declared > 0 {
		c.Minimum = min(1, c.Present) // as many have ended as it needs: each of the others runs without them
	}
	c.reconcileParts()
	if c.Running == 0 || c.gpus && c.trains == 0 { // what stays of an earlier run, and asks for no GPU, is no begin of this one
		all, _ := highest(members, contract.TopologyReplicasLabel)
		c.expected = max(0, all-succeeded-c.Present)
		if c.mixed && !owned && c.gpus {
			c.expected = max(c.expected, 1) // one that asks for GPUs may be about to appear
		}
		if !c.gpus && launchers > 0 && launchers == c.Present {
			c.expected = max(c.expected, 1) // so may those that launchers are for
		}
	}
	if c.groupless && c.Running > 0 {
		c.Minimum, c.parts = c.Running, nil // what runs is not taken for a part that must be completed
	}
	return c, problems
}

func (m *Member) succeeded() bool { return m.Pod.Status.Phase == corev1.PodSucceeded }

// placed reports whether the planner has placed the pod.
func (m *Member) placed() bool {
	_, ok := m.Pod.Annotations[contract.AllocationAnnotation]
	return ok
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
		if members[i].left() || members[i].gated != "" {
			continue
		}
		role.Late, role.Labels = c.IsLate(&members[i]), labelsOf(p, keys)
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

// GangID is the ID of a pod's gang in the planner, or of the pod on its own ([placement.OfPod]).
func GangID(p *corev1.Pod) string {
	if key, ok := GangKey(p); ok {
		return key
	}
	return p.Namespace + placement.OfPod + p.Name
}

// KeyOf returns the key of a gang ([PlanKey]) by its ID in the planner.
func KeyOf(id string) string {
	if strings.Contains(id, placement.OfPod) {
		return "pod/" + placement.NameOf(id)
	}
	return id
}

// declaredMembers reads how many members a gang says it needs: from its PodGroup,
// its min-available label, or its replica label; 0 when nothing usable says so.
func declaredMembers(members []Member, podGroup *unstructured.Unstructured) (int, []Problem) {
	var problems []Problem
	if podGroup != nil {
		minMember, ok, err := unstructured.NestedInt64(podGroup.Object, "spec", "minMember")
		if err == nil && ok && minMember > 0 {
			return int(minMember), nil
		}
		problems = append(problems, Problem{Reason: ReasonInvalidReplicaCount, Text: fmt.Sprintf(
			"PodGroup %s has no positive minMember; the labels of its pods are used", podGroup.GetName())})
	}
	for _, label := range []string{contract.LightGangMinLabel, contract.TopologyReplicasLabel} {
		count, odd := highest(members, label)
		problems = append(problems, odd...)
		if count > 0 {
			return count, problems
		}
	}
	return 0, problems
}

// gangLabels are, by the labels that say how many members a gang has, those that name it.
var gangLabels = []struct{ count, name string }{
	{contract.LightGangMinLabel, contract.LightGangLabel}, {contract.TopologyReplicasLabel, contract.TopologyGroupLabel},
}

// namelessText says that a pod on its own is said to be one of several, which can never find each other, "" when it is not.
func namelessText(members []Member) string {
	if len(members) != 1 || gangName(members[0].Pod) != "" {
		return ""
	}
	p := members[0].Pod
	for _, label := range gangLabels {
		if count := p.Labels[label.count]; count != "" {
			return fmt.Sprintf("pod %s/%s is to be one of %s by its label %s, but no label names its gang, so that the others cannot join it: "+
				"give all of them the label %s with one name, or take the number off", p.Namespace, p.Name, count, label.count, label.name)
		}
	}
	return ""
}

// highest reads the highest count that a label of the members gives, 0 when none is usable.
func highest(members []Member, label string) (count int, problems []Problem) {
	differ := false
	for _, m := range members {
		text, ok := m.Pod.Labels[label]
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			problems = append(problems, Problem{Reason: ReasonInvalidReplicaCount, Text: fmt.Sprintf(
				"label %s is %q, not a positive number; the pods of the job are counted instead", label, text)})
			break
		}
		differ = differ || (count != 0 && n != count)
		count = max(count, n)
	}
	if differ {
		problems = append(problems, Problem{Reason: ReasonCountsDisagree, Text: fmt.Sprintf(
			"the pods of the gang disagree about label %s; the highest, %d, is used", label, count)})
	}
	return count, problems
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
