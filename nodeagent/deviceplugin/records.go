package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// parts are how much of GPUs a pod has, by the identities of the GPUs.
type parts map[string]contract.GPUShare

// whole is all of a GPU.
func whole(info contract.GPUInfo) contract.GPUShare {
	return contract.GPUShare{MemoryGiB: info.MemoryMiB >> 10, CorePercent: 100}
}

func plus(a, b contract.GPUShare) contract.GPUShare {
	return contract.GPUShare{MemoryGiB: a.MemoryGiB + b.MemoryGiB, CorePercent: a.CorePercent + b.CorePercent}
}

// recorded are the GPUs that a pod's record names.
func (a *Agent) recorded(pod *corev1.Pod, gpus []contract.GPUInfo) parts {
	recorded := parts{}
	record, _, err := contract.AllocationFrom(pod.Annotations)
	if err != nil || record.Node != a.Node {
		return recorded // its containers get nothing by it
	}
	for _, index := range record.GPUs {
		if info, ok := gpuOf(gpus, index); ok {
			recorded[identity(info)] = whole(info)
		}
	}
	for _, share := range record.Shares {
		if info, ok := gpuOf(gpus, share.GPU); ok {
			recorded[identity(info)] = plus(recorded[identity(info)], share)
		}
	}
	return recorded
}

// had are the GPUs that a pod's containers were given: as much of each as the record says, and all of one that it does not name, as in
// mode default, or where the GPUs have other indexes by now.
func (a *Agent) had(pod *corev1.Pod, recorded parts, gpus []contract.GPUInfo) parts {
	had := parts{}
	for _, container := range a.confirmer.of(pod).Containers {
		for _, info := range gpus {
			name := identity(info)
			if !slices.Contains(container.GPUs, name) {
				continue
			}
			if had[name] = whole(info); recorded[name] != (contract.GPUShare{}) {
				had[name] = recorded[name]
			}
		}
	}
	return had
}

// held are the parts of GPUs that pods have which have not ended, or are to have.
func (a *Agent) held(gpus []contract.GPUInfo) parts {
	held := parts{}
	for _, pod := range a.present() {
		if inventory.Finished(pod) {
			continue
		}
		recorded := a.recorded(pod, gpus)
		all := a.had(pod, recorded, gpus)
		if !a.left.has(pod.UID) {
			maps.Copy(all, recorded)
		}
		for name, share := range all {
			held[name] = plus(held[name], share)
		}
	}
	return held
}

// free fails when one of the GPUs that a container of a pod is to have is another pod's, was renumbered, or must not be given to a pod
// that has not had it.
//
// The GPUs of a pod that has not ended, for the API server and on the node, are those of its record, and those that its containers were given. One that the
// pod itself was given is another's only when that was given it, too: a record that is made later takes nothing away.
func (a *Agent) free(ctx context.Context, pod *corev1.Pod, wanted []string, status contract.GPUNodeStatus) error {
	gpus := status.GPUs
	recorded := a.recorded(pod, gpus)
	had := a.had(pod, recorded, gpus)
	for name := range had {
		if _, ok := recorded[name]; !ok && len(recorded) > 0 {
			return fmt.Errorf("the pod was given %s, and its allocation record names that by an index which another GPU has by now: make the pod again", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	others := slices.DeleteFunc(a.present(), func(other *corev1.Pod) bool { return uidOfNode(other) == uidOfNode(pod) })
	for _, name := range wanted {
		at := slices.IndexFunc(gpus, func(info contract.GPUInfo) bool { return identity(info) == name })
		if at < 0 {
			return fmt.Errorf("node %s has no GPU %s", a.Node, name)
		}
		info := gpus[at]
		mine, ok := recorded[name]
		if !ok {
			mine = whole(info)
		}
		_, given := had[name]
		if reason := usable(info, status); reason != "" && !given {
			return fmt.Errorf("GPU %d %s cannot be used: %s", info.Index, info.UUID, reason)
		}
		sharers, taken := a.sharers(others, name, given, gpus)
		if len(sharers) > 0 && exceeds(plus(mine, taken), info) { // the watch may lag behind the scheduler's
			listed, err := a.listed(ctx)
			if err != nil {
				return err
			}
			others = slices.DeleteFunc(others, func(other *corev1.Pod) bool { return slices.Contains(sharers, other) && a.ended(ctx, other, listed) })
			sharers, taken = a.sharers(others, name, given, gpus)
		}
		if exceeds(plus(mine, taken), info) {
			if len(sharers) == 0 {
				return fmt.Errorf("the pod has %d GiB of GPU %d %s, which has only %d GiB by now: make the pod again", mine.MemoryGiB, info.Index, info.UUID, whole(info).MemoryGiB)
			}
			of := fmt.Sprintf("GPU %d %s is of pod %s/%s, too", info.Index, info.UUID, sharers[0].Namespace, sharers[0].Name)
			if inventory.Finished(sharers[0]) || sharers[0].DeletionTimestamp != nil {
				return fmt.Errorf("%s, of which containers have not ended on the node: the kubelet tries again", of)
			}
			return fmt.Errorf("%s, which has not ended: delete one of the pods", of)
		}
	}
	return nil
}

// sharers are those of pods that have a GPU, by what they were given alone or also by their records, with the sum of what they have of it.
// One that is gone is given nothing more.
func (a *Agent) sharers(pods []*corev1.Pod, name string, given bool, gpus []contract.GPUInfo) (sharers []*corev1.Pod, sum contract.GPUShare) {
	for _, pod := range pods {
		recorded := a.recorded(pod, gpus)
		share, ok := a.had(pod, recorded, gpus)[name]
		if !ok && !given && !a.left.has(pod.UID) {
			share, ok = recorded[name]
		}
		if ok {
			sharers, sum = append(sharers, pod), plus(sum, share)
		}
	}
	return sharers, sum
}

// exceeds reports whether a sum of parts is more than a GPU.
func exceeds(sum contract.GPUShare, info contract.GPUInfo) bool {
	all := whole(info)
	return sum.MemoryGiB > all.MemoryGiB || sum.CorePercent > all.CorePercent
}
