package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// recipient is the container to which the kubelet has given devices.
type recipient struct {
	pod types.NamespacedName
	// container is "" for an init container that is no sidecar: the kubelet does not list these, and gives their devices
	// to containers of the pod afterwards, by which the pod is known.
	container string
}

// errUnlisted means that the kubelet knows of no container with the devices.
var errUnlisted = errors.New("the kubelet does not tell which container has these devices: of init containers it tells only where the containers of the pod ask for GPUs, too")

// patience is for how long the kubelet keeps the devices of a plugin that has ended: it may be starting again.
const patience = 5 * time.Minute

// stranger is when another plugin offered GPUs last, and whether it was by the same resource.
type stranger struct {
	last time.Time
	same bool
}

// askAgain is how long to wait when the kubelet was asked too often.
const askAgain = 50 * time.Millisecond

// list asks the kubelet for the devices of all containers.
func (a *Agent) list(ctx context.Context) (list []*podresourcesapi.PodResources, err error) {
	err = a.ask(ctx, func(ctx context.Context, client podresourcesapi.PodResourcesListerClient) error {
		answer, err := client.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
		list = answer.GetPodResources()
		return err
	})
	return list, err
}

// recipientOf asks the kubelet who has devices of a resource.
func (a *Agent) recipientOf(ctx context.Context, resource string, ids []string) (recipient, error) {
	list, err := a.list(ctx)
	if err != nil {
		return recipient{}, err
	}
	wanted := sets.New(ids...)
	var exact, part []recipient
	for _, pod := range list {
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		shares := false
		for _, container := range pod.Containers {
			given := sets.New[string]()
			for _, devices := range container.Devices {
				if devices.ResourceName == resource {
					given.Insert(devices.DeviceIds...)
				}
			}
			shares = shares || given.HasAny(ids...)
			if given.Equal(wanted) {
				exact = append(exact, recipient{name, container.Name})
			}
		}
		if shares {
			part = append(part, recipient{pod: name})
		}
	}
	switch {
	case len(part) > 1:
		return recipient{}, fmt.Errorf("the kubelet lists devices of this container for %v and %v: it tries again when one of them has gone", part[0].pod, part[1].pod)
	case len(exact) > 0:
		return exact[0], nil
	case len(part) > 0:
		return part[0], nil
	}
	return recipient{}, errUnlisted
}

// used asks the kubelet for the resources of which pods that have not ended have devices of this plugin.
func (a *Agent) used(ctx context.Context) (resources []string, err error) {
	list, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range list {
		if known := a.pods.known(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}); known == nil || inventory.Finished(known) {
			continue
		}
		for _, container := range pod.Containers {
			for _, devices := range container.Devices {
				if _, foreign := foreignOf(devices.DeviceIds); !foreign {
					resources = append(resources, devices.ResourceName)
				}
			}
		}
	}
	return resources, nil
}

// listed are the pods that the kubelet lists with devices of this plugin.
func (a *Agent) listed(ctx context.Context) (sets.Set[types.NamespacedName], error) {
	list, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	listed := sets.New[types.NamespacedName]()
	for _, pod := range list {
		for _, container := range pod.Containers {
			if slices.ContainsFunc(container.Devices, func(d *podresourcesapi.ContainerDevices) bool {
				_, foreign := foreignOf(d.DeviceIds)
				return !foreign
			}) {
				listed.Insert(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
			}
		}
	}
	return listed, nil
}

// offered asks the kubelet for the healthy devices of all plugins.
func (a *Agent) offered(ctx context.Context) (offered []*podresourcesapi.ContainerDevices, err error) {
	err = a.ask(ctx, func(ctx context.Context, client podresourcesapi.PodResourcesListerClient) error {
		answer, err := client.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
		offered = answer.GetDevices()
		return err
	})
	return offered, err
}

// hasOthers reports whether a container that asks for a resource has devices of it from another plugin. The kubelet admits pods that ask
// for what no plugin of the node has ever offered.
func (a *Agent) hasOthers(ctx context.Context, pod *corev1.Pod, container, resource string) (bool, error) {
	others := func(devices *podresourcesapi.ContainerDevices) bool {
		_, foreign := foreignOf(devices.DeviceIds)
		return foreign && devices.ResourceName == resource
	}
	offered, err := a.offered(ctx)
	if err != nil || slices.ContainsFunc(offered, others) {
		return err == nil, err
	}
	list, err := a.list(ctx) // the other plugin may be starting again
	return slices.ContainsFunc(list, func(p *podresourcesapi.PodResources) bool {
		return p.Namespace == pod.Namespace && p.Name == pod.Name && slices.ContainsFunc(p.Containers, func(c *podresourcesapi.ContainerResources) bool {
			return c.Name == container && slices.ContainsFunc(c.Devices, others)
		})
	}), err
}

// foreign says who else gives the GPUs away, "" for nobody: another plugin that offers them, by whatever resource, or has offered them
// until lately, or a pod with devices of one that has gone, of which this plugin cannot know the GPUs. same means that it is by this
// resource.
func (a *Agent) foreign(ctx context.Context, resource string) (who string, same bool, err error) {
	offered, err := a.offered(ctx)
	if err != nil {
		return "", false, err
	}
	note := func(devices *podresourcesapi.ContainerDevices, format string, args ...any) {
		id, ok := foreignOf(devices.DeviceIds)
		if !ok || !offersGPUs(devices.ResourceName) {
			return
		}
		text := fmt.Sprintf(format+" (%s, like %q)", append(args, devices.ResourceName, id)...)
		if who == "" || text < who { // the kubelet lists them in any order
			who = text
		}
		same = same || devices.ResourceName == resource
	}
	for _, devices := range offered {
		note(devices, "another device plugin offers GPUs")
	}
	switch {
	case who != "":
		a.seen[resource] = stranger{time.Now(), same}
		return who, same, nil
	case time.Since(a.seen[resource].last) < a.patience:
		return "another device plugin has offered GPUs until lately, and may be starting again", a.seen[resource].same, nil
	}
	list, err := a.list(ctx)
	for _, pod := range list {
		for _, container := range pod.Containers {
			for _, devices := range container.Devices {
				note(devices, "pod %s/%s has a device of another plugin", pod.Namespace, pod.Name)
			}
		}
	}
	return who, same, err
}

// ask calls the kubelet's pod-resources API. The kubelet refuses calls beyond 100 in a second, and 10 at once
// (k8s.io/kubernetes/pkg/kubelet/apis/grpc): these are made again.
func (a *Agent) ask(ctx context.Context, call func(context.Context, podresourcesapi.PodResourcesListerClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	connection, err := dial(a.PodResources)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	client := podresourcesapi.NewPodResourcesListerClient(connection)
	for err = call(ctx, client); status.Code(err) == codes.ResourceExhausted && ctx.Err() == nil; err = call(ctx, client) {
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
	if err != nil {
		return fmt.Errorf("ask the kubelet at %s which container has which devices: %w", a.PodResources, err)
	}
	return nil
}
