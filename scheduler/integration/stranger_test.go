package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// strangerLabel marks pods that have a node by others than the scheduler, and no record of their GPUs.
const strangerLabel = "test.gpuplan.dev/stranger"

func stranger(pod *corev1.Pod) bool { return pod.Labels[strangerLabel] != "" }

// strange is a pod that holds GPUs of a node, or parts of them, of which nobody knows which: it names its
// node itself, or another scheduler binds it.
type strange struct {
	pod  *corev1.Pod
	node string
	// binds means that another scheduler binds it.
	binds bool
}

// newStrange draws one for a node.
func (w *world) newStrange(namespace, name string, node *corev1.Node) strange {
	list := corev1.ResourceList{corev1.ResourceCPU: quantity(1)}
	switch node.Labels[contract.NodeModeLabel] {
	case "topology":
		list[contract.ResourceTopologyGPU] = quantity(int64(1 + w.IntN(2)))
	case "default":
		list[contract.ResourceDefaultGPU] = quantity(int64(1 + w.IntN(2)))
	case "core_mem":
		list[contract.ResourceGPUMemory], list[contract.ResourceCorePercent] = quantity(int64(1+w.IntN(6))), quantity(int64(5+5*w.IntN(6)))
	default:
		list[contract.ResourceGPUMemory] = quantity(int64(1 + w.IntN(6)))
	}
	s := strange{node: node.Name, binds: w.chance(3), pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{strangerLabel: "yes"}},
		Spec: corev1.PodSpec{
			SchedulerName: pick(w, contract.SchedulerName, "another"), TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "test", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
		},
	}}
	if s.binds {
		s.pod.Spec.SchedulerName = "another"
	} else {
		s.pod.Spec.NodeName = node.Name
	}
	return s
}

// create puts the pod onto its node.
func (s strange) create(ctx context.Context) error {
	created, err := api().CoreV1().Pods(s.pod.Namespace).Create(ctx, s.pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.pod.UID = created.UID
	if !s.binds {
		return nil
	}
	return api().CoreV1().Pods(s.pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.pod.Namespace, Name: s.pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: s.node},
	}, metav1.CreateOptions{})
}

// chaosStranger draws one for a run, perhaps in a quota leaf.
func (c *chaos) chaosStranger(name string) strange {
	s := c.newStrange(c.namespace, c.id+"-"+name, pick(c.world, c.nodes...).object)
	if len(c.leaves) > 0 && c.chance(3) {
		s.pod.Labels[contract.QuotaLabel] = pick(c.world, c.leaves...)
	}
	return s
}

// settleStrangers makes those that are there before the first gang.
func (c *chaos) settleStrangers(t *testing.T) {
	for n := range c.IntN(3) {
		s := c.chaosStranger(fmt.Sprint("settled-", n))
		c.audit.did("%s is on %s from the beginning: %v", s.pod.Name, s.node, s.create(t.Context()))
	}
}

// strangerComes draws one that comes, and may go again before long.
func (c *chaos) strangerComes(n int) func(*testing.T) {
	s := c.chaosStranger(fmt.Sprint("stranger-", n))
	leaves, at := c.chance(2), c.when()/4
	return func(t *testing.T) {
		c.audit.did("%s comes to %s: %v", s.pod.Name, s.node, s.create(t.Context()))
		if !leaves {
			return
		}
		select {
		case <-time.After(at):
		case <-t.Context().Done():
		}
		now := int64(0)
		_ = api().CoreV1().Pods(c.namespace).Delete(t.Context(), s.pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}) // it may be away already
	}
}
