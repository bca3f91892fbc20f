package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// goneTime is how long what was destroyed may take to go.
const goneTime = time.Minute

var (
	pytorchJobs = schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: contract.PyTorchJobResource}
	clusters    = schema.GroupVersionResource{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Resource: contract.KarmadaClusterResource}
	queueUnits  = schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueUnitResource}
)

// fleetCluster is a cluster of the fleet, its hub included.
type fleetCluster struct {
	typed   kubernetes.Interface
	objects dynamic.Interface
}

// connect connects to a cluster of the fleet.
func (d demo) connect(name string) (c fleetCluster, err error) {
	kubeconfig, err := d.local("kubeconfig", "--cluster", name).Output()
	if err != nil {
		return c, fmt.Errorf("ask the local platform for the kubeconfig of %s: %w", name, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(string(kubeconfig)))
	if err == nil {
		c.typed, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		c.objects, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return c, fmt.Errorf("connect to %s: %w", name, err)
	}
	return c, nil
}

// podsOf are the pods of a job of the cluster.
func (c fleetCluster) podsOf(ctx context.Context, job string) (pods []*corev1.Pod, err error) {
	list, err := c.typed.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + job})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", job, err)
	}
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

// units are the jobs of the queue.
func (c fleetCluster) units(ctx context.Context) (units []contract.QueueUnit, err error) {
	list, err := c.objects.Resource(queueUnits).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the units of the queue: %w", err)
	}
	for _, item := range list.Items {
		var unit contract.QueueUnit
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &unit); err != nil {
			return nil, fmt.Errorf("read unit %s of the queue: %w", item.GetName(), err)
		}
		units = append(units, unit)
	}
	return units, nil
}

// checkNothingLeft fails where a destroy has left anything of the example on the hub or on a member.
func (d demo) checkNothingLeft(ctx context.Context) error {
	fmt.Fprintln(d.out, "==> look for what the destroy has left in the clusters")
	group := func(group, version string, resources ...string) (all []schema.GroupVersionResource) {
		for _, resource := range resources {
			all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
		}
		return all
	}
	wanted := map[string][]schema.GroupVersionResource{hubCluster: slices.Concat(
		group(contract.KarmadaPolicyGroup, "v1alpha1", contract.PropagationPolicyResource),
		group(contract.KarmadaWorkGroup, contract.ResourceBindingVersion, contract.ResourceBindingResource),
		group(contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeResource),
		[]schema.GroupVersionResource{pytorchJobs, queueUnits},
	)}
	for number := 1; number <= members; number++ {
		wanted[fmt.Sprintf("member-%d", number)] = slices.Concat(
			group("", "v1", "nodes", "pods"), group(contract.GPUNodeGroup, contract.GPUNodeVersion, contract.GPUNodeResource, contract.GangReservationResource),
			[]schema.GroupVersionResource{pytorchJobs},
		)
	}
	return until(ctx, goneTime, func(ctx context.Context) error {
		joined, err := d.joined(ctx)
		if err != nil {
			return err
		}
		var left []string
		for name, kinds := range wanted {
			c, err := d.connect(name)
			if err != nil {
				return err
			}
			for _, kind := range kinds {
				list, err := c.objects.Resource(kind).List(ctx, metav1.ListOptions{})
				if err != nil {
					return fmt.Errorf("list %s of %s: %w", kind.Resource, name, err)
				}
				for _, object := range list.Items {
					// The platform has a node of its own, with its programs in its namespace.
					if kind.Resource == "nodes" && object.GetLabels()[contract.NodePoolNameLabel] == "" || object.GetNamespace() == contract.SystemNamespace {
						continue
					}
					// A fence in a cluster that was removed from the fleet lapses by itself.
					if kind.Resource == contract.GangReservationResource && !joined[name] {
						continue
					}
					left = append(left, fmt.Sprintf("%s %s in %s", kind.Resource, object.GetName(), name))
				}
			}
		}
		if slices.Sort(left); len(left) > 0 {
			return fmt.Errorf("the destroy has left %s", strings.Join(left, ", "))
		}
		fmt.Fprintf(d.out, "    nothing on the hub, nothing on %d members\n", members)
		return nil
	})
}

// joined are the clusters that the hub has.
func (d demo) joined(ctx context.Context) (names map[string]bool, err error) {
	hub, err := d.connect(hubCluster)
	if err != nil {
		return nil, err
	}
	list, err := hub.objects.Resource(clusters).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the clusters of the fleet: %w", err)
	}
	names = map[string]bool{}
	for _, cluster := range list.Items {
		names[cluster.GetName()] = true
	}
	return names, nil
}

// until asks once a second until there is no error. The last error is told that had its time.
func until(ctx context.Context, most time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(last, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
