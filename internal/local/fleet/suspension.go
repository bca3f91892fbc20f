package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// policies are those of the hub of the local platform.
var policies = schema.GroupVersion{Group: contract.KarmadaPolicyGroup, Version: "v1alpha1"}

// again is when a binding is let go again for which the API server had no good answer.
const again = 5 * time.Second

// Annotations by which Karmada's bindings name their policy.
const (
	policyNamespaceAnnotation = "propagationpolicy.karmada.io/namespace"
	policyNameAnnotation      = "propagationpolicy.karmada.io/name"
	clusterPolicyAnnotation   = "clusterpropagationpolicy.karmada.io/name"
)

// Release lets the scheduler of the fleet have bindings, until ctx ends, of which the policy does not say suspension.scheduling, as on
// ACK's hubs: here all of its bindings are born held, since what makes them knows nothing of that field.
func Release(ctx context.Context, hub *kube.Client) error {
	r := &releaser{hub: hub, policies: map[types.NamespacedName]bool{}, held: map[types.NamespacedName]*unstructured.Unstructured{}, wake: make(chan struct{}, 1)}
	bindings := schema.GroupVersionResource{Group: contract.KarmadaWorkGroup, Version: contract.ResourceBindingVersion, Resource: contract.ResourceBindingResource}
	var synced []cache.InformerSynced
	for resource, handler := range map[schema.GroupVersionResource]cache.ResourceEventHandler{
		policies.WithResource(contract.PropagationPolicyResource):        follow.On(r.setPolicy, r.removePolicy),
		policies.WithResource(contract.ClusterPropagationPolicyResource): follow.On(r.setPolicy, r.removePolicy),
		bindings: follow.On(r.setBinding, r.removeBinding),
	} {
		hasSynced, err := follow.Custom(ctx, hub.Dynamic, resource, metav1.NamespaceAll, handler)
		if err != nil {
			return err
		}
		synced = append(synced, hasSynced)
	}
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), synced...) {
			return
		}
		for {
			for _, binding := range r.due() {
				if err := r.release(ctx, bindings, binding); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "A binding stays held, and is let go later")
					time.AfterFunc(again, func() { r.change(func() {}) })
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
		}
	}()
	return nil
}

// releaser knows the policies of a hub, and the bindings that are held.
type releaser struct {
	hub  *kube.Client
	wake chan struct{}

	mu sync.Mutex
	// policies are whether they hold their bindings.
	policies map[types.NamespacedName]bool
	held     map[types.NamespacedName]*unstructured.Unstructured
}

func nameOf(object *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (r *releaser) change(do func()) {
	r.mu.Lock()
	do()
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *releaser) setPolicy(object *unstructured.Unstructured) {
	holds, _, _ := unstructured.NestedBool(object.Object, "spec", "suspension", "scheduling")
	r.change(func() { r.policies[nameOf(object)] = holds })
}

func (r *releaser) removePolicy(object *unstructured.Unstructured) {
	r.change(func() { delete(r.policies, nameOf(object)) })
}

func (r *releaser) setBinding(object *unstructured.Unstructured) {
	held, _, _ := unstructured.NestedBool(object.Object, "spec", "suspension", "scheduling")
	scheduler, _, _ := unstructured.NestedString(object.Object, "spec", "schedulerName")
	if !held || scheduler != contract.FleetSchedulerName {
		r.removeBinding(object)
		return
	}
	r.change(func() { r.held[nameOf(object)] = object })
}

func (r *releaser) removeBinding(object *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, nameOf(object))
}

// due are the bindings that are held though their policy does not say so.
func (r *releaser) due() (bindings []*unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, binding := range r.held {
		annotations := binding.GetAnnotations()
		policy := types.NamespacedName{Namespace: annotations[policyNamespaceAnnotation], Name: annotations[policyNameAnnotation]}
		if policy.Name == "" {
			policy = types.NamespacedName{Name: annotations[clusterPolicyAnnotation]}
		}
		if holds, known := r.policies[policy]; known && !holds {
			bindings = append(bindings, binding)
		}
	}
	return bindings
}

func (r *releaser) release(ctx context.Context, bindings schema.GroupVersionResource, binding *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": binding.GetResourceVersion()},
		"spec":     map[string]any{"suspension": map[string]bool{"scheduling": false}},
	})
	if err != nil {
		return fmt.Errorf("encode the patch of binding %s: %w", nameOf(binding), err)
	}
	_, err = r.hub.Dynamic.Resource(bindings).Namespace(binding.GetNamespace()).Patch(ctx, binding.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the change is told
	}
	if err != nil {
		return fmt.Errorf("let binding %s go: %w", nameOf(binding), err)
	}
	return nil
}
