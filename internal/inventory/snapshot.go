package inventory

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// unfinishedPods selects the pods that hold or want resources.
const unfinishedPods = "status.phase!=Succeeded,status.phase!=Failed"

// Kinds of ours that a cluster may not serve yet.
var (
	gpuNodeKind   = schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
	podGroupKind  = schema.GroupVersionKind{Group: contract.PodGroupGroup, Version: contract.PodGroupVersion, Kind: contract.PodGroupKind}
	quotaTreeKind = schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}
)

// Snapshot lists a cluster once and returns the planner's view of it: nodes with
// their hardware, the pods that hold resources, and the quota tree. Kinds whose CRD
// is not installed count as empty. A node whose hardware cannot be read takes part
// without cards.
func Snapshot(ctx context.Context, client *kube.Client) (*placement.View, error) {
	cache, err := read(ctx, client)
	if err != nil {
		return nil, err
	}
	return cache.view, nil
}

// ReadScene lists a cluster once, its gangs included. It needs no more than the right
// to list nodes, pods and our custom resources.
func ReadScene(ctx context.Context, client *kube.Client) (*Scene, error) {
	cache, err := read(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := listSucceeded(ctx, client, cache); err != nil {
		return nil, err
	}
	if _, served, err := client.Served(ctx, podGroupKind.Group, podGroupKind.Kind); err != nil {
		return nil, err
	} else if served {
		groups, err := client.List(ctx, podGroupKind, "", "")
		if err != nil {
			return nil, err
		}
		for i := range groups {
			cache.SetPodGroup(&groups[i])
		}
	}
	return cache.Scene(), nil
}

// read lists what the view is made of.
func read(ctx context.Context, client *kube.Client) (*Cache, error) {
	cache := NewCache()
	nodes, err := client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	hardware, err := listHardware(ctx, client)
	if err != nil {
		return nil, err
	}
	for i := range hardware {
		// Without its Node the hardware is only noted: nothing can be wrong yet.
		_, _ = cache.SetGPUNode(&hardware[i])
	}
	for i := range nodes.Items {
		// The error means no usable hardware, and the view says so by a node without cards.
		_, _ = cache.SetNode(&nodes.Items[i])
	}
	pods, err := client.Typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: unfinishedPods})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		cache.SetPod(&pods.Items[i])
	}
	return cache, addQuotaTree(ctx, client, cache)
}

func listHardware(ctx context.Context, client *kube.Client) ([]contract.GPUNode, error) {
	if _, served, err := client.Served(ctx, gpuNodeKind.Group, gpuNodeKind.Kind); err != nil || !served {
		return nil, err
	}
	objects, err := client.List(ctx, gpuNodeKind, "", "")
	if err != nil {
		return nil, err
	}
	out := make([]contract.GPUNode, len(objects))
	for i, object := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", contract.GPUNodeKind, object.GetName(), err)
		}
	}
	return out, nil
}

func addQuotaTree(ctx context.Context, client *kube.Client, cache *Cache) error {
	if _, served, err := client.Served(ctx, quotaTreeKind.Group, quotaTreeKind.Kind); err != nil || !served {
		return err
	}
	trees, err := client.List(ctx, quotaTreeKind, contract.QuotaTreeNamespace, "")
	if err != nil || len(trees) == 0 {
		return err
	}
	_, err = cache.SetQuotaTree(&trees[0])
	return err
}
