// Package follow watches custom resources that a cluster may not serve yet, or not
// any more.
package follow

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// crds is where a cluster says which custom resources it serves.
var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Custom watches the CRD of a resource, and the resource in a namespace ("" for all)
// while the CRD is established and serves the version, until ctx ends. Until then, and once the
// CRD is deleted, the resource counts as empty and synced. The objects come without their managed fields.
func Custom(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource, namespace string, handler cache.ResourceEventHandler) (cache.InformerSynced, error) {
	return CustomAs(ctx, client, resource, namespace, Trim, handler)
}

// CustomAs is [Custom] that keeps what convert makes of each object, and gives that to
// the handler: a type of its own takes a fraction of the memory.
func CustomAs(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource, namespace string, convert cache.TransformFunc, handler cache.ResourceEventHandler) (cache.InformerSynced, error) {
	name := resource.Resource + "." + resource.Group
	definitions := dynamicinformer.NewFilteredDynamicInformer(client, crds, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			Latest(options)
		}).Informer()
	var present atomic.Pointer[cache.InformerSynced] // nil while there is no such resource
	var end func()
	registration, err := definitions.AddEventHandler(On(func(definition *unstructured.Unstructured) {
		if end != nil || !established(definition) || !serves(definition, resource.Version) {
			return
		}
		objects := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, cache.Indexers{}, Latest).Informer()
		if err := objects.SetTransform(convert); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot follow a custom resource", "resource", name)
			return
		}
		told := &told{ResourceEventHandler: handler, objects: map[cache.ObjectName]any{}}
		handled, err := objects.AddEventHandler(told)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot follow a custom resource", "resource", name)
			return
		}
		synced := cache.InformerSynced(handled.HasSynced)
		present.Store(&synced)
		inner, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			objects.RunWithContext(inner)
		}()
		end = func() {
			stop()
			<-ended // and the handler has returned
			told.end()
			present.Store(nil)
		}
	}, func(*unstructured.Unstructured) {
		if end != nil {
			end()
			end = nil
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", name, err)
	}
	go definitions.RunWithContext(ctx)
	return func() bool {
		if !registration.HasSynced() {
			return false
		}
		synced := present.Load()
		return synced == nil || (*synced)()
	}, nil
}

// told is a handler that knows which objects it was told of. When a CRD goes, so do its objects,
// and an informer that is stopped drops what it has not said yet.
type told struct {
	cache.ResourceEventHandler
	objects map[cache.ObjectName]any
}

func (t *told) OnAdd(object any, initial bool) {
	t.note(object)
	t.ResourceEventHandler.OnAdd(object, initial)
}

func (t *told) OnUpdate(before, object any) {
	t.note(object)
	t.ResourceEventHandler.OnUpdate(before, object)
}

func (t *told) OnDelete(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		delete(t.objects, name)
	}
	t.ResourceEventHandler.OnDelete(object)
}

func (t *told) note(object any) {
	if name, err := cache.ObjectToName(object); err == nil {
		t.objects[name] = object
	}
}

// end tells of the end of what is left.
func (t *told) end() {
	for _, object := range t.objects {
		t.ResourceEventHandler.OnDelete(object)
	}
	clear(t.objects)
}

// Latest makes the first list of an informer one of the latest state: without it an
// API server may answer from a cache that lags behind.
func Latest(options *metav1.ListOptions) {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
}

// Trim drops the managed fields of an object, which nobody reads and which take much memory.
func Trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// On makes handlers of a function for an object's present state and one for its end.
func On[T any](set, remove func(T)) cache.ResourceEventHandler {
	return Arrivals(set, set, remove)
}

// Arrivals is [On] that tells objects that were there before the watch began, found,
// from those that arrive while it runs.
func Arrivals[T any](found, set, remove func(T)) cache.ResourceEventHandler {
	take := func(object any, known bool) {
		switch typed, ok := object.(T); {
		case ok && known:
			found(typed)
		case ok:
			set(typed)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: take,
		UpdateFunc: func(before, object any) {
			if typed, ok := before.(T); ok && replaced(before, object) {
				remove(typed)
			}
			take(object, false)
		},
		DeleteFunc: func(object any) {
			if typed, ok := Last(object).(T); ok {
				remove(typed)
			}
		},
	}
}

// replaced reports whether an object is another one of the same name: a watch that broke
// off and lists again tells of its predecessor's end in no other way.
func replaced(before, object any) bool {
	old, err := meta.Accessor(before)
	if err != nil {
		return false
	}
	present, err := meta.Accessor(object)
	return err == nil && old.GetUID() != present.GetUID()
}

// Last unwraps the state in which a deleted object was seen last.
func Last(object any) any {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}

// established reports whether a CRD is in force.
func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == "Established" {
			return condition["status"] == "True"
		}
	}
	return false
}

// serves reports whether a CRD serves a version.
func serves(definition *unstructured.Unstructured, version string) bool {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, entry := range versions {
		if v, ok := entry.(map[string]any); ok && v["name"] == version {
			return v["served"] == true
		}
	}
	return false
}
