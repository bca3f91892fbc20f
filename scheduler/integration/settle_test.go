package integration

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// settle waits until every gang runs or waits as a whole, and nobody waits for whom
// there is room.
func (c *chaos) settle(t *testing.T) {
	t.Helper()
	c.audit.did("all steps are done")
	deadline := time.Now().Add(chaosSettled)
	for {
		c.revive(t)
		problem := cmp.Or(c.unsettled(t), c.unfinishedJobs(t.Context()), c.audit.inVain())
		if problem == "" {
			c.audit.did("settled")
			return
		}
		c.audit.checkTime()
		if time.Now().After(deadline) {
			t.Errorf("seed %s does not settle: %s", c.id, problem)
			return
		}
		time.Sleep(tick)
	}
}

// unsettled says what is not settled, "" when everything is.
func (c *chaos) unsettled(t *testing.T) string {
	ctx := t.Context()
	list, err := api().CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	byGang := map[string][]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		name := pod.Labels[contract.JobNameLabel]
		byGang[name] = append(byGang[name], pod)
	}
	snapshot, err := clusterlist.Snapshot(ctx, cluster.client)
	if err != nil {
		return err.Error()
	}
	for _, g := range c.operator.list() {
		pods, held, launched := byGang[g.name], 0, 0
		for _, pod := range pods {
			switch {
			case holds(pod) && launches(pod):
				launched++
			case holds(pod):
				held++
			}
		}
		minimum, able := c.audit.gangs[g.name].minimum, c.able(pods)
		members := len(able) - (len(g.pods) - g.late)
		switch {
		case len(pods) < len(g.pods):
			return fmt.Sprintf("gang %s has %d of %d pods", g.name, len(pods), len(g.pods))
		case held >= minimum && launched < len(g.pods)-g.late:
			return fmt.Sprintf("gang %s runs, and its launcher does not: %s", g.name, waits(pods))
		case held == members, held == 0 && members < minimum:
			continue
		case held > 0 && held < minimum && !c.audit.ranWhole(g.name) && (!c.audit.isUnclear(g.name) || fit(snapshot.View, g, able) > 0):
			return fmt.Sprintf("gang %s is bound in part: %d of %d", g.name, held, minimum)
		}
		if n := fit(snapshot.View, g, able); n > 0 {
			c.giveTime(t, snapshot.View, pods, byGang)
			return fmt.Sprintf("gang %s waits with %d of %d bound, and %d more fit: %s", g.name, held, len(g.pods), n, waits(pods))
		}
	}
	return ""
}

// fit is how many more members of a gang fit when no place is held for anybody.
func fit(view *snapshot.View, g worldGang, pods []*corev1.Pod) int {
	gang, _ := inventory.Gang(pods, g.podGroup, view.Quota())
	if placed := planner.Plan(view, gang).Placement; placed != nil {
		return len(placed.Assignments)
	}
	return 0
}

// waits is why a gang waits, as its pods say.
func waits(pods []*corev1.Pod) string {
	var list []corev1.Pod
	for _, pod := range pods {
		list = append(list, *pod)
	}
	return reason(list)
}

// Parts of what the pods of gangs say that wait.
var (
	heldBack = regexp.MustCompile(`Held back by the reservation of gang \S+/(\S+)\.`)
	reserved = regexp.MustCompile(`Reserved: waits for .*(gang|pod) \S+/(\S+)\.`)
)

// giveTime ends a gang, or a pod of others, for which the one waits that the given one is held back by: gangs
// of a run do not end by themselves, and those who wait for them get their turn only then.
// Nobody may be held back by a gang that could run itself, or that comes after it.
func (c *chaos) giveTime(t *testing.T, view *snapshot.View, pods []*corev1.Pod, byGang map[string][]*corev1.Pod) {
	t.Helper()
	by := heldBack.FindStringSubmatch(waits(pods))
	if !c.reserves || by == nil || len(byGang[by[1]]) == 0 {
		return
	}
	head := byGang[by[1]]
	awaited := reserved.FindStringSubmatch(waits(head))
	jobs := c.operator.list()
	i := slices.IndexFunc(jobs, func(g worldGang) bool { return g.name == by[1] })
	if awaited == nil || i < 0 || fit(view, jobs[i], c.able(head)) > 0 || comesAfter(head, pods) {
		return
	}
	c.audit.did("%s %s ends, for which gang %s waits", awaited[1], awaited[2], by[1])
	c.operator.end(awaited[2])
	now := int64(0)
	those := metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + awaited[2]}
	if awaited[1] == "pod" {
		those = metav1.ListOptions{FieldSelector: "metadata.name=" + awaited[2]}
	}
	_ = api().CoreV1().Pods(c.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, those) // those that stay are ended next time
}

// comesAfter reports whether a gang that does not run comes after another in the queue,
// for certain: the clock that orders them has seconds.
func comesAfter(gang, other []*corev1.Pod) bool {
	made := func(pod *corev1.Pod) time.Time { return pod.CreationTimestamp.Time }
	byAge := func(a, b *corev1.Pod) int { return made(a).Compare(made(b)) }
	if slices.ContainsFunc(gang, holds) {
		return false
	}
	if order := cmp.Compare(*gang[0].Spec.Priority, *other[0].Spec.Priority); order != 0 {
		return order < 0
	}
	return made(slices.MinFunc(gang, byAge)).After(made(slices.MaxFunc(other, byAge)))
}

// isUnclear is unclear for a gang by its name.
func (a *audit) isUnclear(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unclear(a.gangs[name])
}

// ranWhole reports whether a gang has been bound as a whole since it was bound last.
func (a *audit) ranWhole(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gangs[name].whole
}
