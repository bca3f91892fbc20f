package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// gpuResources are the extended resources by which nodes offer GPUs.
var gpuResources = []string{
	contract.ResourceDefaultGPU,
	contract.ResourceTopologyGPU,
	contract.ResourceGPUMemory,
	contract.ResourceCorePercent,
	contract.ResourceGPUCount,
}

// Pod translates a pod that holds resources of a node: one that is bound and not
// finished; ok is false for any other. GPUs are read from the allocation record by
// NVML index, which is the position of the GPU on every machine that has all its
// GPUs. The quota leaf is the one that the pod names itself.
func Pod(p *corev1.Pod) (placement.Pod, bool) {
	if p.Spec.NodeName == "" || Finished(p) {
		return placement.Pod{}, false
	}
	pod := PodOn(p, nil, nil, nil, nil)
	pod.Overdue = Overdue(p)
	return pod, true
}

// PodOn describes a pod that holds resources, with what it asks for and its allocation
// record, each nil to read it from the pod; a record that is missing or cannot be read is
// empty. The GPUs are translated to positions in the node's table, and the leaf is taken
// from the pod's namespace when it names none. Whether it is overdue is for the caller to say.
func PodOn(p *corev1.Pod, request *placement.Request, record *contract.Allocation, gpus *gpu.Table, tree *quota.Tree) placement.Pod {
	if request == nil {
		asked, _ := requestOf(p)
		request = &asked
	}
	if record == nil {
		written, _, err := contract.AllocationFrom(p.Annotations)
		if err != nil {
			written = contract.Allocation{}
		}
		record = &written
	}
	pod := placement.Pod{
		ID:          PodID(p),
		Node:        p.Spec.NodeName,
		Request:     *request,
		Namespace:   p.Namespace,
		Labels:      p.Labels,
		Leaf:        LeafOf(p, tree),
		Priority:    priorityOf(p),
		Preemptible: Preemptible(p),
		Leaving:     p.DeletionTimestamp != nil,
		Pinned:      Pinned(p),
	}
	pod.StartedAt, pod.EndsAt = lifetime(p)
	pod.Gang, _ = GangKey(p)
	pod.Own = Positions(record.GPUs, gpus)
	pod.Shares = shares(record.Shares, gpus)
	return pod
}

// gpuRequests are the resources by which pods ask for GPUs.
var gpuRequests = []corev1.ResourceName{
	contract.ResourceTopologyGPU,
	contract.ResourceGPUMemory,
	contract.ResourceCorePercent,
	contract.ResourceDefaultGPU,
}

// AsksForGPUs reports whether a pod asks for GPUs, without adding up all that it asks for.
func AsksForGPUs(p *corev1.Pod) bool {
	asks := func(c corev1.Container) bool { return listsGPUs(c.Resources.Requests) }
	return slices.ContainsFunc(p.Spec.Containers, asks) || slices.ContainsFunc(p.Spec.InitContainers, asks) || listsGPUs(p.Spec.Overhead)
}

// listsGPUs reports whether some of what is asked for are GPUs.
func listsGPUs(asked corev1.ResourceList) bool {
	return slices.ContainsFunc(gpuRequests, func(name corev1.ResourceName) bool {
		amount, ok := asked[name]
		return ok && amount.Sign() > 0
	})
}

// Finished reports whether a pod has ended and so has given its GPUs back.
func Finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Gone reports whether a pod is no member of its gang any more: it has ended, or it
// is deleted before it was ever bound.
func Gone(p *corev1.Pod) bool {
	return Finished(p) || p.Spec.NodeName == "" && p.DeletionTimestamp != nil
}

// PodID is the pod's ID in a view: the UID, or namespace and name of a pod that was never created.
func PodID(p *corev1.Pod) string {
	if p.UID != "" {
		return string(p.UID)
	}
	return p.Namespace + "/" + p.Name
}

// requestOf computes what a pod asks for as kube-scheduler does: containers, init
// containers, the pod as a whole and overhead; for a running pod what its node has granted.
func requestOf(p *corev1.Pod) (placement.Request, []Problem) {
	var problems []Problem
	list := resource.PodRequests(p, resource.PodResourcesOptions{
		UseStatusResources: p.Spec.NodeName != "",
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	request := placement.Request{Resources: amounts(list, placement.MostAsked), HostPorts: hostPorts(p)}
	take := func(name string) int64 {
		amount := request.Extended[name]
		delete(request.Extended, name)
		return amount
	}
	switch {
	case request.Extended[contract.ResourceTopologyGPU] > 0:
		request.Mode = placement.ModeTopology
		request.GPUs = int(take(contract.ResourceTopologyGPU))
	case request.Extended[contract.ResourceGPUMemory] > 0 || request.Extended[contract.ResourceCorePercent] > 0:
		request.Mode = placement.ModeShare
		request.MemoryGiB = take(contract.ResourceGPUMemory)
		request.CorePercent = take(contract.ResourceCorePercent)
		if request.CorePercent > 0 {
			request.Mode = placement.ModeCoreMem
		}
		if text, ok := p.Labels[contract.ResourceGPUCount]; ok {
			count, err := strconv.Atoi(text)
			if err != nil || count <= 0 {
				problems = append(problems, Problem{Reason: ReasonInvalidGPUCount, Text: fmt.Sprintf(
					"pod %s: label %s is %q, not a positive number; one GPU is assumed", p.Name, contract.ResourceGPUCount, text)})
				count = 1
			}
			request.GPUs = count
		}
	case request.Extended[contract.ResourceDefaultGPU] > 0:
		request.Mode = placement.ModeDefault
		request.GPUs = int(take(contract.ResourceDefaultGPU))
	}
	if len(request.Extended) == 0 {
		request.Extended = nil
	}
	return request, problems
}

// amount is a quantity in whole units, from -limit to limit. API servers let more pass than int64 holds.
func amount(quantity apiresource.Quantity, limit int64) int64 {
	switch {
	case quantity.CmpInt64(limit) > 0:
		return limit
	case quantity.CmpInt64(-limit) < 0:
		return -limit
	}
	return quantity.Value()
}

// milli is a quantity in thousandths, from -limit to limit.
func milli(quantity apiresource.Quantity, limit int64) int64 {
	switch {
	case quantity.CmpInt64(limit/1000) > 0:
		return limit
	case quantity.CmpInt64(-limit/1000) < 0:
		return -limit
	}
	return quantity.MilliValue()
}

// amounts converts a resource list: millicores, bytes, pods, and everything else by name, of each from -limit to limit.
func amounts(list corev1.ResourceList, limit int64) placement.Resources {
	out := placement.Resources{
		MilliCPU:    milli(*list.Cpu(), limit),
		MemoryBytes: amount(*list.Memory(), limit),
		Pods:        amount(*list.Pods(), limit),
	}
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods:
			continue
		}
		if quantity.IsZero() {
			continue
		}
		if out.Extended == nil {
			out.Extended = map[string]int64{}
		}
		out.Extended[string(name)] = amount(quantity, limit)
	}
	return out
}

// hostPorts lists the node ports that only one pod can have. With the host's
// network every container port is one, as the API server's defaults say.
func hostPorts(p *corev1.Pod) []string {
	var out []string
	add := func(c corev1.Container) {
		for _, port := range c.Ports {
			number := port.HostPort
			if number == 0 && p.Spec.HostNetwork {
				number = port.ContainerPort
			}
			if number == 0 {
				continue
			}
			protocol := port.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			text := fmt.Sprintf("%s/%d", protocol, number)
			if port.HostIP != "" && port.HostIP != "0.0.0.0" {
				text += "@" + port.HostIP
			}
			out = append(out, text)
		}
	}
	for _, c := range p.Spec.InitContainers {
		if Sidecar(c) {
			add(c)
		}
	}
	for _, c := range p.Spec.Containers {
		add(c)
	}
	return out
}

// LeafOf finds the quota leaf: the pod's label, else the namespace; "" without a tree entry.
func LeafOf(p *corev1.Pod, tree *quota.Tree) string {
	for _, label := range []string{contract.QuotaLabel, contract.KoordinatorQuotaLabel} {
		if leaf := p.Labels[label]; leaf != "" {
			return leaf
		}
	}
	if tree == nil {
		return ""
	}
	return tree.LeafOf(p.Namespace)
}

// Preemptible reports whether a pod may use more than its leaf's minimum, which is the rule.
func Preemptible(p *corev1.Pod) bool {
	return p.Labels[contract.PreemptibleLabel] != "false" && p.Labels[contract.KoordinatorPreemptibleLabel] != "false"
}

// Pinned reports whether a pod belongs to its node: a static pod, or one of a DaemonSet,
// which would come back at once.
func Pinned(p *corev1.Pod) bool {
	if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// lifetime is when a pod was started, and when it ends at the latest by its own deadline,
// in Unix seconds; 0 when that is not known.
func lifetime(p *corev1.Pod) (startedAt, endsAt int64) {
	if p.Status.StartTime == nil {
		return 0, 0
	}
	startedAt = p.Status.StartTime.Unix()
	if p.Spec.ActiveDeadlineSeconds != nil {
		endsAt = startedAt + *p.Spec.ActiveDeadlineSeconds + gracePeriod(p)
	}
	return startedAt, endsAt
}

// overdueAfter is how long after its grace period a pod that is being deleted may take for
// its volumes and finalizers before nobody waits for it any more: on a dead node, or with a
// finalizer that nobody takes off, it stays until a person acts.
const overdueAfter = time.Minute

// Overdue reports whether a pod that is being deleted should have gone long ago, for who looks at it
// once. Its deletion timestamp is the end of its grace period, by the API server's clock.
func Overdue(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && time.Since(p.DeletionTimestamp.Add(overdueAfter)) >= 0
}

// OverdueAfter is how long a pod is waited for from when its deletion is seen, for who watches it:
// whatever the API server's clock says, a pod whose deletion has just begun is not overdue.
func OverdueAfter(p *corev1.Pod) time.Duration {
	grace := gracePeriod(p)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	return time.Duration(grace)*time.Second + overdueAfter
}

func gracePeriod(p *corev1.Pod) int64 {
	if p.Spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds
	}
	return *p.Spec.TerminationGracePeriodSeconds
}

func priorityOf(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Positions translates NVML indexes to positions in the machine's GPUs. GPUs that
// the machine no longer has are left out.
func Positions(indexes []int, gpus *gpu.Table) gpu.Set {
	var set gpu.Set
	for _, index := range indexes {
		if position, ok := positionOf(index, gpus); ok {
			set |= gpu.SetOf(position)
		}
	}
	return set
}

func positionOf(index int, gpus *gpu.Table) (int, bool) {
	if gpus == nil {
		return index, index >= 0 && index < 64
	}
	for position, device := range gpus.Machine().GPUs {
		if device.Index == index {
			return position, true
		}
	}
	return 0, false
}

func shares(in []contract.GPUShare, gpus *gpu.Table) []placement.GPUShare {
	var out []placement.GPUShare
	for _, share := range in {
		if position, ok := positionOf(share.GPU, gpus); ok {
			out = append(out, placement.GPUShare{GPU: position, MemoryGiB: share.MemoryGiB, CorePercent: share.CorePercent})
		}
	}
	return out
}

// Indexes translates GPU positions of a node back to NVML indexes, for an allocation record.
func Indexes(set gpu.Set, gpus *gpu.Table) []int {
	if gpus == nil {
		return set.GPUs()
	}
	machine := gpus.Machine()
	var out []int
	for _, position := range set.GPUs() {
		out = append(out, machine.GPUs[position].Index)
	}
	return out
}

// Sidecar reports whether an init container goes on while the others run.
func Sidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
