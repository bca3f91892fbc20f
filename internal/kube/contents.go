package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// UnseenError says that not all that would go with a namespace can be seen.
type UnseenError struct {
	Namespace string
	Err       error
}

func (e *UnseenError) Error() string {
	return fmt.Sprintf("what is in namespace %s is not known: %v", e.Namespace, e.Err)
}

func (e *UnseenError) Unwrap() error { return e.Err }

// contents returns what would go with a namespace: an object of another program of ours, or else what others have
// made. What our programs publish is neither, nor is what belongs to another object. The error is an [UnseenError]
// where none is found and there may be some.
func (c *Client) contents(ctx context.Context, namespace string) (ours *unstructured.Unstructured, others []unstructured.Unstructured, err error) {
	kinds, unseen := c.deletable()
	for _, kind := range kinds {
		list, err := c.Dynamic.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) { // its CRD has gone since discovery, or its server lists none
			continue
		}
		if apierrors.IsForbidden(err) {
			unseen = err
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list %s of namespace %s: %w", kind.GroupResource(), namespace, plain(err))
		}
		for i := range list.Items {
			item := &list.Items[i]
			switch managed := item.GetLabels()[contract.ManagedByLabel]; {
			case item.GetDeletionTimestamp() != nil || len(item.GetOwnerReferences()) > 0 || comesWithNamespace(item):
			case !isPart(item):
				others = append(others, *item)
			case managed == contract.ManagedByValue:
				return item, nil, nil
			case managed != "": // installed otherwise
				others = append(others, *item)
			}
		}
	}
	if unseen != nil && len(others) == 0 {
		return nil, nil, &UnseenError{Namespace: namespace, Err: plain(unseen)}
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

// comesWithNamespace reports whether Kubernetes, OpenShift or Istio makes the object in every namespace.
func comesWithNamespace(obj *unstructured.Unstructured) bool {
	switch name := obj.GetName(); obj.GetKind() {
	case "ConfigMap":
		return slices.Contains([]string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}, name)
	case "ServiceAccount":
		return slices.Contains([]string{"default", "builder", "deployer"}, name)
	case "RoleBinding":
		return strings.HasPrefix(name, "system:")
	case "Secret":
		kind, _, _ := unstructured.NestedString(obj.Object, "type")
		return slices.Contains([]corev1.SecretType{corev1.SecretTypeServiceAccountToken, corev1.SecretTypeDockercfg}, corev1.SecretType(kind))
	default:
		return false
	}
}
