package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const (
	gpusPerNode = 8
	// instanceType is the type of the nodes whose hardware is published.
	instanceType = "ecs.gn6v-c10g1.20xlarge"
	// writers is how many objects are created at the same time.
	writers = 16
)

// shape is a workload: gangs of members that ask for GPUs each.
type shape struct{ gangs, members, gpus int }

// parseShape reads "100x16", or "1x512x8" for members of eight GPUs.
func parseShape(text string) (shape, error) {
	s := shape{gpus: 1}
	fields := []*int{&s.gangs, &s.members, &s.gpus}
	parts := strings.Split(text, "x")
	if len(parts) < 2 || len(parts) > 3 {
		return s, fmt.Errorf("shape %q is not GANGSxMEMBERS or GANGSxMEMBERSxGPUS", text)
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return s, fmt.Errorf("shape %q: %q is not a positive number", text, part)
		}
		*fields[i] = n
	}
	return s, nil
}

func (s shape) String() string {
	if s.members == 1 {
		return fmt.Sprintf("%d single pods × %s", s.gangs, gpusText(s.gpus))
	}
	return fmt.Sprintf("%d × %d pods × %s", s.gangs, s.members, gpusText(s.gpus))
}

func gpusText(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func (s shape) pods() int { return s.gangs * s.members }

// createNodes makes nodes that are ready, without anything behind them.
func (c *cluster) createNodes(ctx context.Context, s scheduler, count int) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(writers)
	for i := range count {
		node := node(nodeName(i), s)
		tasks.Go(func() error {
			if _, err := c.typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return err
			}
			if !s.hardware {
				return nil
			}
			return c.publish(ctx, node.Name)
		})
	}
	return tasks.Wait()
}

func node(name string, s scheduler) *corev1.Node {
	offers := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("96"),
		corev1.ResourceMemory:           resource.MustParse("768Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourceName(s.gpu):      *resource.NewQuantity(gpusPerNode, resource.DecimalSI),
	}
	labels := map[string]string{corev1.LabelHostname: name}
	if s.mode != "" {
		labels[contract.NodeModeLabel] = s.mode
		labels[contract.InstanceTypeLabel] = instanceType
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: offers, Allocatable: offers,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// publish writes the hardware of a node as the node agent does.
func (c *cluster) publish(ctx context.Context, node string) error {
	machine, ok := catalog.Machine(instanceType)
	if !ok {
		return fmt.Errorf("the catalogue does not know %s", instanceType)
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&contract.GPUNode{Status: contract.StatusOf(machine)})
	if err != nil {
		return err
	}
	resources := c.dynamic.Resource(schema.GroupVersionResource{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Resource: contract.GPUNodeResource})
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": node}}}
	object.SetAPIVersion(contract.GPUNodeGroup + "/" + contract.GPUNodeVersion)
	object.SetKind(contract.GPUNodeKind)
	object, err = resources.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	object.Object["status"] = status["status"]
	_, err = resources.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}

// createGroups makes the objects that describe the gangs of a workload.
func (c *cluster) createGroups(ctx context.Context, s scheduler, name string, w shape) error {
	if s.group == nil || w.members == 1 && !s.always {
		return nil
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(writers)
	for g := range w.gangs {
		object := s.group(groupName(name, g), w.members, w.gpus)
		version := object.GroupVersionKind().GroupVersion()
		resources := c.dynamic.Resource(version.WithResource(contract.PodGroupResource)).Namespace(namespace)
		tasks.Go(func() error {
			_, err := resources.Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	}
	return tasks.Wait()
}

// createPods makes the pods of a workload, one gang after the other.
func (c *cluster) createPods(ctx context.Context, s scheduler, name string, w shape) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(writers)
	for g := range w.gangs {
		for m := range w.members {
			pod := pod(s, groupName(name, g), m, w)
			tasks.Go(func() error {
				_, err := c.typed.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
		}
	}
	return tasks.Wait()
}

func groupName(workload string, gang int) string { return fmt.Sprintf("%s-%04d", workload, gang) }

func pod(s scheduler, group string, member int, w shape) *corev1.Pod {
	asks := corev1.ResourceList{
		corev1.ResourceCPU:         resource.MustParse("1"),
		corev1.ResourceMemory:      resource.MustParse("1Gi"),
		corev1.ResourceName(s.gpu): *resource.NewQuantity(int64(w.gpus), resource.DecimalSI),
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", group, member)},
		Spec: corev1.PodSpec{
			SchedulerName: s.program,
			Containers: []corev1.Container{{
				Name: "main", Image: "bench", Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
			}},
		},
	}
	if s.join != nil && (w.members > 1 || s.always) {
		s.join(p, group)
	}
	return p
}
