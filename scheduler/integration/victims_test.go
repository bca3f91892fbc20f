package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// actsLate is how long the scheduler may act as if something were there that the run has
// taken away: it learns of it by a watch, and evicts pod by pod; one that was killed starts before.
const actsLate = 10 * time.Second

// eviction is a pod that the scheduler has evicted.
type eviction struct {
	pod, preemptor string
	at             time.Time
}

// loss is something that the run itself has taken away.
type loss struct {
	what string
	at   time.Time
}

// checkVictim notes that a pod is evicted: the scheduler writes the standard condition,
// with the gang that it makes room for, before it deletes the pod. What is left of a gang that was cut
// short goes for nobody: it must be less than its own gang needs, and a gang that has run keeps it,
// unless the scheduler that has seen it run has ended.
func (a *audit) checkVictim(before, pod *corev1.Pod) {
	preemptor, evicted := preemptorOf(pod)
	if before != nil {
		if _, already := preemptorOf(before); already {
			return
		}
	}
	if !evicted {
		return
	}
	if own := pod.Labels[contract.JobNameLabel]; lossesOf(pod) == pod.Namespace+"/"+own {
		a.note("%s is evicted for what its gang has lost", pod.Name)
		a.retired++
		if bound := a.bound(own); !a.stale || bound >= a.gangs[own].minimum {
			a.violation("%s is evicted for what its gang has lost, of which %d members have a place and %d are needed", pod.Name, bound, a.gangs[own].minimum)
		}
		return
	}
	if own := pod.Labels[contract.JobNameLabel]; restOf(pod) == pod.Namespace+"/"+own {
		a.note("%s is evicted with the rest of its gang", pod.Name)
		if bound := a.bound(own); bound >= a.gangs[own].minimum {
			a.violation("%s is evicted with the rest of its gang, of which %d members have a place and %d are needed", pod.Name, bound, a.gangs[own].minimum)
		}
		if a.kills == 0 && !a.gangs[own].ran.IsZero() {
			a.violation("%s is evicted with the rest of its gang, which has run", pod.Name)
		}
		return
	}
	a.note("%s is evicted for %s", pod.Name, preemptor)
	if a.gangs[preemptor] == nil {
		a.violation("%s is evicted for %q, which is no gang", pod.Name, preemptor)
		return
	}
	a.evictions = append(a.evictions, eviction{pod: pod.Name, preemptor: preemptor, at: time.Now()})
	a.checkRight(pod, preemptor)
}

// checkRight complains of an eviction that no rule allows: of a pod that stays whoever comes, for a gang of no higher
// priority where that alone decides, which it does within a leaf, for a gang without a leaf where there are leaves, or
// for one that has come while the quota tree is invalid.
func (a *audit) checkRight(pod *corev1.Pod, preemptor string) {
	by := a.gangs[preemptor]
	g, leaf := a.gangs[pod.Labels[contract.JobNameLabel]], pod.Labels[contract.QuotaLabel]
	higher := by.urgent && (g == nil || !g.urgent)
	waits := slices.ContainsFunc(slices.Collect(maps.Values(a.pods)), func(p *corev1.Pod) bool {
		return p.Labels[contract.JobNameLabel] == preemptor && !a.isBarred(string(p.UID))
	})
	switch {
	case g != nil && g.stays:
		a.violation("%s is evicted for %s, and nobody may evict it", pod.Name, preemptor)
	case a.leafless && !higher:
		a.violation("%s is evicted for %s, which has no higher priority", pod.Name, preemptor)
	case !a.leafless && (by.leaf == "" || leaf == ""):
		a.violation("%s of leaf %q is evicted for %s of leaf %q", pod.Name, leaf, preemptor, by.leaf)
	case !a.leafless && by.leaf == leaf && !higher:
		a.violation("%s is evicted for %s of the same leaf, which has no higher priority", pod.Name, preemptor)
	case !waits:
		a.violation("%s is evicted for %s, which the quota tree holds back", pod.Name, preemptor)
	}
}

// preemptorOf returns the name of the gang that a pod is evicted for.
func preemptorOf(pod *corev1.Pod) (name string, evicted bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler {
			gang, _, _ := strings.Cut(c.Message[strings.LastIndex(c.Message, "/")+1:], ",")
			return gang, true
		}
	}
	return "", false
}

// lossesOf returns the gang for whose losses a pod is evicted, by the scheduler's word, "" for none.
func lossesOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if text, ok := strings.CutPrefix(c.Message, contract.SchedulerName+": gang "); ok && c.Type == corev1.DisruptionTarget {
			gang, _, _ := strings.Cut(text, " has lost members")
			return gang
		}
	}
	return ""
}

// restOf returns the gang of which a pod is what is left, by the scheduler's word, "" for none.
func restOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if rest, ok := strings.CutPrefix(c.Message, contract.SchedulerName+": the rest of gang "); ok && c.Type == corev1.DisruptionTarget {
			gang, _, _ := strings.Cut(rest, " ")
			return gang
		}
	}
	return ""
}

// lost notes that the run takes something away: a pod or the PodGroup of a gang, by the
// gang's name, a node, or quota of a limit.
func (a *audit) lost(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.losses = append(a.losses, loss{what, time.Now()})
}

// inVain names an eviction that has not helped its gang, "" when there is none: after it
// the gang must have had as many members bound at one time as it needs. The only excuse is
// that the run itself took from the gang what it needed, after the eviction or so shortly
// before that the scheduler could not know: one of its pods, its PodGroup, a node that one
// of its pods was nominated for, or quota of a limit over it. Kills, restarts, clocks, and
// what the run took from others are no excuse.
func (a *audit) inVain() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.evictions {
		g := a.gangs[e.preemptor]
		excused := slices.ContainsFunc(a.losses, func(l loss) bool {
			return l.at.After(e.at.Add(-actsLate)) && (l.what == e.preemptor || g.nominated[l.what] || a.limited(g.leaf, l.what))
		})
		if !excused && g.ran.Before(e.at) && a.bound(e.preemptor) < g.minimum {
			return fmt.Sprintf("%s was evicted for gang %s, which does not run", e.pod, e.preemptor)
		}
	}
	return ""
}

// limited reports whether a limit of that name is over a leaf.
func (a *audit) limited(leaf, name string) bool {
	return slices.ContainsFunc(a.leaves[leaf], func(l *limit) bool { return l.name == name })
}

// summary says how much has happened, and counts what a suite has to have met.
func (a *audit) summary() (text string, met map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ran, preemptors := 0, map[string]bool{}
	for _, g := range a.gangs {
		if !g.ran.IsZero() {
			ran++
		}
	}
	for _, e := range a.evictions {
		preemptors[e.preemptor] = true
	}
	met = map[string]int{
		evictionsMet: len(a.evictions), "pods of gangs that had lost members evicted": a.retired, "records altered": a.altered,
		"invalid quota trees": a.bars, "launchers started": a.launched,
	}
	return fmt.Sprintf("%d of %d gangs ran; pods were evicted for %d gangs; %d programs were killed; %v", ran, len(a.gangs), len(preemptors), a.kills, met), met
}

// evictionsMet are the evictions among what a suite has met.
const evictionsMet = "evictions"

// killed counts a program that the run ends.
func (a *audit) killed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kills++
}
