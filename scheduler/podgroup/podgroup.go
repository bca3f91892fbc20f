// Package podgroup reads and writes conditions of PodGroups. Several parts of the
// scheduler write one condition each, at the same time. Server-side apply keeps them
// apart: a writer owns its condition and does not send the others, of which it may have
// seen an old state.
package podgroup

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

var resource = schema.GroupVersionResource{Group: contract.PodGroupGroup, Version: contract.PodGroupVersion, Resource: contract.PodGroupResource}

// Condition reads the condition of a type, nil when the PodGroup has none.
func Condition(group *unstructured.Unstructured, conditionType string) (*metav1.Condition, error) {
	var have struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(group.Object, &have); err != nil {
		return nil, fmt.Errorf("read the conditions of PodGroup %s/%s: %w", group.GetNamespace(), group.GetName(), err)
	}
	return meta.FindStatusCondition(have.Status.Conditions, conditionType), nil
}

// Apply writes a condition as the field manager owner and leaves the PodGroup's others
// alone. LastTransitionTime stays as it is in group while the status does. It is no error
// that the PodGroup is gone.
func Apply(ctx context.Context, client dynamic.Interface, owner string, group *unstructured.Unstructured, c metav1.Condition) error {
	have, err := Condition(group, c.Type)
	if err != nil {
		return err
	}
	if have != nil && have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	patch := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339), "observedGeneration": group.GetGeneration(),
		}}},
	}}
	patch.SetAPIVersion(contract.PodGroupAPIVersion)
	patch.SetKind(contract.PodGroupKind)
	patch.SetName(group.GetName())
	patch.SetNamespace(group.GetNamespace())
	_, err = client.Resource(resource).Namespace(group.GetNamespace()).ApplyStatus(ctx, group.GetName(), patch,
		metav1.ApplyOptions{FieldManager: owner, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition %s of PodGroup %s/%s: %w", c.Type, group.GetNamespace(), group.GetName(), err)
	}
	return nil
}
