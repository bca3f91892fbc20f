package inventory

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Consumer is what a pod means to a quota tree.
type Consumer struct {
	// Leaf is the leaf that is charged, "" for none.
	Leaf        string
	Charge      quota.Resources
	Preemptible bool
}

// ConsumerOf reads from a pod what it is charged and where; tree may be nil.
func ConsumerOf(p *corev1.Pod, tree *quota.Tree) Consumer {
	request, _ := requestOf(p)
	return Consumer{Leaf: LeafOf(p, tree), Charge: request.Charge(), Preemptible: Preemptible(p)}
}
