package fleet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cluster is Karmada's Cluster, as far as the data source tells it.
type cluster struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Provider string         `json:"provider"`
		Region   string         `json:"region"`
		Zones    []string       `json:"zones"`
		Taints   []corev1.Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		KubernetesVersion string             `json:"kubernetesVersion"`
		Conditions        []metav1.Condition `json:"conditions"`
		APIEnablements    []struct {
			GroupVersion string `json:"groupVersion"`
			Resources    []struct {
				Kind string `json:"kind"`
			} `json:"resources"`
		} `json:"apiEnablements"`
		NodeSummary *struct {
			TotalNum int64 `json:"totalNum"`
			ReadyNum int64 `json:"readyNum"`
		} `json:"nodeSummary"`
		ResourceSummary *struct {
			Allocatable corev1.ResourceList `json:"allocatable"`
			Allocating  corev1.ResourceList `json:"allocating"`
			Allocated   corev1.ResourceList `json:"allocated"`
		} `json:"resourceSummary"`
	} `json:"status"`
}
