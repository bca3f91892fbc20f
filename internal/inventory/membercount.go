package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

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
	// refused are those of them that a plugin refuses whatever the node, with why.
	refused map[types.UID]string
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

// incomplete is the cause of a gang that lacks pods.
const incomplete = "Incomplete"

// missingText says what must still appear before the gang can start, "" when nothing must, and cause the same
// without numbers. A gang without its PodGroup does not know how many members it has; one that runs
// already goes on without.
func (c MemberCounts) missingText(key string) (text, cause string) {
	missing := c.missing()
	switch {
	case c.groupless && c.Running == 0:
		text = fmt.Sprintf("PodGroup %s must appear before its pods can start", key)
	case missing > 0 && c.nameless != "":
		text = c.nameless
	case missing > 0 && c.areGated(missing):
		text = fmt.Sprintf("gang %s cannot start: %s", key, c.gatedText)
	case missing == 1:
		return fmt.Sprintf("1 more pod of gang %s must appear%s before it can start", key, c.ofRoles()), incomplete
	case missing > 1:
		return fmt.Sprintf("%d more pods of gang %s must appear%s before it can start", missing, key, c.ofRoles()), incomplete
	}
	return text, text
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
			if p := c.part(m); p != nil {
				p.gated++
			}
			if c.gated++; c.gatedText == "" || m.gated < c.gatedText {
				c.gatedText = m.gated
			}
			if m.Refused != "" {
				if c.refused == nil {
					c.refused = map[types.UID]string{}
				}
				c.refused[m.Pod.UID] = m.Refused
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
