package kube

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Right is to do one thing with the objects of a kind.
type Right struct {
	// Verb is Kubernetes' word for it, "create".
	Verb string
	// Group and Resource are the kind's, as in "kubeflow.org" and "pytorchjobs"; a subresource follows a slash, as in "pods/eviction".
	Group, Resource string
	// Namespace is "" for objects of the cluster, and for all namespaces.
	Namespace string
}

// Has asks the server whether its user has a right. A server that does not answer such
// questions is taken to grant it. The answer is kept as long as the client.
func (c *Client) Has(ctx context.Context, right Right) (bool, error) {
	known, _ := c.rights.Load(right)
	if granted, ok := known.(bool); ok {
		return granted, nil
	}
	resource, subresource, _ := strings.Cut(right.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: right.Verb, Group: right.Group, Resource: resource, Subresource: subresource, Namespace: right.Namespace,
		},
	}}
	answer, err := c.Typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	unanswered := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	if err != nil && !unanswered {
		return false, fmt.Errorf("ask for the rights of the kubeconfig's user: %w", plain(err))
	}
	granted := unanswered || answer.Status.Allowed
	c.rights.Store(right, granted)
	return granted, nil
}

// Rights are those that it takes to do all of these things with an object.
func (c *Client) Rights(obj *unstructured.Unstructured, verbs ...string) ([]Right, error) {
	mapping, err := c.mapping(obj.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	rights := make([]Right, len(verbs))
	for i, verb := range verbs {
		rights[i] = Right{Verb: verb, Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Namespace: obj.GetNamespace()}
	}
	return rights, nil
}

// TryCreate asks the server whether it would create an object, with all its fields, and
// creates nothing. It returns what the server would store. The error is the server's own,
// undisguised.
func (c *Client) TryCreate(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := c.resource(obj.GroupVersionKind(), obj.GetNamespace())
	if err != nil {
		return nil, err
	}
	return resource.Create(ctx, obj, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
}
