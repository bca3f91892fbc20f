package queue

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// quantities writes amounts of the quota tree as Kubernetes does. Zeros are left out.
func quantities(amounts quota.Resources) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range amounts {
		if amount != 0 {
			list[corev1.ResourceName(name)] = quantity(name, amount)
		}
	}
	return list
}

func quantity(name string, amount int64) resource.Quantity {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}
