package clustercache

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// DeviceClassKind is that of classes of devices.
var DeviceClassKind = resourcev1.SchemeGroupVersion.WithKind("DeviceClass")

// Follow keeps the cache in step with a cluster until ctx ends. It adds its handlers
// to the factory, which the caller starts, and follows our custom resources from the
// moment that the cluster serves them. kube-scheduler's factory leaves finished pods
// out; those that have succeeded are followed by the metadata client, and Jobs tell of those that
// have gone. devices means that the cluster serves classes of devices ([DeviceClassKind]) and resource claims, as it does from Kubernetes 1.34 on.
//
// The returned function waits until the cache holds everything that the cluster held
// when it was called first.
func (c *Cache) Follow(ctx context.Context, factory informers.SharedInformerFactory, client dynamic.Interface, pods metadata.Interface, devices bool) (wait func(context.Context) error, err error) {
	f := &follower{cache: c}
	bound := volumes{
		claims:  factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
	}
	c.state.FindVolumes(bound.of)
	c.state.FindPendingClaims(bound.pending)
	nodeInformer := factory.Core().V1().Nodes().Informer()
	if err := nodeInformer.SetTransform(follow.Trim); err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	nodes, err := nodeInformer.AddEventHandler(follow.On(f.setNode, f.removeNode))
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	unfinished, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.setPod(nil, object) },
		UpdateFunc: f.setPod,
		DeleteFunc: func(object any) { f.removePod(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	budgets, err := factory.Policy().V1().PodDisruptionBudgets().Informer().AddEventHandler(follow.On(f.setBudget, f.removeBudget))
	if err != nil {
		return nil, fmt.Errorf("follow disruption budgets: %w", err)
	}
	succeeded, err := f.followSucceeded(ctx, pods)
	if err != nil {
		return nil, err
	}
	jobs, err := f.followJobs(factory.Batch().V1().Jobs().Informer())
	if err != nil {
		return nil, err
	}
	synced := []cache.InformerSynced{nodes.HasSynced, unfinished.HasSynced, succeeded, jobs, budgets.HasSynced}
	if devices {
		classes, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(follow.On(f.setDeviceClass, f.removeDeviceClass))
		if err != nil {
			return nil, fmt.Errorf("follow device classes: %w", err)
		}
		given, err := f.followResourceClaims(factory.Resource().V1().ResourceClaims())
		if err != nil {
			return nil, err
		}
		synced = append(synced, classes.HasSynced, given)
	}
	for _, custom := range []struct {
		resource  schema.GroupVersionResource
		namespace string
		convert   cache.TransformFunc
		handler   cache.ResourceEventHandler
	}{
		{schema.GroupVersionResource{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Resource: contract.GPUNodeResource}, metav1.NamespaceAll, new(published).hardwareOf, follow.On(f.setHardware, f.removeHardware)},
		{schema.GroupVersionResource{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Resource: contract.QuotaTreeResource}, contract.QuotaTreeNamespace, follow.Trim, follow.On(f.setQuotaTree, f.removeQuotaTree)},
		{schema.GroupVersionResource{Group: contract.PodGroupGroup, Version: contract.PodGroupVersion, Resource: contract.PodGroupResource}, metav1.NamespaceAll, follow.Trim, follow.On(f.setPodGroup, f.removePodGroup)},
	} {
		hasSynced, err := follow.CustomAs(ctx, client, custom.resource, custom.namespace, custom.convert, custom.handler)
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
	cache *Cache
}

// report logs what cannot be used of an object and passes the change on.
func (f *follower) report(change clusterstate.Change, err error) {
	if err != nil {
		klog.Background().Error(err, "Cannot use an object of the cluster")
	}
	if change != (clusterstate.Change{}) {
		f.cache.notify(change)
	}
}

func (f *follower) setNode(node *corev1.Node) { f.report(f.cache.SetNode(node)) }

func (f *follower) removeNode(node *corev1.Node) { f.report(f.cache.RemoveNode(node.Name), nil) }

func (f *follower) setPod(before, object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	// A pod that was deleted and made again under its name may come as one update.
	old, ok := before.(*corev1.Pod)
	if ok && old.UID != pod.UID {
		f.report(f.cache.RemovePod(old.UID), nil)
		ok = false
	}
	leaves := pod.DeletionTimestamp != nil && (!ok || !old.DeletionTimestamp.Equal(pod.DeletionTimestamp))
	f.report(f.cache.SetPod(pod), nil)
	if leaves {
		time.AfterFunc(inventory.OverdueAfter(pod), func() { f.report(f.cache.Overdue(pod.UID), nil) })
	}
}

func (f *follower) removePod(object any) {
	if pod, ok := follow.Last(object).(*corev1.Pod); ok {
		f.report(f.cache.RemovePod(pod.UID), nil)
	}
}

// setHardware takes in hardware, and looks at it again when its agent has not been heard
// of for too long.
func (f *follower) setHardware(hardware *contract.GPUNode) {
	f.report(f.cache.SetGPUNode(hardware))
	if agent := hardware.Status.Agent; agent != nil {
		time.AfterFunc(time.Until(agent.Heartbeat.Add(contract.HeartbeatLimit+time.Second)), func() { f.report(f.cache.HeartbeatDue(hardware.Name)) })
	}
}

func (f *follower) removeHardware(hardware *contract.GPUNode) {
	f.report(f.cache.RemoveGPUNode(hardware.Name))
}

func (f *follower) setQuotaTree(object *unstructured.Unstructured) {
	f.report(f.cache.SetQuotaTree(object))
}

func (f *follower) removeQuotaTree(object *unstructured.Unstructured) {
	f.report(f.cache.RemoveQuotaTree(object.GetName()))
}

func (f *follower) setPodGroup(object *unstructured.Unstructured) {
	f.report(f.cache.SetPodGroup(object), nil)
}

func (f *follower) removePodGroup(object *unstructured.Unstructured) {
	f.report(f.cache.RemovePodGroup(object.GetNamespace(), object.GetName()), nil)
}

func (f *follower) setBudget(budget *policyv1.PodDisruptionBudget) {
	f.report(f.cache.SetBudget(budget))
}

func (f *follower) removeBudget(budget *policyv1.PodDisruptionBudget) {
	f.report(f.cache.RemoveBudget(budget.Namespace, budget.Name), nil)
}

func (f *follower) setDeviceClass(class *resourcev1.DeviceClass) {
	f.report(f.cache.SetDeviceClass(class), nil)
}

func (f *follower) removeDeviceClass(class *resourcev1.DeviceClass) {
	f.report(f.cache.RemoveDeviceClass(class.Name), nil)
}
