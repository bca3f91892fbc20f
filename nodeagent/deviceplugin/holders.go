package deviceplugin

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/usage"
)

// Holders returns the containers that were given GPUs on this node and that have not ended, one entry for each GPU, by pod.
func (a *Agent) Holders() (holders []usage.Holder) {
	if !a.ready.Load() {
		return nil
	}
	pods := slices.DeleteFunc(a.pods.list(), inventory.Finished)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		given := a.confirmer.of(pod).Containers
		gang, _ := inventory.GangKey(pod)
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			id, ended := statusOf(pod, container.Name)
			if ended {
				continue
			}
			for i, gpu := range given[container.Name].GPUs {
				holder := usage.Holder{
					Namespace: pod.Namespace, Pod: pod.Name, UID: uidOfNode(pod), Container: container.Name, ContainerID: id,
					Gang: gang, GPU: gpu,
				}
				if shares := given[container.Name].Shares; i < len(shares) {
					holder.MemoryLimit, holder.CoresLimit = float64(shares[i].MemoryGiB)*(1<<30), float64(shares[i].CorePercent)/100
				}
				holders = append(holders, holder)
			}
		}
	}
	return holders
}

// statusOf is what the runtime calls a container, "" before it has started, and whether it has ended.
func statusOf(pod *corev1.Pod, name string) (id string, ended bool) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name == name {
			return status.ContainerID, status.State.Terminated != nil
		}
	}
	return "", false
}
