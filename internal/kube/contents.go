package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// passing are kinds of objects that tell of others, which count instead.
var passing = []string{"Event", "Endpoints", "EndpointSlice", "Lease"}

// contents returns what would go with a namespace: an object of another program of ours, or else what others have
// made. What our programs publish is neither.
func (c *Client) contents(ctx context.Context, namespace string) (ours *unstructured.Unstructured, others []unstructured.Unstructured, err error) {
	kinds, incomplete := c.deletable()
	for _, kind := range kinds {
		list, err := c.Dynamic.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if IsNotFound(err) || apierrors.IsMethodNotSupported(err) { // its CRD has gone since discovery, or its server lists none
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list %s of namespace %s: %w", kind.GroupResource(), namespace, plain(err))
		}
		for i := range list.Items {
			item := &list.Items[i]
			switch managed := item.GetLabels()[contract.ManagedByLabel]; {
			case item.GetDeletionTimestamp() != nil || comesWithNamespace(item):
			case !isPart(item):
				others = append(others, *item)
			case managed == contract.ManagedByValue:
				return item, nil, nil
			case managed != "": // installed otherwise
				others = append(others, *item)
			}
		}
	}
	// Nor would Kubernetes delete the namespace as long as it cannot tell what is in it.
	if incomplete != nil {
		return nil, nil, fmt.Errorf("what is in namespace %s is not known: %w", namespace, plain(incomplete))
	}
	return nil, others, nil
}

// deletable are the kinds in namespaces that can be listed and deleted. The error tells of groups that do not answer.
func (c *Client) deletable() (kinds []schema.GroupVersionResource, err error) {
	served, err := c.Typed.Discovery().ServerPreferredNamespacedResources()
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, served) {
		version, parsed := schema.ParseGroupVersion(list.GroupVersion)
		if parsed != nil {
			return nil, parsed
		}
		for _, r := range list.APIResources {
			if !slices.Contains(passing, r.Kind) {
				kinds = append(kinds, version.WithResource(r.Name))
			}
		}
	}
	return kinds, err
}

// isPart reports whether an object is one of our programs, or one of them has made it.
func isPart(obj *unstructured.Unstructured) bool {
	return obj.GetLabels()[contract.PartOfLabel] == contract.PartOfValue
}

// comesWithNamespace reports whether Kubernetes makes the object in every namespace.
func comesWithNamespace(obj *unstructured.Unstructured) bool {
	switch obj.GetKind() {
	case "ConfigMap":
		return obj.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return obj.GetName() == "default"
	case "Secret":
		kind, _, _ := unstructured.NestedString(obj.Object, "type")
		return kind == string(corev1.SecretTypeServiceAccountToken)
	default:
		return false
	}
}
