package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// IsAlreadyExists reports whether err says that there is an object of that name.
func IsAlreadyExists(err error) bool { return apierrors.IsAlreadyExists(err) }

// Create creates an object as [contract.FieldManager], and returns it as the server has it. Unlike
// [Client.Apply], under which all who have that name are one, it never changes what another has created
// in the meantime: the error then answers to [IsAlreadyExists]. [Client.Manage] comes before the
// object's first apply.
func (c *Client) Create(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := c.resource(obj.GroupVersionKind(), obj.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", describeObject(obj), err)
	}
	created, err := resource.Create(ctx, obj, metav1.CreateOptions{
		FieldManager: contract.FieldManager, FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", describeObject(obj), c.answered(ctx, obj.GroupVersionKind(), err))
	}
	return created, nil
}

// Manage makes the fields that [Client.Create] has written of an object those of an apply, which the
// next one changes and removes; to the server, the two are different managers. An object that is not
// there, or that an apply has made, it leaves alone.
func (c *Client) Manage(ctx context.Context, obj *unstructured.Unstructured) error {
	resource, err := c.resource(obj.GroupVersionKind(), obj.GetNamespace())
	if err == nil {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			live, err := resource.Get(ctx, obj.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(contract.FieldManager), contract.FieldManager)
			if err != nil || patch == nil {
				return err
			}
			_, err = resource.Patch(ctx, obj.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: contract.FieldManager})
			return err
		})
	}
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("manage the fields of %s: %w", describeObject(obj), c.answered(ctx, obj.GroupVersionKind(), err))
	}
	return nil
}
