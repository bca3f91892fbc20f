package cluster

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// daemonTaints are what the DaemonSet controller lets its pods tolerate.
// https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
var daemonTaints = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// daemons are the pods that the cluster's DaemonSets make on a node that joins. Of what the node is not known
// to have, such as another disk or device than the catalogue's, they take what it has; one for which the node
// has too little CPU or memory does not start there.
func (s *Snapshot) daemons(n placement.Node) (pods []ledger.Pod) {
	left := n.Allocatable
	left.Extended = map[string]int64{}
	maps.Copy(left.Extended, n.Allocatable.Extended)
	for _, pod := range s.podsOn(n, s.DaemonSets) {
		p := inventory.PodOn(pod, nil, nil, nil, nil)
		if p.Request.MilliCPU > n.Allocatable.MilliCPU || p.Request.MemoryBytes > n.Allocatable.MemoryBytes {
			continue // it waits for ever, on a node that is empty, too
		}
		p.Request.MilliCPU, left.MilliCPU = take(p.Request.MilliCPU, left.MilliCPU)
		p.Request.MemoryBytes, left.MemoryBytes = take(p.Request.MemoryBytes, left.MemoryBytes)
		for name, amount := range p.Request.Extended {
			p.Request.Extended[name], left.Extended[name] = take(amount, left.Extended[name])
		}
		pods = append(pods, ledger.Pod{Pod: p, Namespace: pod.Namespace, Name: pod.Namespace + "/" + pod.Name})
	}
	return pods
}

// take is how much of what is there a pod gets that asks for an amount, and what is left.
func take(amount, have int64) (taken, left int64) {
	taken = min(amount, max(0, have))
	return taken, have - taken
}

// keepers are the DaemonSets whose pods keep others away.
func (s *Snapshot) keepers() []appsv1.DaemonSet {
	return slices.DeleteFunc(slices.Clone(s.DaemonSets), func(set appsv1.DaemonSet) bool { return !inventory.KeepsAway(set.Spec.Template.Spec) })
}

// podsOn are the pods of DaemonSets on a node that joins, however much they ask for of CPU, memory and the like.
func (s *Snapshot) podsOn(n placement.Node, sets []appsv1.DaemonSet) (pods []*corev1.Pod) {
	view := snapshot.NewView()
	view.SetNode(n)
	for i := range sets {
		pod := s.podOf(&sets[i])
		gang, _ := inventory.Gang([]*corev1.Pod{pod}, nil, nil)
		for k := range gang.Roles {
			gang.Roles[k].Request.Resources = placement.Resources{}
		}
		if planner.Place(view, gang) == nil {
			continue // the node is none of its nodes
		}
		pod.Spec.NodeName = n.Name
		there := inventory.PodOn(pod, nil, nil, nil, nil)
		there.Request.Resources = placement.Resources{}
		view.AddPod(there)
		pods = append(pods, pod)
	}
	return pods
}

// podOf is the pod of a DaemonSet on a new node, with what it asks for by its limits and by LimitRanges.
func (s *Snapshot) podOf(set *appsv1.DaemonSet) *corev1.Pod {
	controls := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name, UID: types.UID("daemon " + set.Namespace + "/" + set.Name), Labels: maps.Clone(set.Spec.Template.Labels),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: &controls}},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	for _, taint := range daemonTaints {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists})
	}
	job.SetDefaults(&pod.Spec)
	for i := range s.LimitRanges {
		if s.LimitRanges[i].Namespace == set.Namespace {
			limit(&pod.Spec, s.LimitRanges[i].Spec.Limits)
		}
	}
	return pod
}

// limit has containers that say nothing of it ask for what a LimitRange says.
func limit(spec *corev1.PodSpec, limits []corev1.LimitRangeItem) {
	for _, item := range limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range containers {
				job.Request(&containers[i], item.DefaultRequest)
			}
		}
	}
}
