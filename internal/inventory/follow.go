package inventory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// crds is where a cluster says which custom resources it serves.
var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Follow keeps the cache in step with a cluster until ctx ends. It adds its handlers
// to the factory, which the caller starts, and follows our custom resources from the
// moment that the cluster serves them.
//
// The returned function waits until the cache holds everything that the cluster held
// when it was called first.
func (c *Cache) Follow(ctx context.Context, factory informers.SharedInformerFactory, client dynamic.Interface) (wait func(context.Context) error, err error) {
	f := &follower{cache: c, client: client}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(on(f.setNode, f.removeNode))
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.setPod(nil, object) },
		UpdateFunc: f.setPod,
		DeleteFunc: func(object any) { f.removePod(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	synced := []cache.InformerSynced{nodes.HasSynced, pods.HasSynced}
	for _, custom := range []customResource{
		{contract.GPUNodeGroup, contract.GPUNodeVersion, contract.GPUNodeResource, metav1.NamespaceAll, on(f.setHardware, f.removeHardware)},
		{contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeResource, contract.QuotaTreeNamespace, on(f.setQuotaTree, f.removeQuotaTree)},
		{contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupResource, metav1.NamespaceAll, on(f.setPodGroup, f.removePodGroup)},
	} {
		hasSynced, err := f.followCustom(ctx, custom)
		if err != nil {
			return nil, err
		}
		synced = append(synced, hasSynced)
	}
	return func(ctx context.Context) error {
		if !cache.WaitForCacheSync(ctx.Done(), synced...) {
			return fmt.Errorf("wait for the view of the cluster: %w", context.Cause(ctx))
		}
		return nil
	}, nil
}

// follower applies events to a cache.
type follower struct {
	cache  *Cache
	client dynamic.Interface
}

// on makes handlers of a function for an object's present state and one for its end.
func on[T any](set, remove func(T)) cache.ResourceEventHandler {
	take := func(object any) {
		if typed, ok := object.(T); ok {
			set(typed)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if typed, ok := last(object).(T); ok {
				remove(typed)
			}
		},
	}
}

// last unwraps the state in which a deleted object was seen last.
func last(object any) any {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}

// customResource is a resource that a cluster serves only while its CRD is installed.
type customResource struct {
	group, version, resource string
	namespace                string
	handler                  cache.ResourceEventHandler
}

// followCustom watches the CRD of a resource, and the resource while the CRD is
// established. Until then the resource counts as empty and synced.
func (f *follower) followCustom(ctx context.Context, custom customResource) (cache.InformerSynced, error) {
	name := custom.resource + "." + custom.group
	definitions := dynamicinformer.NewFilteredDynamicInformer(f.client, crds, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}).Informer()
	watched := make(chan cache.ResourceEventHandlerRegistration, 1)
	var stop context.CancelFunc
	registration, err := definitions.AddEventHandler(on(func(definition *unstructured.Unstructured) {
		if stop != nil || !established(definition) {
			return
		}
		var inner context.Context
		inner, stop = context.WithCancel(ctx)
		resource := schema.GroupVersionResource{Group: custom.group, Version: custom.version, Resource: custom.resource}
		objects := dynamicinformer.NewFilteredDynamicInformer(f.client, resource, custom.namespace, 0, cache.Indexers{}, nil).Informer()
		handled, err := objects.AddEventHandler(custom.handler)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot follow a custom resource", "resource", name)
			return
		}
		select {
		case watched <- handled:
		default: // served again after it was gone: nobody waits for it
		}
		go objects.RunWithContext(inner)
	}, func(*unstructured.Unstructured) {
		if stop != nil {
			stop()
			stop = nil
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", name, err)
	}
	go definitions.RunWithContext(ctx)
	var handled cache.ResourceEventHandlerRegistration
	return func() bool {
		if !registration.HasSynced() {
			return false
		}
		if handled == nil {
			select {
			case handled = <-watched:
			default:
			}
		}
		return handled == nil || handled.HasSynced()
	}, nil
}

// established reports whether a CRD is served.
func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == "Established" {
			return condition["status"] == "True"
		}
	}
	return false
}

// report logs what cannot be used of an object and passes the change on.
func (f *follower) report(change Change, err error) {
	if err != nil {
		klog.Background().Error(err, "Cannot use an object of the cluster")
	}
	if change != (Change{}) {
		f.cache.notify(change)
	}
}

func (f *follower) setNode(node *corev1.Node)    { f.report(f.cache.SetNode(node)) }
func (f *follower) removeNode(node *corev1.Node) { f.cache.RemoveNode(node.Name) }

func (f *follower) setPod(before, object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	// A pod that was deleted and made again under its name may come as one update.
	if old, ok := before.(*corev1.Pod); ok && old.UID != pod.UID {
		f.report(f.cache.RemovePod(old.UID), nil)
	}
	f.report(f.cache.SetPod(pod), nil)
}

func (f *follower) removePod(object any) {
	if pod, ok := last(object).(*corev1.Pod); ok {
		f.report(f.cache.RemovePod(pod.UID), nil)
	}
}

func (f *follower) setHardware(object *unstructured.Unstructured) {
	var hardware contract.GPUNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &hardware); err != nil {
		f.report(Change{}, fmt.Errorf("read %s %s: %w", contract.GPUNodeKind, object.GetName(), err))
		return
	}
	f.report(f.cache.SetGPUNode(&hardware))
}

func (f *follower) removeHardware(object *unstructured.Unstructured) {
	f.report(f.cache.RemoveGPUNode(object.GetName()))
}

func (f *follower) setQuotaTree(object *unstructured.Unstructured) {
	f.report(f.cache.SetQuotaTree(object))
}

func (f *follower) removeQuotaTree(*unstructured.Unstructured) {
	f.report(f.cache.SetQuotaTree(nil))
}

func (f *follower) setPodGroup(object *unstructured.Unstructured) {
	f.report(f.cache.SetPodGroup(object), nil)
}

func (f *follower) removePodGroup(object *unstructured.Unstructured) {
	f.report(f.cache.RemovePodGroup(object.GetNamespace(), object.GetName()), nil)
}
