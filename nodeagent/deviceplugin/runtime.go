package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/split"
)

// pendingOwner owns the specifications of containers of which only the runtime will tell whose they are.
const pendingOwner = "pending"

// tells reports whether a container runtime can learn the GPUs of a container. Of those of which it depends on their
// configuration it is assumed, as it is of others.
func tells(version string) bool {
	return !oldRuntimes.MatchString(version)
}

// oldRuntimes are Docker, and containerd before 1.7.
var oldRuntimes = regexp.MustCompile(`^(docker://|containerd://v?(0|1\.[0-6])\.)`)

// created is asked by the container runtime before it creates a container, when everything is in it that the kubelet and
// CDI have added. The runtime knows the UID of the pod: what CDI has given must be what the pod's record says. A container
// that CDI has given nothing is given its GPUs now: the kubelet does not list it, or the runtime does not read CDI.
func (a *Agent) created(ctx context.Context, c nri.Container) (cdi.Edits, error) {
	told, ours := c.Getenv(contract.GivenGPUsEnv)
	if !ours {
		return nil, nil // it has no devices of this plugin
	}
	pod, err := a.pods.of(ctx, c.Pod, c.PodUID)
	if err != nil {
		return nil, err
	}
	resource, plainInit := gpuResource(pod, c.Name)
	if resource == "" {
		return nil, nil // it has set the variable itself
	}
	given, edits, err := a.verify(ctx, pod, c.Name, resource, told, plainInit)
	if err != nil {
		err = fmt.Errorf("no GPU for container %s: %w", c.Name, err)
		a.Log.Error("a container is not given GPUs", "pod", c.Pod, "error", err)
		a.Events.Event(pod, corev1.EventTypeWarning, "GPUsRefused", err.Error())
		return nil, err
	}
	a.confirm(pod, c.Name, given)
	return edits, nil
}

// verify holds the GPUs that a container was told against the pod's record, and returns what it is given, with what is
// missing for that.
func (a *Agent) verify(ctx context.Context, pod *corev1.Pod, container, resource, told string, plainInit bool) (given contract.ConfirmedContainer, missing cdi.Edits, err error) {
	if resource == contract.ResourceDefaultGPU { // the kubelet has chosen
		if told == contract.NoGPUs {
			return given, nil, errors.New("the container runtime does not read CDI specifications: switch that on")
		}
		status, _ := a.hardware()
		given = contract.ConfirmedContainer{Way: contract.WayCDI, GPUs: strings.Split(told, ",")}
		return given, nil, a.free(ctx, pod, given.GPUs, status.GPUs)
	}
	part, err := a.partOf(pod, container, resource, nil)
	if err != nil {
		return given, nil, err
	}
	if told == contract.NoGPUs {
		given, missing, _, err = a.editsOf(ctx, pod, part)
		given.Way = contract.WayNRI
		return given, missing, err
	}
	if given, _, _, err = a.givenOf(ctx, pod, part); err != nil {
		return given, nil, err
	}
	got := strings.Split(told, ",")
	switch {
	case slices.Equal(given.GPUs, got):
		return given, nil, nil
	case plainInit && a.has(ctx, pod, got, len(given.GPUs)):
		return contract.ConfirmedContainer{Way: contract.WayCDI, GPUs: got}, nil, nil
	}
	return given, nil, fmt.Errorf("the container runtime was to give it %s, and the allocation record says %s: the kubelet tries again", told, strings.Join(given.GPUs, ","))
}

// has reports whether n GPUs are all of a pod's record: to an init container that runs alone any of them are free, and the
// kubelet, which does not list it, may have named the container that has its devices next.
func (a *Agent) has(ctx context.Context, pod *corev1.Pod, gpus []string, n int) bool {
	record, ok, err := contract.AllocationFrom(pod.Annotations)
	if err != nil || !ok {
		return false
	}
	all, _, _, err := a.givenOf(ctx, pod, split.Part{GPUs: record.GPUs, Shares: record.Shares})
	return err == nil && len(gpus) == n && !slices.ContainsFunc(gpus, func(name string) bool { return !slices.Contains(all.GPUs, name) })
}

// gpuResource is the resource by which a container asks for GPUs, "" when it asks for none, and whether it is an init container
// that is no sidecar.
func gpuResource(pod *corev1.Pod, container string) (resource string, plainInit bool) {
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != container {
			continue
		}
		for _, name := range []string{contract.ResourceTopologyGPU, contract.ResourceGPUMemory, contract.ResourceDefaultGPU} {
			if quantity := c.Resources.Requests[corev1.ResourceName(name)]; quantity.Sign() > 0 {
				return name, i < len(pod.Spec.InitContainers) && !split.Sidecar(c)
			}
		}
	}
	return "", false
}
