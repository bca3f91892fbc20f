package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri"
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
func (a *Agent) created(ctx context.Context, c nri.Container) (edits cdi.Edits, err error) {
	defer a.caught(&err)
	_, ours := c.Getenv(contract.GivenGPUsEnv)
	pod, err := a.pods.of(ctx, c.Pod, c.PodUID)
	if err != nil && !ours && !seesGPUs(c) {
		return nil, nil // it starts, whosever it is
	}
	if err != nil {
		return nil, err
	}
	resource, plainInit := gpuResource(pod, c.Name)
	var given contract.ConfirmedContainer
	switch {
	case resource == "":
		if edits, err = a.withoutGPUs(ctx, pod, c); err == nil {
			return edits, nil
		}
	case ours:
		given, edits, err = a.verify(ctx, pod, c, resource, plainInit)
	case a.serves(resource):
		err = fmt.Errorf("the kubelet has given it no device of %s: make the pod again", resource)
	case !seesGPUs(c):
		return nil, nil // whatever it asks for
	default:
		var other bool
		if other, err = a.hasOthers(ctx, pod, c.Name, resource); other {
			return nil, nil // what another plugin has given
		}
		if err == nil {
			err = fmt.Errorf("no device plugin of the node offers %s: make the pod again", resource)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // it has been refused
	}
	if err != nil {
		err = fmt.Errorf("no GPU for container %s: %w", c.Name, err)
		a.Log.Error("a container is not given GPUs", "pod", c.Pod, "error", err)
		a.Events.Event(pod, corev1.EventTypeWarning, "GPUsRefused", err.Error())
		return nil, err
	}
	a.confirm(pod, c.Name, given)
	return edits, nil
}

// found confirms what containers have that were created when no agent could say so: the one before had told the runtime their GPUs, and ended.
func (a *Agent) found(ctx context.Context, containers []nri.Container) {
	for _, c := range containers {
		told, ours := c.Getenv(contract.GivenGPUsEnv)
		if !ours || told == contract.NoGPUs {
			continue
		}
		given := contract.ConfirmedContainer{Way: contract.WayCDI, GPUs: strings.Split(told, ",")}
		pod, err := a.pods.of(ctx, c.Pod, c.PodUID)
		if errors.Is(err, errGone) { // it was deleted by force
			pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: c.PodUID}}
			a.confirmer.add(pod, c.Name, given)
			a.leave(pod)
		}
		if err != nil {
			continue // the next agent finds it
		}
		resource, _ := gpuResource(pod, c.Name)
		if _, known := a.confirmer.of(pod).Containers[c.Name]; known || resource == "" {
			continue
		}
		if part, err := a.partOf(pod, c.Name, resource, nil); err == nil && len(part.Shares) == len(given.GPUs) {
			given.Shares, given.Unenforced = part.Shares, a.Enforcer == nil
		}
		a.confirm(pod, c.Name, given)
	}
}

// verify holds the GPUs that a container was told against the pod's record, and returns what it is given, with what is
// missing for that.
func (a *Agent) verify(ctx context.Context, pod *corev1.Pod, c nri.Container, resource string, plainInit bool) (given contract.ConfirmedContainer, missing cdi.Edits, err error) {
	told, _ := c.Getenv(contract.GivenGPUsEnv)
	a.noCDI.Store(told == contract.NoGPUs && !c.Pending)
	got := strings.Split(told, ",")
	if visible, _ := c.Getenv(contract.VisibleDevicesEnv); told != contract.NoGPUs && seesGPUs(c) && visible != told {
		return given, nil, fmt.Errorf("its %s is %q, and the container runtime was to give it %s: leave that variable to the node agent", contract.VisibleDevicesEnv, visible, told)
	}
	if resource == contract.ResourceDefaultGPU { // the kubelet has chosen
		switch status, known := a.hardware(); {
		case !known:
			return given, nil, errUnknown
		case !a.serves(resource):
			return given, nil, fmt.Errorf("the node agent does not offer %s", resource)
		case setsGiven(pod, c.Name):
			return given, nil, fmt.Errorf("the pod sets %s itself: leave that variable to the node agent", contract.GivenGPUsEnv)
		case told == contract.NoGPUs:
			return given, nil, errors.New("the container runtime does not read CDI specifications: switch that on")
		default:
			return contract.ConfirmedContainer{Way: contract.WayCDI, GPUs: got}, nil, a.free(ctx, pod, got, status)
		}
	}
	part, err := a.partOf(pod, c.Name, resource, nil)
	if err != nil {
		return given, nil, err
	}
	if told == contract.NoGPUs {
		given, missing, _, err = a.editsOf(ctx, pod, part)
		given.Way = contract.WayNRI
		return given, missing, err
	}
	if given, _, err = a.givenOf(ctx, pod, part); err != nil {
		return given, nil, err
	}
	if !slices.Equal(given.GPUs, got) {
		next, ok := a.next(ctx, pod, c.Name, resource, got)
		if !plainInit || !ok {
			return given, nil, fmt.Errorf("the container runtime was to give it %s, and the allocation record says %s: the kubelet tries again", told, strings.Join(given.GPUs, ","))
		}
		given = next
	}
	return given, nil, nil
}

// setsGiven reports whether a pod itself sets the variable by which a container is told its GPUs: without CDI that would count.
func setsGiven(pod *corev1.Pod, container string) bool {
	c := called(pod, container)
	return c != nil && slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == contract.GivenGPUsEnv })
}

// called is the container of a pod with a name, be it an init container, nil for none.
func called(pod *corev1.Pod, name string) *corev1.Container {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	if at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name }); at >= 0 {
		return &all[at]
	}
	return nil
}

// next is what another container of a pod is given that asks for as much as an init container and has these GPUs, when it does not run
// beside that: the kubelet, which does not list the init container, may have named the one that has its devices next.
func (a *Agent) next(ctx context.Context, pod *corev1.Pod, container, resource string, got []string) (given contract.ConfirmedContainer, ok bool) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == container })
	for i, c := range all {
		if i == at || i < at && inventory.Sidecar(c) || !sameAmount(c, all[at], resource) {
			continue
		}
		part, err := a.partOf(pod, c.Name, resource, nil)
		if err != nil {
			continue
		}
		if given, _, err = a.givenOf(ctx, pod, part); err == nil && slices.Equal(given.GPUs, got) {
			return given, true
		}
	}
	return given, false
}

func sameAmount(a, b corev1.Container, resource string) bool {
	one, other := a.Resources.Requests[corev1.ResourceName(resource)], b.Resources.Requests[corev1.ResourceName(resource)]
	return one.Cmp(other) == 0
}

// withoutGPUs keeps NVIDIA's container runtime from giving GPUs to a container that asks for none: images of NVIDIA's, and those
// built from them, ask that runtime for all. What runs on every node, such as a monitor of GPUs, may have them.
func (a *Agent) withoutGPUs(ctx context.Context, pod *corev1.Pod, c nri.Container) (cdi.Edits, error) {
	owner := metav1.GetControllerOf(pod)
	if !seesGPUs(c) || owner != nil && owner.Kind == "DaemonSet" || pod.Namespace == metav1.NamespaceSystem {
		return nil, nil
	}
	if has, err := a.hasAny(ctx, pod, c.Name); has || err != nil {
		return nil, err
	}
	edits := cdi.Edits{}
	edits.Env(contract.VisibleDevicesEnv + "=" + contract.NoVisibleDevices)
	return edits, nil
}

// seesGPUs reports whether NVIDIA's container runtime would give a container GPUs. It gives all of them to one of which the image says only
// a version of CUDA, as old images do.
func seesGPUs(c nri.Container) bool {
	visible, set := c.Getenv(contract.VisibleDevicesEnv)
	if !set {
		cuda, _ := c.Getenv("CUDA_VERSION")
		requires, _ := c.Getenv("NVIDIA_REQUIRE_CUDA")
		return cuda != "" && requires == ""
	}
	return visible != "" && visible != "none" && visible != contract.NoVisibleDevices
}

// hasAny reports whether a container has GPUs of other plugins or drivers, such as MIG devices.
func (a *Agent) hasAny(ctx context.Context, pod *corev1.Pod, container string) (bool, error) {
	c := called(pod, container)
	if c == nil {
		return false, nil
	}
	if len(c.Resources.Claims) > 0 {
		return true, nil
	}
	for name := range c.Resources.Requests {
		if resource := string(name); offersGPUs(resource) || strings.HasPrefix(resource, migPrefix) {
			if has, err := a.hasOthers(ctx, pod, container, resource); has || err != nil {
				return has, err
			}
		}
	}
	return false, nil
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
				return name, i < len(pod.Spec.InitContainers) && !inventory.Sidecar(c)
			}
		}
	}
	return "", false
}
