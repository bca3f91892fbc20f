package contract

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FleetCluster is Karmada's Cluster ([KarmadaClusterKind]), as far as it is read here: a member of a fleet, as its hub sees it.
type FleetCluster struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		// APIEndpoint and SecretRef say how its API server is reached; the Secret has a token and a caBundle.
		APIEndpoint string `json:"apiEndpoint"`
		SecretRef   *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"secretRef"`
		InsecureSkipTLSVerification bool           `json:"insecureSkipTLSVerification"`
		ProxyURL                    string         `json:"proxyURL"`
		Provider                    string         `json:"provider"`
		Region                      string         `json:"region"`
		Zones                       []string       `json:"zones"`
		Taints                      []corev1.Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		KubernetesVersion string             `json:"kubernetesVersion"`
		Conditions        []metav1.Condition `json:"conditions"`
		// APIEnablements are the kinds that it serves.
		APIEnablements []struct {
			GroupVersion string `json:"groupVersion"`
			Resources    []struct {
				Kind string `json:"kind"`
			} `json:"resources"`
		} `json:"apiEnablements"`
		NodeSummary *struct {
			TotalNum int64 `json:"totalNum"`
			ReadyNum int64 `json:"readyNum"`
		} `json:"nodeSummary"`
		// ResourceSummary are sums over its nodes: what they have, what pods ask for that wait for a node, and what pods on nodes have.
		ResourceSummary *struct {
			Allocatable corev1.ResourceList `json:"allocatable"`
			Allocating  corev1.ResourceList `json:"allocating"`
			Allocated   corev1.ResourceList `json:"allocated"`
		} `json:"resourceSummary"`
	} `json:"status"`
}

// FleetClusterOf reads a cluster of a hub.
func FleetClusterOf(object *unstructured.Unstructured) (*FleetCluster, error) {
	c := &FleetCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, c); err != nil {
		return nil, fmt.Errorf("cluster %s is not what its kind promises: %w", object.GetName(), err)
	}
	return c, nil
}

// Reached reports whether the hub reaches the cluster, and finds it healthy.
func (c *FleetCluster) Reached() bool {
	ready := c.Ready()
	return ready != nil && ready.Status == metav1.ConditionTrue
}

// Ready is the condition that says whether the hub reaches the cluster, nil where it has not looked yet.
func (c *FleetCluster) Ready() *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, "Ready")
}

// Serves reports whether the cluster serves a kind in this version, as its hub has found.
func (c *FleetCluster) Serves(kind schema.GroupVersionKind) bool {
	for _, enabled := range c.Status.APIEnablements {
		for _, resource := range enabled.Resources {
			if enabled.GroupVersion == kind.GroupVersion().String() && resource.Kind == kind.Kind {
				return true
			}
		}
	}
	return false
}
