package cloud

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
)

// defaultMode is the mode of a GPU node that was never given one.
const defaultMode = "default"

// followModes keeps the resources of simulated nodes at what their mode offers, as
// the device plugins of ACK do when the label changes. It returns when it has seen
// all nodes once, and goes on until runCtx ends.
func followModes(ctx, runCtx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	follow := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || !simulate.IsSimulated(node) {
			return
		}
		if err := followMode(runCtx, client, node); err != nil && runCtx.Err() == nil {
			klog.Warningf("cloud: mode of node %s: %v", node.Name, err)
		}
	}
	handler, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    follow,
		UpdateFunc: func(_, node any) { follow(node) },
	})
	if err != nil {
		return err
	}
	factory.Start(runCtx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return fmt.Errorf("list nodes: %w", ctx.Err())
	}
	return nil
}

// followMode patches the node's resources when they are not those of its mode. A
// node whose label was removed keeps what it had, which is what ACK documents.
func followMode(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	mode, labelled := node.Labels[contract.NodeModeLabel]
	if _, known := catalog.LookupMode(mode); !labelled || !known {
		return nil
	}
	it, ok := catalog.Lookup(node.Labels[contract.InstanceTypeLabel])
	if !ok {
		return nil
	}
	want, err := allocatable(it, node.Labels)
	if err != nil {
		return err
	}
	delete(want, catalog.ERDMAResource) // set up as the node joins, or not at all
	changed := corev1.ResourceList{}
	for name, quantity := range want {
		if has, ok := node.Status.Allocatable[name]; !ok || !equality.Semantic.DeepEqual(has, quantity) {
			changed[name] = quantity
		}
	}
	if len(changed) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"allocatable": changed, "capacity": changed}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// allocatable is what a node of the type offers in the mode of its labels.
func allocatable(it catalog.InstanceType, labels map[string]string) (corev1.ResourceList, error) {
	mode, labelled := labels[contract.NodeModeLabel]
	if !labelled {
		mode = defaultMode
	}
	offered, err := catalog.Allocatable(it, mode, catalog.Setup{})
	if err != nil {
		return nil, err
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(offered.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(offered.MemoryBytes, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(offered.EphemeralStorageBytes, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(offered.Pods, resource.DecimalSI),
	}
	for name, count := range offered.Extended {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list, nil
}
