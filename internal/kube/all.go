package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

var (
	namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	crdKind       = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

// How often and for how long to ask whether an established CRD is served.
const (
	discoveryPoll    = 100 * time.Millisecond
	discoveryTimeout = 30 * time.Second
)

// ApplyAll applies objects that make up one program: namespaces first, then
// CRDs, which it waits for until they are served, then the rest in the given
// order. A namespace or CRD that exists and is not ours (it lacks
// [contract.ManagedByLabel]) is used as it is. progress may be nil.
func (c *Client) ApplyAll(ctx context.Context, objs []*unstructured.Unstructured, progress func(string)) error {
	for _, obj := range inApplyOrder(objs) {
		gvk := obj.GroupVersionKind()
		// What is put into a namespace that is being deleted would go with it, and so
		// would a change of any other object.
		live, err := c.GetSettled(ctx, gvk, obj.GetNamespace(), obj.GetName(), progress)
		switch {
		case IsNotFound(err) || errors.Is(err, ErrNotServed):
		case err != nil:
			return err
		case (gvk == namespaceKind || gvk == crdKind) && !isOurs(live):
			tell(progress, describeObject(obj)+" exists already and is used as it is")
			continue
		}
		tell(progress, "applying "+describeObject(obj))
		if _, err := c.Apply(ctx, obj); err != nil {
			return err
		}
		if gvk == crdKind {
			if err := c.waitServed(ctx, obj, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeleteAll deletes, in the reverse order of [Client.ApplyAll], those objects
// that carry [contract.ManagedByLabel]. It keeps a namespace in which objects of another
// program of ours remain, and a namespace or CRD with which objects would go that our programs
// did not publish, or may, see [Client.OthersOf]. progress may be nil.
func (c *Client) DeleteAll(ctx context.Context, objs []*unstructured.Unstructured, progress func(string)) error {
	about := func(obj *unstructured.Unstructured) func(string) {
		return func(status string) { tell(progress, describeObject(obj)+": "+status) }
	}
	ordered := inApplyOrder(objs)
	slices.Reverse(ordered)
	// Kubernetes takes 5 s for each namespace, so they go together.
	var leaving []*unstructured.Unstructured
	for _, obj := range ordered {
		live, err := c.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		if IsNotFound(err) || errors.Is(err, ErrNotServed) {
			continue
		}
		if err != nil {
			return err
		}
		keep, err := c.reasonToKeep(ctx, live)
		if err != nil {
			return err
		}
		if keep != "" {
			tell(progress, "keeping "+describeObject(obj)+": "+keep)
			continue
		}
		tell(progress, "deleting "+describeObject(obj))
		if err := c.requestDelete(ctx, live, metav1.DeletePropagationForeground); err != nil {
			return err
		}
		if live.GroupVersionKind() == namespaceKind {
			leaving = append(leaving, live)
			continue
		}
		if err := c.awaitGone(ctx, live, about(obj)); err != nil {
			return err
		}
	}
	for _, namespace := range leaving {
		if err := c.awaitGone(ctx, namespace, about(namespace)); err != nil {
			return err
		}
	}
	return nil
}

// inApplyOrder returns namespaces, then CRDs, then the rest, each in the given order.
func inApplyOrder(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(obj *unstructured.Unstructured) int {
		switch obj.GroupVersionKind() {
		case namespaceKind:
			return 0
		case crdKind:
			return 1
		default:
			return 2
		}
	}
	ordered := slices.Clone(objs)
	slices.SortStableFunc(ordered, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return ordered
}

func isOurs(obj *unstructured.Unstructured) bool {
	return obj.GetLabels()[contract.ManagedByLabel] == contract.ManagedByValue
}

// waitServed waits until a CRD is established and discovery lists its kind.
func (c *Client) waitServed(ctx context.Context, crd *unstructured.Unstructured, progress func(string)) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	_, err := c.WaitFor(ctx, crdKind, "", crd.GetName(), func(live *unstructured.Unstructured) (bool, string, error) {
		if ok, message := condition(live, "NamesAccepted"); !ok && message != "" {
			return false, "", fmt.Errorf("its names were refused: %s", message)
		}
		if established, _ := condition(live, "Established"); established {
			return true, "", nil
		}
		return false, "waiting until it is established", nil
	}, func(status string) { tell(progress, describeObject(crd)+": "+status) })
	if err != nil {
		return err
	}
	// Discovery follows the Established condition a little later and cannot be watched.
	err = wait.PollUntilContextTimeout(ctx, discoveryPoll, discoveryTimeout, true, func(ctx context.Context) (bool, error) {
		_, served, err := c.Served(ctx, group, kind)
		return served, err
	})
	if err != nil {
		return fmt.Errorf("%s is established, but discovery does not list %s: %w", describeObject(crd), kind, err)
	}
	c.served.renew(time.Now())
	return nil
}

// condition returns whether a condition of the object's status is True, and its message when it is False.
func condition(obj *unstructured.Unstructured, kind string) (ok bool, message string) {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, raw := range conditions {
		c, isMap := raw.(map[string]any)
		if !isMap || c["type"] != kind {
			continue
		}
		if c["status"] == string(metav1.ConditionTrue) {
			return true, ""
		}
		if c["status"] == string(metav1.ConditionFalse) {
			message, _ = c["message"].(string)
		}
	}
	return false, message
}

// reasonToKeep says why an object must not be deleted, "" when it may be.
func (c *Client) reasonToKeep(ctx context.Context, live *unstructured.Unstructured) (string, error) {
	switch {
	case !isOurs(live):
		return "it was not created by " + contract.ManagedByValue, nil
	case live.GroupVersionKind() == namespaceKind:
		ours, others, err := c.contents(ctx, live.GetName())
		if ours != nil {
			return describeObject(ours) + " is in it", nil
		}
		if unseen := (*UnseenError)(nil); errors.As(err, &unseen) {
			return unseen.Error(), nil
		}
		return remain(others), err
	case live.GroupVersionKind() == crdKind:
		others, err := c.OthersOf(ctx, live)
		return remain(others), err
	default:
		return "", nil
	}
}

// remain says which objects keep what they would go with, "" for none.
func remain(others []unstructured.Unstructured) string {
	if len(others) == 0 {
		return ""
	}
	return "what others have made would go with it, such as " + describeObject(&others[0])
}

// OthersOf lists the objects that would go with a namespace or a CRD, and that our programs did not publish. There
// are none where a namespace stays for another program of ours. The error is an [UnseenError] where there may be some
// that cannot be seen.
func (c *Client) OthersOf(ctx context.Context, holder *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	if holder.GroupVersionKind() == namespaceKind {
		_, others, err := c.contents(ctx, holder.GetName())
		return others, err
	}
	group, _, _ := unstructured.NestedString(holder.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(holder.Object, "spec", "names", "kind")
	version, served, err := c.Served(ctx, group, kind)
	if err != nil || !served {
		return nil, err
	}
	return c.List(ctx, schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, "", contract.PartOfLabel+"!="+contract.PartOfValue)
}

func tell(progress func(string), status string) {
	if progress != nil {
		progress(status)
	}
}
