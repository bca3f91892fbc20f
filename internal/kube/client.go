// Package kube is gpuplan's access to a Kubernetes API server: typed and dynamic
// clients, server-side apply under our own field manager, deletes and waits that
// end when the server says so, and discovery of what the server serves.
package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// unlimited lets requests go when they are made. A limit of the client's makes a plan over a few hundred
// objects wait for itself, and the API server has one for all its clients (Kubernetes, "API Priority and
// Fairness").
const unlimited = -1

// Client talks to one API server. It is safe for concurrent use.
type Client struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	Config  *rest.Config

	served *served
	rights *sync.Map     // Right -> bool, as far as asked
	age    time.Duration // see [Client.Believing]
}

// New returns a client for the API server of cfg. It makes no request: the
// first call of a method finds out whether the server answers. Requests other
// than watches are bounded by cfg.Timeout, or else by 30 s.
func New(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.QPS == 0 {
		cfg.QPS = unlimited
	}
	bound(cfg)
	http, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up the connection to %s: %w", cfg.Host, err)
	}
	typed, err := kubernetes.NewForConfigAndClient(cfg, http)
	if err != nil {
		return nil, fmt.Errorf("set up the client of %s: %w", cfg.Host, err)
	}
	dyn, err := dynamic.NewForConfigAndClient(cfg, http)
	if err != nil {
		return nil, fmt.Errorf("set up the dynamic client of %s: %w", cfg.Host, err)
	}
	return &Client{
		Typed:   typed,
		Dynamic: dyn,
		Config:  cfg,
		served:  newServed(typed.Discovery()),
		rights:  &sync.Map{},
	}, nil
}

// Get returns one object; namespace is "" for cluster-scoped kinds. The error
// answers to [IsNotFound] when there is no such object, and wraps [ErrNotServed]
// when there is no such kind.
func (c *Client) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	resource, err := c.resource(gvk, namespace)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", describe(gvk, namespace, name), err)
	}
	obj, err := resource.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", describe(gvk, namespace, name), c.answered(ctx, gvk, err))
	}
	return obj, nil
}

// List returns the objects of a kind whose labels match selector ("" for all)
// in a namespace ("" for all namespaces or a cluster-scoped kind). The error wraps
// [ErrNotServed] when there is no such kind.
func (c *Client) List(ctx context.Context, gvk schema.GroupVersionKind, namespace, selector string) ([]unstructured.Unstructured, error) {
	mapping, err := c.mapping(gvk)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	list, err := c.Dynamic.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, c.answered(ctx, gvk, err))
	}
	return list.Items, nil
}

// resource returns the dynamic client of a kind in a namespace.
func (c *Client) resource(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	m, err := c.mapping(gvk)
	if err != nil {
		return nil, err
	}
	namespaced := m.Scope.Name() == meta.RESTScopeNameNamespace
	switch {
	case namespaced && namespace == "":
		return nil, fmt.Errorf("a %s lives in a namespace, and none was given", gvk.Kind)
	case !namespaced && namespace != "":
		return nil, fmt.Errorf("a %s is cluster-scoped, but namespace %q was given", gvk.Kind, namespace)
	case namespaced:
		return c.Dynamic.Resource(m.Resource).Namespace(namespace), nil
	default:
		return c.Dynamic.Resource(m.Resource), nil
	}
}

// describe names an object for people: "Deployment gpuplan-system/gpuplan-scheduler".
func describe(gvk schema.GroupVersionKind, namespace, name string) string {
	if namespace == "" {
		return gvk.Kind + " " + name
	}
	return gvk.Kind + " " + namespace + "/" + name
}

// describeObject names an object for people.
func describeObject(obj *unstructured.Unstructured) string {
	return describe(obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
}
