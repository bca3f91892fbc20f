package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Delete deletes an object and everything it owns, and returns when it is gone.
// An object or kind that does not exist is success. An object that someone
// recreates under the same name meanwhile is left alone.
func (c *Client) Delete(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) error {
	obj, err := c.Get(ctx, gvk, namespace, name)
	if IsNotFound(err) || errors.Is(err, ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.DeleteObject(ctx, obj)
}

// DeleteLabelled deletes the objects of a kind that match a label selector, all at the
// same time, and returns when they are gone. A kind that is not served is success.
func (c *Client) DeleteLabelled(ctx context.Context, gvk schema.GroupVersionKind, namespace, selector string) error {
	items, err := c.List(ctx, gvk, namespace, selector)
	if errors.Is(err, ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range items {
		if err := c.requestDelete(ctx, &items[i], metav1.DeletePropagationForeground); err != nil {
			return err
		}
	}
	for i := range items {
		if err := c.awaitGone(ctx, &items[i], nil); err != nil {
			return err
		}
	}
	return nil
}

// DeleteObject deletes exactly this object, by its UID, and waits until it is gone.
func (c *Client) DeleteObject(ctx context.Context, obj *unstructured.Unstructured) error {
	if err := c.requestDelete(ctx, obj, metav1.DeletePropagationForeground); err != nil {
		return err
	}
	return c.awaitGone(ctx, obj, nil)
}

// DeleteFirst deletes exactly this object, by its UID, and waits until it is gone, before what it owns: as long as it
// is there, its controller may make that again.
func (c *Client) DeleteFirst(ctx context.Context, obj *unstructured.Unstructured) error {
	if err := c.requestDelete(ctx, obj, metav1.DeletePropagationBackground); err != nil {
		return err
	}
	return c.awaitGone(ctx, obj, nil)
}

// GetSettled is [Client.Get] of an object that stays: it waits for one that is being
// deleted, and returns what is there afterwards. progress may be nil.
func (c *Client) GetSettled(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, progress func(string)) (*unstructured.Unstructured, error) {
	for {
		obj, err := c.Get(ctx, gvk, namespace, name)
		if err != nil || obj.GetDeletionTimestamp() == nil {
			return obj, err
		}
		if err := c.awaitGone(ctx, obj, progress); err != nil {
			return nil, err
		}
	}
}

// requestDelete asks for the deletion of exactly this object, by its UID.
func (c *Client) requestDelete(ctx context.Context, obj *unstructured.Unstructured, propagation metav1.DeletionPropagation) error {
	resource, err := c.resource(obj.GroupVersionKind(), obj.GetNamespace())
	if err != nil {
		return fmt.Errorf("delete %s: %w", describeObject(obj), err)
	}
	uid := obj.GetUID()
	err = resource.Delete(ctx, obj.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &propagation,
		Preconditions:     &metav1.Preconditions{UID: &uid},
	})
	err = c.answered(ctx, obj.GroupVersionKind(), err)
	if IsNotFound(err) || errors.Is(err, ErrNotServed) || isOtherUID(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", describeObject(obj), err)
	}
	return nil
}

// awaitGone waits until exactly this object, whose deletion was requested, is gone.
func (c *Client) awaitGone(ctx context.Context, obj *unstructured.Unstructured, progress func(string)) error {
	_, err := c.waitFor(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName(), goneCheck(obj.GetUID()), progress)
	if IsNotFound(err) || errors.Is(err, ErrNotServed) {
		return nil // its kind went with it
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", describeObject(obj), err)
	}
	return nil
}

// isOtherUID reports whether a delete met another object than the one it was meant for.
func isOtherUID(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in precondition")
}

// goneCheck is done when the object with this UID no longer exists.
func goneCheck(uid types.UID) Check {
	return func(now *unstructured.Unstructured) (bool, string, error) {
		if now == nil || now.GetUID() != uid {
			return true, "gone", nil
		}
		if finalizers := now.GetFinalizers(); len(finalizers) > 0 {
			return false, "being deleted, waiting for " + strings.Join(finalizers, ", "), nil
		}
		return false, "being deleted", nil
	}
}
