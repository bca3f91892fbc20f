// Package podtest makes pods for tests, and the nodes, PodGroups and quota trees that go with
// them.
package podtest

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Change alters a pod under construction.
type Change func(*corev1.Pod)

// New makes a pod with a UID that asks for one CPU.
func New(name string, changes ...Change) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:      "main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

// InNamespace puts the pod into a namespace.
func InNamespace(name string) Change { return func(p *corev1.Pod) { p.Namespace = name } }

// Label gives the pod a label.
func Label(key, value string) Change {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

// Asks has the pod ask for so much of a resource.
func Asks(name string, amount int64) Change {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(name)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// Worker makes the pod a worker of its job.
func Worker(index int) Change {
	return func(p *corev1.Pod) {
		p.Labels[contract.JobReplicaTypeLabel] = "worker"
		p.Labels[contract.JobReplicaIndexLabel] = strconv.Itoa(index)
	}
}

// OnNode binds the pod.
func OnNode(node string) Change { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// InPhase gives the pod a phase.
func InPhase(phase corev1.PodPhase) Change { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// OwnedBy gives the pod a controller.
func OwnedBy(uid types.UID) Change {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "PyTorchJob", Name: "job", UID: uid, Controller: &yes}}
	}
}

// Recorded gives the pod an allocation record, on its node.
func Recorded(record contract.Allocation) Change {
	return func(p *corev1.Pod) {
		record.Node = p.Spec.NodeName
		annotations, err := record.Annotations()
		if err != nil {
			panic(err)
		}
		p.Annotations = annotations
	}
}

// Workers makes n workers that ask for one topology GPU each.
func Workers(n int, changes ...Change) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = New(fmt.Sprintf("job-worker-%d", i), append([]Change{Worker(i), Asks(contract.ResourceTopologyGPU, 1)}, changes...)...)
	}
	return pods
}

// Gang makes n workers of a gang of four in the topology spelling.
func Gang(n int) []*corev1.Pod {
	return Workers(n, Label(contract.TopologyGroupLabel, "job"), Label(contract.TopologyReplicasLabel, "4"))
}

// PodGroup makes the PodGroup of a gang.
func PodGroup(minMember int64) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": minMember}}}
	group.SetNamespace("ns")
	group.SetName("group")
	return group
}

// eightV100 is an instance type of the catalogue with a hybrid cube mesh of eight GPUs.
const eightV100 = "ecs.gn6v-c10g1.20xlarge"

// Node makes a node in mode topology that offers as many GPUs.
func Node(name string, gpus int64) *corev1.Node {
	offers := corev1.ResourceList{
		corev1.ResourceCPU:           resource.MustParse("82"),
		corev1.ResourceMemory:        resource.MustParse("1Gi"),
		corev1.ResourcePods:          resource.MustParse("64"),
		contract.ResourceTopologyGPU: *resource.NewQuantity(gpus, resource.DecimalSI),
		contract.ResourceERDMA:       resource.MustParse("200"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			contract.NodeModeLabel:     "topology",
			contract.NodePoolNameLabel: "pool",
			contract.InstanceTypeLabel: eightV100,
		}},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}
}

// QuotaTree makes the object of a quota tree.
func QuotaTree(root map[string]any) *unstructured.Unstructured {
	tree := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": root}}}
	tree.SetName("tree")
	return tree
}
