package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Conflict is one field that someone else owns.
type Conflict struct {
	// Manager is the other field manager, Field the path of the field: ".spec.replicas".
	Manager string
	Field   string
}

// ConflictError means that an object was not applied because others own some of its fields.
type ConflictError struct {
	// Object names the object: "Deployment default/web".
	Object    string
	Conflicts []Conflict
	// edit is the command that changes the object.
	edit string
	err  error
}

func (e *ConflictError) Error() string {
	owned := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		owned[i] = fmt.Sprintf("%s is owned by %q", c.Field, c.Manager)
	}
	return fmt.Sprintf("%s was changed by someone else: %s; leave the field out of this configuration, "+
		"or give it the value of this configuration with `%s`, and apply again",
		e.Object, strings.Join(owned, ", "), e.edit)
}

func (e *ConflictError) Unwrap() error { return e.err }

// Apply creates or updates an object by server-side apply as [contract.FieldManager]
// and returns it as the server has it. From other managers it takes none but the
// given fields: a [ConflictError] names those instead that it does not take.
func (c *Client) Apply(ctx context.Context, obj *unstructured.Unstructured, takes ...Field) (*unstructured.Unstructured, error) {
	return c.applyTaking(ctx, obj, takes)
}

// TryApply asks the server whether it would let [Client.Apply] write an object, with the same error, and writes nothing.
func (c *Client) TryApply(ctx context.Context, obj *unstructured.Unstructured, takes ...Field) error {
	_, err := c.applyTaking(ctx, obj, takes, metav1.DryRunAll)
	return err
}

func (c *Client) applyTaking(ctx context.Context, obj *unstructured.Unstructured, takes []Field, dryRun ...string) (*unstructured.Unstructured, error) {
	applied, err := c.apply(ctx, obj, metav1.ApplyOptions{FieldManager: contract.FieldManager, DryRun: dryRun})
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		return applied, err
	}
	for _, other := range conflict.Conflicts {
		if !slices.ContainsFunc(takes, func(f Field) bool { return f.String() == other.Field }) {
			return nil, err
		}
	}
	return c.forceApply(ctx, obj, dryRun...)
}

// Amend applies fields to an object that others have made, as [Client.Apply] does, and makes none itself: the error
// answers to [IsNotFound] where there is no such object. change returns the fields for the object as it is, and is
// asked again when the object has changed since; fields of an earlier Amend that it leaves out are given up.
func (c *Client) Amend(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string,
	change func(live *unstructured.Unstructured) (*unstructured.Unstructured, error), takes ...Field) error {
	return retry.OnError(retry.DefaultBackoff, isOutdated, func() error {
		live, err := c.Get(ctx, gvk, namespace, name)
		if err != nil {
			return err
		}
		obj, err := change(live)
		if err != nil {
			return err
		}
		obj.SetGroupVersionKind(gvk)
		obj.SetNamespace(namespace)
		obj.SetName(name)
		obj.SetUID(live.GetUID()) // otherwise one that is gone would be made
		obj.SetResourceVersion(live.GetResourceVersion())
		_, err = c.Apply(ctx, obj, takes...)
		return err
	})
}

// isOutdated reports whether an object was changed since it was read.
func isOutdated(err error) bool {
	var owned *ConflictError
	return apierrors.IsConflict(err) && !errors.As(err, &owned)
}

// ApplyAs applies an object, or one of its subresources, as a program that is the
// only writer of these fields: it takes them from whoever has them.
func (c *Client) ApplyAs(ctx context.Context, manager string, obj *unstructured.Unstructured, subresources ...string) (*unstructured.Unstructured, error) {
	return c.apply(ctx, obj, metav1.ApplyOptions{FieldManager: manager, Force: true}, subresources...)
}

// ApplyBeside applies an object, or one of its subresources, as a program that writes fields beside others: a [ConflictError]
// names those that others have given another value.
func (c *Client) ApplyBeside(ctx context.Context, manager string, obj *unstructured.Unstructured, subresources ...string) (*unstructured.Unstructured, error) {
	return c.apply(ctx, obj, metav1.ApplyOptions{FieldManager: manager}, subresources...)
}

func (c *Client) apply(ctx context.Context, obj *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error) {
	resource, err := c.resource(obj.GroupVersionKind(), obj.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", describeObject(obj), err)
	}
	applied, err := resource.Apply(ctx, obj.GetName(), obj, options, subresources...)
	if conflict := conflictOf(obj, err); conflict != nil {
		return nil, conflict
	}
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", describeObject(obj), c.answered(ctx, obj.GroupVersionKind(), err))
	}
	return applied, nil
}

// managerInConflict finds the manager in a cause of the API server, such as
// `conflict with "kubectl-edit" using apps/v1`.
var managerInConflict = regexp.MustCompile(`conflict with "([^"]+)"`)

// conflictOf translates the API server's list of field conflicts, nil when err is none.
func conflictOf(obj *unstructured.Unstructured, err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	conflict := &ConflictError{Object: describeObject(obj), edit: "kubectl edit", err: err}
	if obj.GetNamespace() != "" {
		conflict.edit += " -n " + obj.GetNamespace()
	}
	conflict.edit += " " + strings.ToLower(obj.GetKind()) + " " + obj.GetName()
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		manager := cause.Message
		if m := managerInConflict.FindStringSubmatch(cause.Message); m != nil {
			manager = m[1]
		}
		conflict.Conflicts = append(conflict.Conflicts, Conflict{Manager: manager, Field: cause.Field})
	}
	if len(conflict.Conflicts) == 0 {
		return nil
	}
	return conflict
}
