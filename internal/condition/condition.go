// Package condition reads and writes conditions of objects. Several parts of the programs
// write one condition each of an object, at the same time. Server-side apply keeps them
// apart: a writer owns its condition and does not send the others, of which it may have
// seen an old state.
package condition

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// List reads the conditions of an object.
func List(object *unstructured.Unstructured) ([]metav1.Condition, error) {
	var have struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &have); err != nil {
		return nil, fmt.Errorf("read the conditions of %s: %w", title(object), err)
	}
	return have.Status.Conditions, nil
}

// Find reads the condition of a type, nil when the object has none.
func Find(object *unstructured.Unstructured, conditionType string) (*metav1.Condition, error) {
	have, err := List(object)
	return meta.FindStatusCondition(have, conditionType), err
}

// Set returns conditions with one of them as it is now. Its LastTransitionTime stays while
// its status does.
func Set(have []metav1.Condition, c metav1.Condition) []metav1.Condition {
	next := slices.Clone(have)
	meta.SetStatusCondition(&next, c)
	return next
}

// Fields are conditions in the form that an object's status has them in.
func Fields(conditions []metav1.Condition) (list []any) {
	for _, c := range conditions {
		fields := map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
		}
		if c.ObservedGeneration != 0 {
			fields["observedGeneration"] = c.ObservedGeneration
		}
		list = append(list, fields)
	}
	return list
}

// Patch is what server-side apply takes to write one condition of an object, nil when the
// object says the same. LastTransitionTime stays as it is in object while the status does.
func Patch(object *unstructured.Unstructured, c metav1.Condition) (*unstructured.Unstructured, error) {
	have, err := List(object)
	if err != nil {
		return nil, err
	}
	before := meta.FindStatusCondition(have, c.Type)
	if before != nil && before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message {
		return nil, nil
	}
	return patch(object, have, c), nil
}

func patch(object *unstructured.Unstructured, have []metav1.Condition, c metav1.Condition) *unstructured.Unstructured {
	fields := Fields([]metav1.Condition{*meta.FindStatusCondition(Set(have, c), c.Type)})
	patch := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": fields}}}
	patch.SetGroupVersionKind(object.GroupVersionKind())
	patch.SetName(object.GetName())
	patch.SetNamespace(object.GetNamespace())
	return patch
}

// Apply writes a condition of an object of resource, such as "podgroups", as the field
// manager owner, and leaves its others alone. It is not written when the object says the
// same, and it is no error that the object is gone.
func Apply(ctx context.Context, client dynamic.Interface, resource, owner string, object *unstructured.Unstructured, c metav1.Condition) (written bool, err error) {
	c.ObservedGeneration = object.GetGeneration()
	patch, err := Patch(object, c)
	if patch == nil || err != nil {
		return false, err
	}
	return apply(ctx, client, resource, owner, object, patch, c)
}

// Write is Apply for an object that may be older than what was written last: what it says
// does not count.
func Write(ctx context.Context, client dynamic.Interface, resource, owner string, object *unstructured.Unstructured, c metav1.Condition) (written bool, err error) {
	c.ObservedGeneration = object.GetGeneration()
	have, err := List(object)
	if err != nil {
		return false, err
	}
	return apply(ctx, client, resource, owner, object, patch(object, have, c), c)
}

func apply(ctx context.Context, client dynamic.Interface, resource, owner string, object, patch *unstructured.Unstructured, c metav1.Condition) (written bool, err error) {
	gvr := object.GroupVersionKind().GroupVersion().WithResource(resource)
	_, err = client.Resource(gvr).Namespace(object.GetNamespace()).ApplyStatus(ctx, object.GetName(), patch,
		metav1.ApplyOptions{FieldManager: owner, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("write condition %s of %s: %w", c.Type, title(object), err)
	}
	return true, nil
}

func title(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}
