package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
)

// Karmada's words for an eviction, and the toleration of a policy that says none.
// https://github.com/karmada-io/karmada/blob/v1.17.1/pkg/apis/policy/v1alpha1/propagation_types.go, ApplicationFailoverBehavior
const (
	purgeDirectly, purgeImmediately = "Directly", "Immediately"
	unhealthy                       = "Unhealthy"
	reasonApplicationFailure        = "ApplicationFailure"
	defaultToleration               = 300 * time.Second
)

// toleration is for how long a gang of the binding may wait in its cluster; ok is false where its policy wants no failover.
func (b *binding) toleration() (tolerated time.Duration, ok bool) {
	switch {
	case b.Spec.Failover == nil || b.Spec.Failover.Application == nil:
		return 0, false
	case b.Spec.Failover.Application.DecisionConditions.TolerationSeconds == nil:
		return defaultToleration, true
	}
	return time.Duration(*b.Spec.Failover.Application.DecisionConditions.TolerationSeconds) * time.Second, true
}

// watchedJob is one whose gangs may wait in the cluster to which it was sent for some time only.
type watchedJob struct {
	cluster string
	gangs   toCome
	// since is when one was seen first to wait, zero while none does.
	since time.Time
	// refused means that the cluster does not take the job, failed that it has failed there, which Karmada does not see.
	refused, failed bool
}

// waits reports whether a gang of a job waits in a member cluster, or would if the cluster took the job, or had not failed there.
func (w watchedJob) waits(m *member) bool {
	return w.failed || m.waits(w.gangs) || w.refused && !m.has(w.gangs)
}

// failedUnseen reports whether the job has failed in its cluster, and is of a kind of which Karmada does not know that: it evicts those
// that it finds unhealthy itself.
func (b *binding) failedUnseen(object *unstructured.Unstructured) bool {
	there := b.Shown(object)
	if there == nil || b.ToldBy(b.Cluster()).Health == unhealthy {
		return false
	}
	status, err := job.StatusOf(there)
	return err == nil && status.Phase == job.Failed
}

// refusedBy reports whether Karmada could not make the job in a cluster. It says so, too, where it could not change it.
func (b *binding) refusedBy(cluster string) bool {
	told := b.ToldBy(cluster)
	return told != nil && !told.Applied && told.AppliedMessage != ""
}

// waits reports whether the member shows a gang of a job of which fewer members run than it needs, and one waits for a node. Members that
// have ended, and those that someone holds, wait for none.
func (m *member) waits(gangs toCome) bool {
	for _, key := range gangs.Keys() {
		gang, ok := m.state.Gang(key)
		if !ok || m.state.GangStatus(key, "").Runs {
			continue
		}
		for _, pod := range gang.Pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 {
				return true
			}
		}
	}
	return false
}

// watchOver takes a gang out of its cluster that waits there for longer than its policy tolerates: its place was lost before its pods
// came, or it has lost members and finds no place for others, or the cluster does not take its job. Karmada, which evicts jobs that have
// failed, takes a job that waits for well, and any of a kind that it does not know.
// As long as no other cluster has a place it stays, since members of it may run.
func (c *controller) watchOver(ctx context.Context, b *binding, object *unstructured.Unstructured, gangs toCome, finished bool) error {
	tolerated, wanted := b.toleration()
	name := b.Cluster()
	c.mu.Lock()
	m := c.members[name]
	seen, shown := c.watched[b.key()], m != nil && m.synced.Load() && c.ready(name)
	if seen.cluster != name || !shown {
		seen = watchedJob{cluster: name}
	}
	seen.gangs, seen.refused, seen.failed = gangs, b.refusedBy(name), finished && b.failedUnseen(object)
	switch {
	case !wanted || finished && !seen.failed:
		delete(c.watched, b.key())
		c.mu.Unlock()
		return nil
	case !shown: // its time begins once the cluster shows that it waits, of which it is told
		c.watched[b.key()] = seen
		c.mu.Unlock()
		return nil
	}
	switch waits := seen.waits(m); {
	case !waits:
		seen.since = time.Time{}
	case seen.since.IsZero():
		seen.since = time.Now()
	}
	c.watched[b.key()] = seen
	c.mu.Unlock()
	if seen.since.IsZero() {
		return nil
	}
	if rest := tolerated - time.Since(seen.since); rest > 0 {
		c.work.AddAfter(b.key(), rest)
		return nil
	}
	offers, _, _ := c.offers(b, gangs)
	if !slices.ContainsFunc(offers, func(offer clusterchoice.Offer) bool { return offer.Cluster != name }) {
		c.mu.Lock()
		c.waiting[b.key()] = true
		c.mu.Unlock()
		return nil
	}
	why := fmt.Sprintf("its gang has waited in cluster %s for %s", name, time.Since(seen.since).Round(time.Second))
	switch {
	case seen.failed:
		why = fmt.Sprintf("it has failed in cluster %s, %s ago", name, time.Since(seen.since).Round(time.Second))
	case seen.refused && !m.has(gangs):
		why = fmt.Sprintf("cluster %s has not taken it for %s: %s", name, time.Since(seen.since).Round(time.Second), strings.TrimSuffix(b.ToldBy(name).AppliedMessage, "."))
	}
	return c.evict(ctx, b, object, fmt.Sprintf("%s; the policy tolerates that for %s: it goes to another one", why, tolerated))
}

// evict takes a job out of its cluster as Karmada does.
func (c *controller) evict(ctx context.Context, b *binding, object *unstructured.Unstructured, why string) error {
	tasks, _, err := unstructured.NestedSlice(b.object.Object, "spec", "gracefulEvictionTasks")
	if err != nil {
		return fmt.Errorf("read the evictions of binding %s: %w", b.key(), err)
	}
	mode := b.Spec.Failover.Application.PurgeMode
	if mode != purgeImmediately { // the others let it run in both clusters
		mode = purgeDirectly
	}
	from := b.Cluster()
	tasks = slices.DeleteFunc(tasks, func(task any) bool {
		of, ok := task.(map[string]any)
		return ok && of["fromCluster"] == from
	})
	tasks = append(tasks, map[string]any{
		"fromCluster": from, "purgeMode": mode, "reason": reasonApplicationFailure, "message": why, "producer": contract.FleetSchedulerName,
		"creationTimestamp": metav1.Now(), "clustersBeforeFailover": []any{from},
	})
	if done, err := c.takeOut(ctx, b, object, map[string]any{"gracefulEvictionTasks": tasks}, why); !done {
		return err
	}
	c.mu.Lock()
	delete(c.watched, b.key())
	c.mu.Unlock()
	c.yield(ctx, b.key())
	return nil
}

// stir has gangs looked at that begin to wait in a member cluster, or wait no longer; mu must be held.
func (c *controller) stir(m *member) {
	for key, seen := range c.watched {
		if seen.cluster == m.name && seen.waits(m) == seen.since.IsZero() {
			c.work.Add(key)
		}
	}
}
