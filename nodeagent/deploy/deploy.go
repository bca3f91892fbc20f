// Package deploy is the node agent of the chart, with the options of a user.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/deploy/charts"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/features"
)

// Options are what a user decides about the node agent.
type Options struct {
	// Image is the container image.
	Image string
	// Interval is how often the agent looks at the hardware, 0 for its default.
	Interval time.Duration
	// MetricsPort is the port on which the agent serves metrics, 0 for none.
	MetricsPort int
	// DevicePlugins is whether the agent is the device plugin of its node, so that containers get the GPUs of
	// their pods' allocation records.
	DevicePlugins bool
	// MPS is whether the agent, which is the device plugin then, keeps containers to their parts of GPUs.
	MPS bool
	// NoFeatureLabels leaves the labels of NVIDIA's GPU feature discovery off Nodes.
	NoFeatureLabels bool
}

// Objects returns the node agent's objects in the order in which they can be
// applied: namespace, CRD, account, rights, DaemonSet. All carry
// [contract.ManagedByLabel].
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	if o.Image == "" {
		return nil, errors.New("the node agent needs a container image")
	}
	interval := "" // the flag is left out
	if o.Interval != 0 {
		interval = o.Interval.String()
	}
	return program.Objects(charts.Values{"nodeAgent": {
		"image": o.Image, "interval": interval, "metricsPort": o.MetricsPort, "devicePlugins": o.DevicePlugins, "mps": o.MPS,
		"featureLabels": !o.NoFeatureLabels,
	}})
}

var program = charts.Program{
	Name:      contract.NodeAgentName,
	CRDs:      []string{contract.GPUNodeResource + "." + contract.GPUNodeGroup},
	Templates: []string{"node-agent.yaml"},
}

// RemovePublished deletes what agents have published about nodes that still
// exist and that does not go with the agent's own objects: the ConfigMaps that
// mirror the topology, and the labels of Nodes that agents have written.
func RemovePublished(ctx context.Context, client *kube.Client) error {
	mirrors := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	if err := client.DeleteLabelled(ctx, mirrors, "kube-system", contract.NameLabel+"="+contract.NodeAgentName); err != nil {
		return err
	}
	nodes, err := client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: contract.GFDCountLabel})
	if err != nil {
		return fmt.Errorf("list the nodes that node agents have labelled: %w", err)
	}
	for _, node := range nodes.Items {
		if features.Discovered(node.Labels, node.Annotations) {
			continue // the labels are NVIDIA's by now
		}
		none := &unstructured.Unstructured{Object: map[string]any{}}
		none.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		none.SetName(node.Name)
		if _, err := client.ApplyBeside(ctx, contract.NodeFeaturesManager, none, "status"); err != nil && !kube.IsNotFound(err) {
			return fmt.Errorf("remove the node agent's labels: %w", err)
		}
	}
	return nil
}
