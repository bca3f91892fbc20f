package topology

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
)

// announce records an event on the node for each GPU whose health has changed, and for
// hardware that cannot be read any more, or again.
func (p *publisher) announce(before, now contract.GPUNodeStatus, node *unstructured.Unstructured) {
	was := map[string]string{}
	for _, gpu := range before.GPUs {
		was[identity(gpu)] = gpu.Health
	}
	for _, gpu := range now.GPUs {
		switch before := was[identity(gpu)]; {
		case gpu.Health == contract.Unhealthy && before != contract.Unhealthy:
			p.Events.Eventf(node, corev1.EventTypeWarning, "GPUUnhealthy", "GPU %d %s must not be used: %s", gpu.Index, gpu.UUID, gpu.Reason)
		case gpu.Health == contract.Healthy && before == contract.Unhealthy:
			p.Events.Eventf(node, corev1.EventTypeNormal, "GPUHealthy", "GPU %d %s is used again", gpu.Index, gpu.UUID)
		}
	}
	p.announcePorts(before, now, node)
	switch then, ready := unreadable(before), unreadable(now); {
	case ready != "" && then == "":
		p.Events.Eventf(node, corev1.EventTypeWarning, "GPUsUnreadable", "The GPUs cannot be read, and nothing is placed on them: %s", ready)
	case ready == "" && then != "":
		p.Events.Eventf(node, corev1.EventTypeNormal, "GPUsReadable", "The GPUs can be read again")
	}
}

// announcePorts records an event for each RDMA device that is gone, or whose port can no longer be used, or can again.
func (p *publisher) announcePorts(before, now contract.GPUNodeStatus, node *unstructured.Unstructured) {
	down := map[string]bool{}
	for _, nic := range before.NICs {
		down[nic.Name] = nic.Unusable() != ""
		if !slices.ContainsFunc(now.NICs, func(n contract.NICInfo) bool { return n.Name == nic.Name }) {
			p.Events.Eventf(node, corev1.EventTypeWarning, "RDMADeviceGone", "The machine has no RDMA device %s any more: jobs that use it run without RDMA, or not at all", nic.Name)
		}
	}
	for _, nic := range now.NICs {
		switch why := nic.Unusable(); {
		case why == "" && nic.Port != "" && down[nic.Name]:
			p.Events.Eventf(node, corev1.EventTypeNormal, "RDMAPortActive", "The port of RDMA device %s can be used again", nic.Name)
		case why != "" && !down[nic.Name]:
			p.Events.Eventf(node, corev1.EventTypeWarning, "RDMAPortDown", "The port of RDMA device %s %s: jobs that use it run without RDMA, or not at all", nic.Name, why)
		}
	}
}

// identity is what tells a published GPU from others.
func identity(gpu contract.GPUInfo) string {
	if gpu.UUID != "" {
		return gpu.UUID
	}
	return fmt.Sprint(gpu.Index)
}

// unreadable says why the GPUs cannot be read, "" when they can.
func unreadable(status contract.GPUNodeStatus) string {
	if ready := meta.FindStatusCondition(status.Conditions, contract.ConditionReady); ready != nil && ready.Status == metav1.ConditionUnknown {
		return ready.Message
	}
	return ""
}

// nodeConditions returns the write that repeats the GPUNode's condition on the Node, beside that of its RDMA devices, nil
// when the Node has them.
func (p *publisher) nodeConditions(node *unstructured.Unstructured, status contract.GPUNodeStatus) func(context.Context) error {
	ready := *meta.FindStatusCondition(status.Conditions, contract.ConditionReady)
	ready.Type = contract.GPUsReadyCondition
	conditions := []metav1.Condition{ready}
	before, _ := condition.Find(node, contract.RDMAReadyCondition) // what cannot be read is written again
	if rdma := rdmaCondition(status.NICs, p.Now()); before != nil || rdma.Reason != reasonNoPorts {
		conditions = append(conditions, rdma)
	}
	patch, changed := condition.Patch(node, conditions...)
	if !changed {
		return nil
	}
	return func(ctx context.Context) error { return p.apply(ctx, cluster.Node, patch, "status") }
}
