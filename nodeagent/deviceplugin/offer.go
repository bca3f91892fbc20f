package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// resourcesOf are the extended resources by which a node in a mode offers its GPUs.
func resourcesOf(mode placement.Mode) []string {
	switch {
	case mode == placement.ModeDefault || mode == placement.ModeNone: // ACK's default
		return []string{contract.ResourceDefaultGPU}
	case mode == placement.ModeTopology:
		return []string{contract.ResourceTopologyGPU}
	case mode == placement.ModeCoreMem:
		return []string{contract.ResourceGPUMemory, contract.ResourceGPUCount, contract.ResourceCorePercent}
	case mode.Shared():
		return []string{contract.ResourceGPUMemory, contract.ResourceGPUCount}
	}
	return nil
}

// asked are the resources that pods ask for which have not ended.
func asked(pods []*corev1.Pod) (resources []string) {
	for _, pod := range pods {
		if inventory.Finished(pod) {
			continue
		}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for _, c := range list {
				for name, quantity := range c.Resources.Requests {
					if quantity.Sign() > 0 {
						resources = append(resources, string(name))
					}
				}
			}
		}
	}
	return resources
}

// offer is what a node offers: what its mode says, but as long as another resource is used, what the mode of that
// says, so that the containers that use it can start again and no GPU is counted twice.
func offer(mode placement.Mode, used []string) []string {
	wanted := resourcesOf(mode)
	for _, other := range []struct {
		resource string
		mode     placement.Mode
	}{
		{contract.ResourceDefaultGPU, placement.ModeDefault},
		{contract.ResourceTopologyGPU, placement.ModeTopology},
		{contract.ResourceCorePercent, placement.ModeCoreMem}, // offers memory, too
		{contract.ResourceGPUMemory, placement.ModeShare},
	} {
		if slices.Contains(used, other.resource) && !slices.Contains(wanted, other.resource) {
			return resourcesOf(other.mode)
		}
	}
	return wanted
}

// migPrefix begins the resources by which NVIDIA's plugin offers MIG devices.
const migPrefix = "nvidia.com/mig-"

// offersGPUs reports whether plugins offer GPUs by a resource, whole or in parts; MIG devices are of GPUs that nobody else gives away.
func offersGPUs(resource string) bool {
	return strings.HasPrefix(resource, contract.ResourceDefaultGPU) || strings.HasPrefix(resource, contract.ResourceTopologyGPU)
}

// idPrefix begins the IDs of our devices, so that they are told from those of other plugins. The IDs are only counted,
// but for those of [contract.ResourceDefaultGPU]: the GPUs of a container are those of the pod's record, whichever
// devices the kubelet has chosen.
const idPrefix = "gpuplan-"

// foreignOf returns the first of devices that is none of this plugin.
func foreignOf(ids []string) (id string, ok bool) {
	at := slices.IndexFunc(ids, func(id string) bool { return !strings.HasPrefix(id, idPrefix) })
	if at < 0 {
		return "", false
	}
	return ids[at], true
}

// usable says why a GPU must not be given to a container, "" when it may.
func usable(info contract.GPUInfo, status contract.GPUNodeStatus) string {
	switch unread := status.Unread(); {
	case unread != "":
		return unread
	case info.MIG:
		return "it is in MIG mode"
	case info.Health != contract.Healthy:
		return cmp.Or(info.Reason, "it is unhealthy")
	}
	return ""
}

// mostMemoryMiB is more memory than any GPU has.
const mostMemoryMiB = 16 << 20

// devicesOf are the devices of a resource: one per GPU, GiB of its memory, or hundredth of it. Those of a GPU that must not be given away
// are unhealthy, as are all while the GPUs cannot be read. But where devices are only counted, as many of such a GPU as pods hold stay
// healthy: the kubelet and the scheduler subtract these pods from the healthy ones.
func devicesOf(resource string, status contract.GPUNodeStatus, held parts) []*pluginapi.Device {
	var devices []*pluginapi.Device
	for _, info := range status.GPUs {
		all, part := int64(1), int64(0)
		mine, ok := held[identity(info)]
		switch resource {
		case contract.ResourceGPUMemory:
			all, part = min(info.MemoryMiB, mostMemoryMiB)>>10, mine.MemoryGiB
		case contract.ResourceCorePercent:
			all, part = 100, mine.CorePercent
		case contract.ResourceTopologyGPU, contract.ResourceGPUCount:
			if ok {
				part = 1
			}
		}
		switch {
		case usable(info, status) == "":
			part = all
		case status.Unread() != "":
			part = 0
		}
		id := idPrefix + strconv.Itoa(info.Index)
		for i := range all {
			device := &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy}
			if i < part {
				device.Health = pluginapi.Healthy
			}
			if resource == contract.ResourceGPUMemory || resource == contract.ResourceCorePercent {
				device.ID = fmt.Sprintf("%s-%d", id, i)
			}
			devices = append(devices, device)
		}
	}
	return devices
}

// indexesOf are the GPUs of devices, ascending.
func indexesOf(ids []string) ([]int, error) {
	var indexes []int
	for _, id := range ids {
		index, err := strconv.Atoi(strings.TrimPrefix(id, idPrefix))
		if err != nil {
			return nil, fmt.Errorf("device %q is no GPU of this plugin", id)
		}
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	return indexes, nil
}

// givesGPUs reports whether devices of a resource stand for GPUs in a container; the number of GPUs is only told.
func givesGPUs(resource string) bool { return resource != contract.ResourceGPUCount }
