package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/split"
)

// start gives the container that is about to be created with devices of a resource the GPUs of its pod's record, or
// says why it gets none: the kubelet shows that in the pod's events, and tries again.
func (a *Agent) start(ctx context.Context, resource string, ids []string) (err error) {
	defer a.caught(&err)
	to, err := a.recipientOf(ctx, resource, ids)
	if errors.Is(err, errUnlisted) && a.runtime.Asked() && resource != contract.ResourceDefaultGPU {
		return a.CDI.Write(cdi.Name(resource, ids), pendingOwner, "", cdi.Pending()) // the runtime asks for whom it is
	}
	if err != nil {
		a.Log.Error("a container is not given GPUs", "error", err)
		return err
	}
	// What was written for a pod of before is removed when the kubelet asks for the devices of the next (Allocate).
	pod, err := a.pods.get(ctx, to.pod, func(uid types.UID) bool { return a.CDI.Has(cdi.Name(resource, ids), string(uid)) })
	if err != nil {
		a.Log.Error("a container is not given GPUs", "pod", to.pod, "container", to.container, "error", err)
		return err
	}
	if to.container == "" {
		to.container = initContainer(pod, resource, len(ids))
	}
	given, err := a.give(ctx, pod, to.container, resource, ids)
	switch version := a.Nodes.Runtime(a.Node); {
	case err != nil:
	case !tells(version):
		err = fmt.Errorf("the container runtime, %s, cannot be told: containerd 1.7 and later can, by CDI or NRI", version)
	case a.noCDI.Load() && !a.runtime.Asked():
		err = errors.New("the container runtime reads no CDI specifications, and does not ask for its GPUs by NRI now: the kubelet tries again")
	}
	if err != nil {
		err = fmt.Errorf("no GPU for container %s: %w", to.container, err)
		a.Log.Error("a container is not given GPUs", "pod", to.pod, "error", err)
		a.Events.Event(pod, corev1.EventTypeWarning, "GPUsRefused", err.Error())
		return err
	}
	if !a.runtime.Asked() { // else the runtime tells what becomes of it
		a.confirm(pod, to.container, given)
	}
	return nil
}

// confirm says what a container is given.
func (a *Agent) confirm(pod *corev1.Pod, container string, given contract.ConfirmedContainer) {
	a.Log.Info("a container is given its GPUs", "pod", pod.Namespace+"/"+pod.Name, "container", container,
		"gpus", given.GPUs, "shares", given.Shares, "unenforced", given.Unenforced, "way", given.Way)
	given.Indexes = a.indexes(given.GPUs)
	a.confirmer.add(pod, container, given)
}

// indexes are the indexes of GPUs of the node by their identities, -1 of one that it does not list.
func (a *Agent) indexes(names []string) []int {
	status, _ := a.hardware()
	indexes := make([]int, len(names))
	for i, name := range names {
		indexes[i] = -1
		if at := slices.IndexFunc(status.GPUs, func(info contract.GPUInfo) bool { return identity(info) == name }); at >= 0 {
			indexes[i] = status.GPUs[at].Index
		}
	}
	return indexes
}

// initContainer is the last init container, sidecars aside, that asks for so much of a resource: those that ask for the
// same have the same GPUs.
func initContainer(pod *corev1.Pod, resource string, n int) (name string) {
	for _, c := range pod.Spec.InitContainers {
		if asked := c.Resources.Requests[corev1.ResourceName(resource)]; !inventory.Sidecar(c) && asked.Value() == int64(n) {
			name = c.Name
		}
	}
	return name
}

// give writes the specification with the container's GPUs.
func (a *Agent) give(ctx context.Context, pod *corev1.Pod, container, resource string, ids []string) (contract.ConfirmedContainer, error) {
	part, err := a.partOf(pod, container, resource, ids)
	if err != nil {
		return contract.ConfirmedContainer{}, err
	}
	given, edits, version, err := a.editsOf(ctx, pod, part)
	if err != nil {
		return contract.ConfirmedContainer{}, err
	}
	if err := ctx.Err(); err != nil { // the kubelet has asked again, or given the devices to another container
		return contract.ConfirmedContainer{}, fmt.Errorf("the kubelet does not wait any more: %w", err)
	}
	return given, a.CDI.Write(cdi.Name(resource, ids), string(pod.UID), version, edits)
}

// editsOf is what a container needs to use a part of its pod's record, and what it is given by that. version is the one of the
// CDI specification that the edits need.
func (a *Agent) editsOf(ctx context.Context, pod *corev1.Pod, part split.Part) (given contract.ConfirmedContainer, edits cdi.Edits, version string, err error) {
	given, gpus, err := a.givenOf(ctx, pod, part)
	if err != nil {
		return given, nil, "", err
	}
	edits = cdi.Edits{}
	list := strings.Join(given.GPUs, ",")
	edits.Env(contract.VisibleDevicesEnv+"="+list, contract.GivenGPUsEnv+"="+list)
	if !a.Simulated {
		if version, err = a.driver(edits, gpus); err != nil {
			return given, nil, "", err
		}
	}
	if len(part.Shares) > 0 {
		a.sharing.begin(pod)
		if err := a.enforce(edits, gpus, part.Shares); err != nil {
			return given, nil, "", err
		}
	}
	return given, edits, version, nil
}

// errUnknown means that no agent has published the GPUs since the node has started.
var errUnknown = errors.New("the GPUs of the node are not known yet")

// givenOf is what a container is given by a part of a record, with the GPUs: these are no other pod's.
func (a *Agent) givenOf(ctx context.Context, pod *corev1.Pod, part split.Part) (given contract.ConfirmedContainer, gpus []contract.GPUInfo, err error) {
	status, ok := a.hardware()
	if !ok {
		return given, nil, errUnknown
	}
	indexes := slices.Clone(part.GPUs)
	for _, share := range part.Shares {
		indexes = append(indexes, share.GPU)
	}
	for _, index := range indexes {
		info, ok := gpuOf(status.GPUs, index)
		if !ok {
			return given, nil, fmt.Errorf("node %s has no GPU %d", a.Node, index)
		}
		gpus = append(gpus, info)
	}
	given = contract.ConfirmedContainer{
		Way: contract.WayCDI, GPUs: identities(gpus), Shares: part.Shares, Unenforced: len(part.Shares) > 0 && a.Enforcer == nil,
	}
	return given, gpus, a.free(ctx, pod, given.GPUs, status)
}

// gpuOf is the GPU of an index.
func gpuOf(gpus []contract.GPUInfo, index int) (info contract.GPUInfo, ok bool) {
	at := slices.IndexFunc(gpus, func(info contract.GPUInfo) bool { return info.Index == index })
	if at < 0 {
		return info, false
	}
	return gpus[at], true
}

// partOf is what a container has of the pod's record. In mode default the record names no GPUs: there the kubelet chooses.
func (a *Agent) partOf(pod *corev1.Pod, container, resource string, ids []string) (split.Part, error) {
	if pod.Spec.NodeName != a.Node {
		return split.Part{}, fmt.Errorf("the pod is bound to node %q, and this is %s", pod.Spec.NodeName, a.Node)
	}
	if id, ok := foreignOf(ids); ok { // what its plugin has answered is what the kubelet has the container get
		return split.Part{}, fmt.Errorf("it has a device of another plugin, %q: make the pod again", id)
	}
	if resource == contract.ResourceDefaultGPU {
		indexes, err := indexesOf(ids)
		return split.Part{GPUs: indexes}, err
	}
	record, ok, err := contract.AllocationFrom(pod.Annotations)
	switch {
	case err != nil:
		return split.Part{}, err
	case !ok:
		return split.Part{}, fmt.Errorf("the pod has no allocation record: pods that ask for %s need the schedulerName %s", resource, contract.SchedulerName)
	case record.Node != a.Node:
		return split.Part{}, fmt.Errorf("the allocation record is for node %q, and this is %s", record.Node, a.Node)
	}
	parts, err := split.Pod(&pod.Spec, record)
	if err != nil {
		return split.Part{}, err
	}
	for _, c := range pod.Spec.InitContainers {
		if cores := c.Resources.Requests[contract.ResourceCorePercent]; cores.Sign() > 0 && !inventory.Sidecar(c) {
			// By its memory and by its cores the kubelet may list it as different containers.
			return split.Part{}, fmt.Errorf("init container %s asks for %s: only sidecars and containers can", c.Name, contract.ResourceCorePercent)
		}
	}
	part := parts[container]
	if part.Empty() {
		return part, fmt.Errorf("the allocation record has nothing of %s for it", resource)
	}
	return part, nil
}

// identities are how NVIDIA's container runtime knows GPUs.
func identities(gpus []contract.GPUInfo) (names []string) {
	for _, info := range gpus {
		names = append(names, identity(info))
	}
	return names
}

func identity(info contract.GPUInfo) string {
	if info.UUID == "" {
		return strconv.Itoa(info.Index)
	}
	return info.UUID
}

// driver adds the device nodes of GPUs, and what NVIDIA's own specification has for them beside, where there is one: it
// also tells NVIDIA's runtime by the environment that nothing is left for it to do. version is what the edits need.
func (a *Agent) driver(edits cdi.Edits, gpus []contract.GPUInfo) (version string, err error) {
	var paths []string
	for _, info := range gpus {
		path, err := a.deviceNode(info)
		if err != nil {
			return "", err
		}
		paths = append(paths, path)
	}
	vendor, version, err := cdi.Vendor(a.VendorCDI, paths)
	if err != nil {
		return "", fmt.Errorf("find the driver's files for the container: %w", err)
	}
	if vendor != nil {
		edits.Add(vendor)
		return version, nil
	}
	for _, path := range paths {
		edits.DeviceNode(path)
	}
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} {
		if _, err := os.Stat(filepath.Join(a.Root, "dev", name)); err == nil {
			edits.DeviceNode("/dev/" + name)
		}
	}
	return "", nil
}

// deviceNode is the path of a GPU's device node. Its number is the driver's minor number, which may be another than the
// index of NVML; the driver tells it by PCI address.
func (a *Agent) deviceNode(info contract.GPUInfo) (string, error) {
	file := filepath.Join(a.Root, "proc/driver/nvidia/gpus", strings.ToLower(info.PCIBusID), "information")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("GPU %d %s has gone from the driver: %w", info.Index, info.UUID, err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "Device Minor" {
			minor, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
			if err != nil {
				return "", fmt.Errorf("%s: the minor number of GPU %d is %q", file, info.Index, value)
			}
			return fmt.Sprintf("/dev/nvidia%d", minor), nil
		}
	}
	return "", fmt.Errorf("%s does not tell the minor number of GPU %d", file, info.Index)
}

// enforce adds what ACK sets in containers with parts of GPUs, and what keeps them to these.
func (a *Agent) enforce(edits cdi.Edits, gpus []contract.GPUInfo, shares []contract.GPUShare) error {
	least, device := shares[0].MemoryGiB, gpus[0].MemoryMiB
	env, from := map[string]string{}, map[string]string{}
	for i, share := range shares {
		least, device = min(least, share.MemoryGiB), min(device, gpus[i].MemoryMiB)
		if a.Enforcer == nil {
			continue
		}
		set, mounts, err := a.Enforcer.Edits(gpus[i].UUID, share.MemoryGiB<<10, share.CorePercent)
		if err != nil {
			return fmt.Errorf("its part of GPU %d cannot be enforced: %w", share.GPU, err)
		}
		for _, entry := range set {
			name, value, _ := strings.Cut(entry, "=")
			if env[name] != value {
				env[name] = value
				edits.Env(entry)
			}
		}
		for _, m := range mounts {
			if other, ok := from[m.Container]; ok && other != m.Host {
				return fmt.Errorf("parts of GPUs %d and %d cannot both be enforced in one container: each needs a folder of its own at %s. Ask for one GPU, or run the node without --mps", shares[0].GPU, share.GPU, m.Container)
			}
			from[m.Container] = m.Host
			edits.Mount(m.Host, m.Container, []string{"rbind", "ro"})
		}
	}
	edits.Env(fmt.Sprintf("%s=%d", contract.ShareMemoryEnv, least), fmt.Sprintf("%s=%d", contract.DeviceMemoryEnv, device>>10))
	return nil
}
