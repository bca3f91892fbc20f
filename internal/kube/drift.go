package kube

import (
	"context"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Deletion is the field in which an object that is being deleted differs from one that
// is to stay.
const Deletion = ".metadata.deletionTimestamp"

// RefusedError means that the server did not try in a dry run what applying an object would change: the user may not
// change the object, or admission refuses that or does not answer.
type RefusedError struct{ err error }

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

// IsRefusal reports whether an error is the server's answer that it does not do what it was asked for. Policies and webhooks
// choose among these codes, and a webhook that names none gets 400.
func IsRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsBadRequest(err)
}

// Drift asks the server what applying an object would change, whoever owns the
// fields now, and returns the paths of the fields, ".spec.replicas", sorted; none
// when nothing would. The error answers to [IsNotFound] when there is no such object, and is
// a [*RefusedError] when there is one which the server refuses to compare.
func (c *Client) Drift(ctx context.Context, obj *unstructured.Unstructured) ([]string, error) {
	live, err := c.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	if err != nil {
		return nil, err
	}
	if live.GetDeletionTimestamp() != nil {
		return []string{Deletion}, nil
	}
	applied, err := c.forceApply(ctx, obj, metav1.DryRunAll)
	if IsRefusal(err) || apierrors.IsInternalError(err) {
		return nil, &RefusedError{err}
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, o := range []*unstructured.Unstructured{live, applied} {
		unstructured.RemoveNestedField(o.Object, "status")
		for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		// the API server's own, as metadata.generation
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", appsv1.DeprecatedTemplateGeneration)
	}
	differences("", live.Object, applied.Object, &paths)
	slices.Sort(paths)
	return paths, nil
}

// TakeOver applies an object like [Client.Apply], and takes the fields that others
// own. It is for objects that are ours altogether, after the user has seen the drift.
func (c *Client) TakeOver(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.forceApply(ctx, obj)
}

// TryTakeOver asks the server whether it would let [Client.TakeOver] write an object, with the same error, and writes nothing.
func (c *Client) TryTakeOver(ctx context.Context, obj *unstructured.Unstructured) error {
	_, err := c.forceApply(ctx, obj, metav1.DryRunAll)
	return err
}

func (c *Client) forceApply(ctx context.Context, obj *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	return c.apply(ctx, obj, metav1.ApplyOptions{FieldManager: contract.FieldManager, Force: true, DryRun: dryRun})
}

// differences collects the paths at which two objects differ. Lists are compared whole.
func differences(at string, a, b map[string]any, paths *[]string) {
	keys := map[string]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	for key := range maps.Keys(keys) {
		path := at + "." + key
		x, y := a[key], b[key]
		below, isMap := x.(map[string]any)
		other, otherIsMap := y.(map[string]any)
		switch {
		case isMap && otherIsMap:
			differences(path, below, other, paths)
		case !reflect.DeepEqual(x, y):
			*paths = append(*paths, path)
		}
	}
}
