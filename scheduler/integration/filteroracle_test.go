package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

// oracle finds out what the filters of kube-scheduler's default profile allow single pods
// that come one after the other, in any order, by trying all of it.
type oracle struct {
	filters  framework.Framework
	snapshot *schedulercache.Snapshot
	nodes    []*corev1.Node
	// there are the pods that are on nodes.
	there []*corev1.Pod
	tried map[string]bool
	// stores hold the objects that it follows, by resource.
	stores map[string]cache.Store
}

// newOracle follows the cluster's objects other than pods and nodes.
func newOracle(t *testing.T) *oracle {
	t.Helper()
	ctx, logger := t.Context(), klog.Background()
	schedulermetrics.Register()
	o := &oracle{snapshot: schedulercache.NewEmptySnapshot()}
	factory := informers.NewSharedInformerFactory(api(), 0)
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: api()})
	require.NoError(t, err)
	claims := assumecache.NewAssumeCache(logger, factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	config, err := latest.Default()
	require.NoError(t, err)
	o.filters, err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &config.Profiles[0],
		frameworkruntime.WithClientSet(api()), frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithSnapshotSharedLister(o),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, claims, slices, factory)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithParallelism(1), frameworkruntime.WithLogger(logger))
	require.NoError(t, err)
	o.stores = map[string]cache.Store{
		"persistentvolumes":      factory.Core().V1().PersistentVolumes().Informer().GetStore(),
		"persistentvolumeclaims": factory.Core().V1().PersistentVolumeClaims().Informer().GetStore(),
		"storageclasses":         factory.Storage().V1().StorageClasses().Informer().GetStore(),
		"csinodes":               factory.Storage().V1().CSINodes().Informer().GetStore(),
		"deviceclasses":          factory.Resource().V1().DeviceClasses().Informer().GetStore(),
		"resourceslices":         factory.Resource().V1().ResourceSlices().Informer().GetStore(),
		"resourceclaims":         factory.Resource().V1().ResourceClaims().Informer().GetStore(),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return o
}

// NodeInfos, StorageInfos and PodGroupStates implement fwk.SharedLister.
func (o *oracle) NodeInfos() fwk.NodeInfoLister           { return o.snapshot.NodeInfos() }
func (o *oracle) StorageInfos() fwk.StorageInfoLister     { return o.snapshot.StorageInfos() }
func (o *oracle) PodGroupStates() fwk.PodGroupStateLister { return o.snapshot.PodGroupStates() }

// look sets the nodes and the pods that are on them.
func (o *oracle) look(nodes []*corev1.Node, there []*corev1.Pod) {
	o.nodes, o.there, o.tried = nodes, there, map[string]bool{}
}

// canBe reports whether enough of the pods can be placed.
func (o *oracle) canBe(ctx context.Context, pods []*corev1.Pod, enough func(placed []*corev1.Pod) bool) (bool, error) {
	groups := o.alike(pods)
	group := map[string]int{}
	for i, pods := range groups {
		for _, pod := range pods {
			group[pod.Name] = i
		}
	}
	return o.place(ctx, groups, nil, search{group, enough})
}

// search is what is searched: enough placed pods, each of a group of pods alike.
type search struct {
	group  map[string]int
	enough func(placed []*corev1.Pod) bool
}

// place places pods that are left of each group beside those that have a place.
func (o *oracle) place(ctx context.Context, left [][]*corev1.Pod, placed []*corev1.Pod, s search) (bool, error) {
	if s.enough(placed) {
		return true, nil
	}
	key := s.describe(placed)
	if o.tried[key] {
		return false, nil
	}
	o.tried[key] = true
	for i, group := range left {
		if len(group) == 0 {
			continue
		}
		rest := slices.Clone(left)
		rest[i] = group[1:]
		for _, node := range o.nodes {
			ok, err := o.try(ctx, placed, group[0], node, func(pod *corev1.Pod) (bool, error) {
				return o.place(ctx, rest, append(placed[:len(placed):len(placed)], pod), s)
			})
			if ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

// describe tells states apart: how many pods of each group are on each node.
func (s search) describe(placed []*corev1.Pod) string {
	counts := map[string]int{}
	for _, pod := range placed {
		counts[fmt.Sprint(s.group[pod.Name], pod.Spec.NodeName)]++
	}
	return fmt.Sprint(counts)
}

// try goes on with a pod on a node, if the filters allow it there beside the pods that are placed.
func (o *oracle) try(ctx context.Context, placed []*corev1.Pod, pod *corev1.Pod, node *corev1.Node, then func(*corev1.Pod) (bool, error)) (bool, error) {
	o.snapshot = schedulercache.NewSnapshot(append(append([]*corev1.Pod(nil), o.there...), placed...), o.nodes)
	state := framework.NewCycleState()
	result, status, _ := o.filters.RunPreFilterPlugins(ctx, state, pod)
	switch {
	case status.IsRejected():
		return false, nil
	case !status.IsSuccess():
		return false, status.AsError()
	case !result.AllNodes() && !result.NodeNames.Has(node.Name):
		return false, nil
	}
	info, err := o.snapshot.Get(node.Name)
	if err != nil {
		return false, err
	}
	switch status := o.filters.RunFilterPlugins(ctx, state, pod, info); {
	case status.IsRejected():
		return false, nil
	case !status.IsSuccess():
		return false, status.AsError()
	}
	if status := o.filters.RunReservePluginsReserve(ctx, state, pod, node.Name); !status.IsSuccess() {
		return false, status.AsError()
	}
	defer o.filters.RunReservePluginsUnreserve(ctx, state, pod, node.Name)
	there := pod.DeepCopy()
	there.Spec.NodeName = node.Name
	return then(there)
}

// couldHave reports whether pods could have come to their nodes in some order.
func (o *oracle) couldHave(ctx context.Context, pods, placed []*corev1.Pod) (bool, error) {
	if len(pods) == 0 {
		return true, nil
	}
	for i, pod := range pods {
		rest := append(append([]*corev1.Pod(nil), pods[:i]...), pods[i+1:]...)
		for _, node := range o.nodes {
			if node.Name != pod.Spec.NodeName {
				continue
			}
			again := pod.DeepCopy()
			again.Spec.NodeName = ""
			askForMade(again)
			ok, err := o.try(ctx, placed, again, node, func(there *corev1.Pod) (bool, error) {
				return o.couldHave(ctx, rest, append(placed[:len(placed):len(placed)], there))
			})
			if ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

// askForMade has a pod for which the scheduler has made a claim ask for that, instead of the extended resources that it is for.
func askForMade(pod *corev1.Pod) {
	made := pod.Status.ExtendedResourceClaimStatus
	if made == nil {
		return
	}
	for _, mapping := range made.RequestMappings {
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Name == mapping.ContainerName {
				delete(pod.Spec.Containers[i].Resources.Requests, corev1.ResourceName(mapping.ResourceName))
			}
		}
	}
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "made", ResourceClaimName: &made.ResourceClaimName})
}
