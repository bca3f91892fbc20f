package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func groupObject(apiVersion, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion,
		"kind":       "PodGroup",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       spec,
	}}
}

// sigsGroup is the PodGroup of scheduler-plugins, which our scheduler reads too.
func sigsGroup(name string, members, _ int) *unstructured.Unstructured {
	return groupObject(contract.PodGroupAPIVersion, name, map[string]any{"minMember": int64(members)})
}

// koordinatorGroup is the same object under the group that Koordinator kept.
func koordinatorGroup(name string, members, _ int) *unstructured.Unstructured {
	return groupObject("scheduling.sigs.k8s.io/v1alpha1", name, map[string]any{"minMember": int64(members)})
}

// volcanoGroup tells Volcano's queue what the gang needs, so that infeasible gangs may be held back there.
func volcanoGroup(name string, members, gpus int) *unstructured.Unstructured {
	return groupObject("scheduling.volcano.sh/v1beta1", name, map[string]any{
		"minMember": int64(members),
		"queue":     "default",
		"minResources": map[string]any{
			"cpu": fmt.Sprint(members), "memory": fmt.Sprintf("%dGi", members),
			contract.ResourceDefaultGPU: fmt.Sprint(members * gpus),
		},
	})
}

// openQueues makes Volcano's queues and opens them, as its controller does; its
// scheduler would make them itself, but not open them.
func openQueues(ctx context.Context, c *cluster) error {
	queues := c.dynamic.Resource(schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "queues"})
	for _, name := range []string{"root", "default"} {
		queue, err := queues.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "scheduling.volcano.sh/v1beta1",
			"kind":       "Queue",
			"metadata":   map[string]any{"name": name},
			"spec":       map[string]any{"weight": int64(1), "reclaimable": name != "root"},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		queue.Object["status"] = map[string]any{"state": "Open"}
		if _, err := queues.UpdateStatus(ctx, queue, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// nativeGroup is the PodGroup of Kubernetes 1.36 itself.
func nativeGroup(name string, members, _ int) *unstructured.Unstructured {
	return groupObject("scheduling.k8s.io/v1alpha2", name, map[string]any{
		"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(members)}},
	})
}

func joinNative(pod *corev1.Pod, group string) {
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
}

// label makes a pod a member by a label with the group's name.
func label(key string) func(*corev1.Pod, string) {
	return func(pod *corev1.Pod, group string) { pod.Labels = map[string]string{key: group} }
}

// annotation makes a pod a member by an annotation with the group's name.
func annotation(key string) func(*corev1.Pod, string) {
	return func(pod *corev1.Pod, group string) { pod.Annotations = map[string]string{key: group} }
}
