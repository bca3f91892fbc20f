package main

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
)

// namespace holds the pods of a replay.
const namespace = "openb"

// mostPods is how many pods a node takes: more than ever come.
const mostPods = 10_000

// node is a machine as a node with shared GPUs. Their memory is counted in GiB: a thousandth of a
// GPU stands for one.
func node(m openb.Machine) *corev1.Node {
	offers := amounts(m.MilliCPU, m.MemoryMiB, int64(m.GPUs)*openb.WholeGPU)
	offers[corev1.ResourcePods] = *resource.NewQuantity(mostPods, resource.DecimalSI)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name,
			Labels: map[string]string{
				corev1.LabelHostname: m.Name, contract.NodeModeLabel: "share", contract.GPUModelLabel: m.Model,
				contract.GPUCountLabel: strconv.Itoa(m.GPUs), contract.GPUMemoryLabel: fmt.Sprintf("%dMiB", openb.WholeGPU<<10),
			},
			Annotations: map[string]string{simulate.NodeAnnotation: simulate.NodeAnnotationValue},
		},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}
}

// pod is the pod that arrives as the i-th. Names are in the order of arrival, which is the
// scheduler's order within a second.
func pod(p openb.Pod, i int) *corev1.Pod {
	asks := amounts(p.MilliCPU, p.MemoryMiB, p.GPUMilli())
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%06d", i), Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName:                 contract.SchedulerName,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "main", Image: "openb", Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
			}},
		},
	}
	if p.GPUs > 0 {
		object.Labels[contract.ResourceGPUCount] = strconv.Itoa(p.GPUs)
	}
	if models := p.ModelList(); models != nil {
		object.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: contract.GPUModelLabel, Operator: corev1.NodeSelectorOpIn, Values: models}},
			}}},
		}}
	}
	return object
}

func amounts(milliCPU, memoryMiB, gpuMilli int64) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memoryMiB<<20, resource.BinarySI),
	}
	if gpuMilli > 0 {
		list[contract.ResourceGPUMemory] = *resource.NewQuantity(gpuMilli, resource.DecimalSI)
	}
	return list
}
