package queue

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// quantities writes amounts of the quota tree as Kubernetes does. Zeros are left out.
func quantities(amounts quota.Resources) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range amounts {
		if amount != 0 {
			list[corev1.ResourceName(name)] = inventory.Quantity(name, amount)
		}
	}
	return list
}
