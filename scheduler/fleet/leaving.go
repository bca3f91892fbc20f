package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

// leaves says where a job that has no cluster may run still, "" for nowhere: it was there, and there is no proof yet that it is not any
// more. It goes to another cluster only then. Karmada forgets where a job was once the cluster has taken the order to delete it, and
// that may be before its pods are told to end; so what it said once counts until the cluster itself has shown that nothing is left, and has
// said that nothing of the job starts there any more, whoever creates it.
func (c *controller) leaves(ctx context.Context, b *binding, object *unstructured.Unstructured, gangs toCome) string {
	c.mu.Lock()
	clusters, members := maps.Clone(c.clusters), maps.Clone(c.members)
	left := c.left[b.key()]
	if left == nil {
		left = map[string]bool{}
		c.left[b.key()] = left
	}
	for _, name := range b.was() {
		if _, known := left[name]; !known {
			left[name] = true
		}
	}
	for name, m := range members {
		r := m.reservation(b.key())
		if _, known := left[name]; known || r == nil {
			continue
		}
		switch {
		case r.Spec.Fenced && r.Status.Phase != contract.PhaseFenced:
			left[name] = true // since before this program started
		case !r.Spec.Fenced && r.Labels[contract.LeftLabel] != "":
			left[name] = false // its fence is open for as long as its place is asked for there
		}
	}
	for name, may := range left {
		left[name] = may || !c.fencedOff(b.key(), name)
	}
	was := maps.Clone(left)
	c.mu.Unlock()
	var reasons []string
	for _, name := range slices.SortedFunc(maps.Keys(clusters), natural.Compare) {
		why := c.leaving(ctx, b, object, gangs, members[name], clusters[name], was[name])
		if why != "" {
			reasons = append(reasons, name+": "+why)
		} else if was[name] {
			c.mu.Lock()
			left[name] = false
			c.mu.Unlock()
		}
	}
	return strings.Join(reasons, "; ")
}

// was are the clusters that the job was in, as far as the hub knows: it was sent there last, or was evicted from there, or they have told
// of it.
func (b *binding) was() (clusters []string) {
	if sent := b.Annotations[contract.SentAnnotation]; sent != "" {
		clusters = append(clusters, sent)
	}
	for _, task := range b.Spec.GracefulEvictionTasks {
		clusters = append(clusters, task.FromCluster)
	}
	for _, told := range b.Status.AggregatedStatus {
		clusters = append(clusters, told.ClusterName)
	}
	return clusters
}

// evictedFrom reports whether the job was evicted from a cluster, and does not run in another one yet.
func (b *binding) evictedFrom(cluster string) bool {
	return slices.ContainsFunc(b.Spec.GracefulEvictionTasks, func(task fleet.Eviction) bool { return task.FromCluster == cluster })
}

// leftThere is said of a job that Karmada has left in a cluster from which it was taken.
const leftThere = "the job was left there, as the policy's preserveResourcesOnDeletion asks; delete it there"

// leftIn reports whether the binding says that the job was left in a cluster: the policy may ask for something else by now, and what is
// there runs all the same.
func (b *binding) leftIn(cluster string) bool {
	return strings.Contains(b.said(), leftThere) && strings.Contains(b.said(), cluster)
}

// leaving says that a job may run in a cluster, "" for no; was means that it was there. m is nil where nothing is known of the cluster.
func (c *controller) leaving(ctx context.Context, b *binding, object *unstructured.Unstructured, gangs toCome, m *member, cluster *contract.FleetCluster, was bool) string {
	if m == nil || !m.synced.Load() || !cluster.Reached() {
		if was && !lost(cluster) {
			return "the job was there, and the cluster cannot be asked whether it runs there still; remove the cluster from the fleet if it is lost"
		}
		return ""
	}
	pods := m.podsOf(gangs, true)
	if !was && pods == 0 {
		return ""
	}
	const silent = "the job was there, and the cluster does not answer whether it is there still"
	if was && m.rests() {
		return silent
	}
	ctx, end := m.within(ctx)
	defer end()
	found, err := c.find(ctx, b, m)
	switch {
	case err != nil && !was, found == foreign, found == rival, found == left && !was:
		return ""
	case err != nil && ctx.Err() != nil:
		return silent
	case err != nil:
		return "the job was there, and whether it is there still cannot be read: " + err.Error()
	case found == left:
		return leftThere
	}
	starts := ""
	if was {
		starts = c.fence(ctx, b, object, m) // before it is looked which pods are there
	}
	switch {
	case found == brought:
		return "the job is there still"
	case found == earlier:
		return found.String()
	case !was:
		pods = m.podsOf(gangs, false)
	case pods == 0: // the watch may not have shown the last ones that the job has made
		if pods, err = m.podsLeft(ctx, b, gangs); err != nil {
			return "the job was there, and whether pods of it are there still cannot be read: " + err.Error()
		}
	}
	if pods > 0 {
		return fmt.Sprintf("%d of its pods are there still", pods)
	}
	return starts
}

// lost reports whether someone has said that nothing runs in a cluster: it is not reached, and is being removed from the fleet.
func lost(cluster *contract.FleetCluster) bool {
	return cluster.DeletionTimestamp != nil && !cluster.Reached()
}

// podsOf counts the pods of gangs that the member shows, all or those that are being deleted: others may be someone else's.
func (m *member) podsOf(gangs toCome, all bool) (pods int) {
	for _, key := range gangs.Keys() {
		gang, _ := m.state.Gang(key)
		for _, pod := range gang.Pods {
			if all || pod.DeletionTimestamp != nil {
				pods++
			}
		}
	}
	return pods
}

// podsLeft counts the pods of a job that is not there any more, as the API server of the member tells: those of its gangs, and those that
// are in none.
func (m *member) podsLeft(ctx context.Context, b *binding, gangs toCome) (pods int, err error) {
	list, err := m.client.Typed.CoreV1().Pods(b.Spec.Resource.Namespace).List(ctx, metav1.ListOptions{FieldSelector: unfinished})
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if key, _ := inventory.PlanKey(pod); b.made(pod) || slices.Contains(gangs.Keys(), key) {
			pods++
		}
	}
	return pods, nil
}

// made reports whether a pod is one of the job, by what has made it: the job itself, or what its operator makes for it.
func (b *binding) made(pod *corev1.Pod) bool {
	of, maker := b.Spec.Resource, metav1.GetControllerOfNoCopy(pod)
	if maker == nil {
		return false
	}
	switch of.Kind {
	case contract.MPIJobKind:
		spec := job.Spec{Name: of.Name}
		return maker.Kind == of.Kind && maker.Name == of.Name || maker.Kind == contract.BatchJobKind && maker.Name == spec.Launcher() || maker.Kind == "StatefulSet" && maker.Name == job.WorkerSet(of.Name)
	case contract.JobSetKind, contract.TrainJobKind:
		return pod.Labels[contract.JobSetNameLabel] == of.Name
	}
	return maker.Kind == of.Kind && maker.Name == of.Name
}

// removed reports whether a job is in a cluster that is being removed from the fleet. Of one that the hub does not show nobody has said that.
func (c *controller) removed(b *binding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cluster := c.clusters[b.Cluster()]
	return cluster != nil && cluster.DeletionTimestamp != nil
}

// withdraw takes a job out of a cluster that is removed from the fleet, once nothing of it is there any more: Karmada deletes it there,
// and keeps the cluster until no binding names it. Of a cluster that is not reached who removes it has said that nothing runs there. A
// job that has finished stays in its cluster, which goes when the job is deleted: elsewhere it would run once more.
func (c *controller) withdraw(ctx context.Context, b *binding, object *unstructured.Unstructured, gangs toCome) error {
	from := b.Cluster()
	c.mu.Lock()
	cluster, m := c.clusters[from], c.members[from]
	c.mu.Unlock()
	if cluster == nil {
		return nil // it has gone in this moment
	}
	if cluster.Reached() {
		if why := c.leaving(ctx, b, object, gangs, m, cluster, true); why != "" {
			c.work.AddAfter(b.key(), leavesAgain)
			return c.refuse(ctx, b, object, reasonNoCluster, fmt.Sprintf("cluster %s is being removed from the fleet, and the job waits until it is gone from there: %s", from, why))
		}
	}
	_, err := c.takeOut(ctx, b, object, map[string]any{}, fmt.Sprintf("cluster %s is removed from the fleet: the job goes to another one", from))
	return err
}

// takeOut takes a job out of its cluster, with a change of the binding's spec, and says why; done is false where the binding has changed
// meanwhile, which is told.
func (c *controller) takeOut(ctx context.Context, b *binding, object *unstructured.Unstructured, spec map[string]any, why string) (done bool, err error) {
	from := b.Cluster()
	spec["clusters"] = []any{}
	if done, err = c.rewrite(ctx, b, map[string]any{}, map[string]any{"spec": spec}); err != nil {
		return false, fmt.Errorf("take %s %s/%s out of cluster %s: %w", b.Spec.Resource.Kind, b.Spec.Resource.Namespace, b.Spec.Resource.Name, from, err)
	}
	if done {
		c.meters.withdrawn.WithLabelValues(from).Inc()
		c.tell(b, object, corev1.EventTypeWarning, eventWithdrawn, why)
	}
	return done, nil
}
