package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Karmada's words for what a scheduler has done.
const (
	reasonSuccess    = "Success"
	reasonNoCluster  = "NoClusterFit"
	reasonUnreadable = "Unschedulable"
	eventSucceeded   = "ScheduleBindingSucceed"
	eventFailed      = "ScheduleBindingFailed"
	eventWithdrawn   = "WithdrawnFromCluster"
)

// commit sends a job to a cluster, in one write that fails if the binding has changed, and says so.
func (c *controller) commit(ctx context.Context, b *binding, object *unstructured.Unstructured, cluster string, pods []*corev1.Pod) error {
	placement, _, err := unstructured.NestedMap(b.object.Object, "spec", "placement")
	if err != nil {
		return fmt.Errorf("read the placement of binding %s: %w", b.key(), err)
	}
	applied, err := json.Marshal(placement)
	if err != nil {
		return fmt.Errorf("encode the placement of binding %s: %w", b.key(), err)
	}
	written, err := c.patch(ctx, b, map[string]any{"annotations": map[string]string{contract.AppliedPlacementAnnotation: string(applied), contract.SentAnnotation: cluster}}, map[string]any{
		"spec": map[string]any{"clusters": b.target(cluster)},
	})
	if err != nil {
		return fmt.Errorf("send %s %s/%s to cluster %s: %w", b.Spec.Resource.Kind, b.Spec.Resource.Namespace, b.Spec.Resource.Name, cluster, err)
	}
	c.wrote(written) // else it is sent once more, and fails
	c.tell(b, object, corev1.EventTypeNormal, eventSucceeded, result(cluster, pods))
	return nil // its status is written once the hub shows it
}

// target is a cluster as that of a job.
func (b *binding) target(cluster string) []any {
	target := map[string]any{"name": cluster}
	if b.Spec.Replicas > 0 { // Karmada gives the object that many in the cluster: without, a Job has the parallelism 0 there
		target["replicas"] = b.Spec.Replicas
	}
	return []any{target}
}

// noted reports whether a binding says where its job is, and how many replicas Karmada is to give it there.
func (b *binding) noted() bool {
	return b.Annotations[contract.SentAnnotation] == b.Cluster() && (len(b.Spec.Clusters) > 1 || b.Spec.Clusters[0].Replicas == b.Spec.Replicas)
}

// note has a binding say that: someone else has sent the job, or an older version of this program, or its replicas have changed since.
func (c *controller) note(ctx context.Context, b *binding) error {
	change := map[string]any{}
	if len(b.Spec.Clusters) == 1 {
		change["spec"] = map[string]any{"clusters": b.target(b.Cluster())}
	}
	return c.annotate(ctx, b, contract.SentAnnotation, b.Cluster(), change)
}

// noteSuccess has a binding say whether its job has succeeded.
func (c *controller) noteSuccess(ctx context.Context, b *binding, object *unstructured.Unstructured, succeeded bool) error {
	var uid any
	if succeeded {
		uid = string(object.GetUID())
	}
	return c.annotate(ctx, b, contract.SucceededAnnotation, uid, map[string]any{})
}

// annotate notes something on a binding, nil to forget it, with a change of it.
func (c *controller) annotate(ctx context.Context, b *binding, name string, value any, change map[string]any) error {
	if _, err := c.rewrite(ctx, b, map[string]any{"annotations": map[string]any{name: value}}, change); err != nil {
		return fmt.Errorf("note what is known of %s %s/%s: %w", b.Spec.Resource.Kind, b.Spec.Resource.Namespace, b.Spec.Resource.Name, err)
	}
	return nil
}

// rewrite changes a binding, and takes that in; done is false where it has changed meanwhile, which is told.
func (c *controller) rewrite(ctx context.Context, b *binding, metadata, change map[string]any) (done bool, err error) {
	written, err := c.patch(ctx, b, metadata, change)
	if apierrors.IsConflict(err) {
		return false, nil
	}
	if err == nil {
		c.wrote(written)
	}
	return err == nil, err
}

// patch changes a binding with a merge patch, which fails if the binding has changed.
func (c *controller) patch(ctx context.Context, b *binding, metadata, change map[string]any, subresources ...string) (*unstructured.Unstructured, error) {
	metadata["resourceVersion"], change["metadata"] = b.ResourceVersion, metadata
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of binding %s: %w", b.key(), err)
	}
	return c.hub.Dynamic.Resource(bindings).Namespace(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: contract.FleetSchedulerName}, subresources...)
}

// tell makes an event of a binding, and of its job, nil where this program may not read it.
func (c *controller) tell(b *binding, object *unstructured.Unstructured, kind, reason, text string) {
	c.events.Event(b.object, kind, reason, text)
	if object != nil {
		c.events.Event(object, kind, reason, text)
	}
}

// refuse says why a job has no cluster.
func (c *controller) refuse(ctx context.Context, b *binding, object *unstructured.Unstructured, reason, text string) error {
	if b.said() == text {
		return nil
	}
	c.mu.Lock()
	rest := quiet - time.Since(c.told[b.key()])
	c.mu.Unlock()
	if rest > 0 {
		c.work.AddAfter(b.key(), rest)
		return nil
	}
	if written, err := c.report(ctx, b, metav1.ConditionFalse, reason, text); err != nil || !written {
		return err
	}
	c.mu.Lock()
	c.told[b.key()] = time.Now()
	c.mu.Unlock()
	c.tell(b, object, corev1.EventTypeWarning, eventFailed, text)
	return nil
}

// said is what the binding's condition Scheduled says.
func (b *binding) said() string {
	if scheduled := b.Scheduled(); scheduled != nil {
		return scheduled.Message
	}
	return ""
}

// report writes the condition of a binding. It is not written where the binding has changed: the change is told, and it is written then.
func (c *controller) report(ctx context.Context, b *binding, status metav1.ConditionStatus, reason, text string) (written bool, err error) {
	of := map[string]any{"conditions": condition.Among(b.object, metav1.Condition{Type: contract.BindingScheduled, Status: status, Reason: reason, Message: text})}
	if status == metav1.ConditionTrue {
		of["lastScheduledTime"], of["schedulerObservedGeneration"] = metav1.Now(), b.Generation
	}
	switch _, err = c.patch(ctx, b, map[string]any{}, map[string]any{"status": of}, "status"); {
	case apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the status of binding %s: %w", b.key(), err)
	}
	return true, nil
}

// result says where a job goes, in the words of ACK's document.
func result(cluster string, pods []*corev1.Pod) string {
	return fmt.Sprintf("Binding has been scheduled successfully. Result: {%s:0,[%s]}", cluster, components(pods))
}

// components counts the pods of each role, "{master 1} {worker 2}".
func components(pods []*corev1.Pod) string {
	counts := map[string]int{}
	for _, pod := range pods {
		role, _ := inventory.Replica(pod)
		counts[role]++
	}
	var parts []string
	for _, role := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("{%s %d}", role, counts[role]))
	}
	return strings.Join(parts, " ")
}
