package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
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

// recipientOf asks the kubelet who has devices of a resource.
func (a *Agent) recipientOf(ctx context.Context, resource string, ids []string) (recipient, error) {
	var answer *podresourcesapi.ListPodResourcesResponse
	err := a.ask(ctx, func(ctx context.Context, client podresourcesapi.PodResourcesListerClient) (err error) {
		answer, err = client.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
		return err
	})
	if err != nil {
		return recipient{}, err
	}
	wanted := sets.New(ids...)
	var exact, part []recipient
	for _, pod := range answer.PodResources {
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

// foreign returns a device of a resource that another plugin offers, "" when none does.
func (a *Agent) foreign(ctx context.Context, resource string) (id string, err error) {
	err = a.ask(ctx, func(ctx context.Context, client podresourcesapi.PodResourcesListerClient) error {
		answer, err := client.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
		if err != nil {
			return err
		}
		for _, devices := range answer.Devices {
			for _, other := range devices.DeviceIds {
				if devices.ResourceName == resource && !strings.HasPrefix(other, idPrefix) {
					id = other
				}
			}
		}
		return nil
	})
	return id, err
}

// ask calls the kubelet's pod-resources API.
func (a *Agent) ask(ctx context.Context, call func(context.Context, podresourcesapi.PodResourcesListerClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	connection, err := dial(a.PodResources)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if err := call(ctx, podresourcesapi.NewPodResourcesListerClient(connection)); err != nil {
		return fmt.Errorf("ask the kubelet at %s which container has which devices: %w", a.PodResources, err)
	}
	return nil
}
