package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// server is the role of members that ask for no GPU, like the parameter servers of a TFJob.
const server = "ps"

// chaosGang is a gang of whole GPUs in one of the quota leaves, or one of shares; in a leaf, unless that is
// "". It may have a launcher, or a member that asks for no GPU, and be one that nobody may evict.
func (c *chaos) chaosGang(n int, leaf string) worldGang {
	g := worldGang{namespace: c.namespace, name: fmt.Sprintf("%s-gang-%d", c.id, n)}
	workers := 1 + c.IntN(6)
	list := corev1.ResourceList{corev1.ResourceCPU: quantity(int64(1 + c.IntN(4)))}
	class, urgent := "", c.chance(2)
	if urgent {
		class = c.urgent
	}
	if leaf == "" && c.chance(3) {
		list[contract.ResourceGPUMemory], list[contract.ResourceCorePercent] = quantity(int64(1+c.IntN(8))), quantity(int64(5+5*c.IntN(16)))
	} else {
		list[contract.ResourceTopologyGPU] = quantity(pick[int64](c.world, 1, 1, 2, 4))
		if leaf == "" && len(c.leaves) > 0 && !c.chance(4) {
			leaf = pick(c.world, c.leaves...)
		}
	}
	beside := pick(c.world, "", "", "", contract.ReplicaLauncher, server)
	members := workers
	if beside == server {
		members++
	}
	spelling, needs := c.IntN(3), members-c.IntN(1+members/2)
	if spelling == 0 {
		needs = members
	}
	stays := pick(c.world, "", "", "", "", "by its label", "by a budget")
	marks := func(pod *corev1.Pod) {
		pod.Spec.PriorityClassName = class
		if leaf != "" {
			pod.Labels[contract.QuotaLabel] = leaf
		}
		if stays == "by its label" {
			pod.Labels[contract.PreemptibleLabel] = "false"
		}
		switch spelling {
		case 0:
			pod.Labels[contract.TopologyGroupLabel], pod.Labels[contract.TopologyReplicasLabel] = g.name, fmt.Sprint(members)
		case 1:
			pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = g.name, fmt.Sprint(needs)
		default:
			pod.Labels[contract.PodGroupLabel] = g.name
		}
	}
	g.add(contract.ReplicaWorker, workers, marks, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list.DeepCopy(), Limits: list.DeepCopy()}
	})
	if c.chance(3) && beside != server { // which may start with the others, or after them: that depends on how many there are
		g.claim = g.name
		mounts(g.pods[workers-1], g.claim)
	}
	if beside != "" {
		g.add(beside, 1, marks)
	}
	if beside == contract.ReplicaLauncher {
		g.late--
	}
	if spelling == 2 {
		g.podGroup = newPodGroup(g.namespace, g.name, int64(needs))
		spec := g.podGroup.Object["spec"].(map[string]any)
		spec["scheduleTimeoutSeconds"] = int64(10) // nothing of ours reads it
	}
	if stays == "by a budget" {
		g.budget = budgetOf(g.namespace, g.name)
	}
	c.audit.gangs[g.name] = &auditedGang{members: members, minimum: needs, leaf: leaf, urgent: urgent, stays: stays != "", nominated: map[string]bool{}}
	return g
}

// budgetOf is a PodDisruptionBudget that lets nobody evict a pod of a job.
func budgetOf(namespace, name string) *policyv1.PodDisruptionBudget {
	all := intstr.FromInt32(100)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: name}},
		},
	}
}

// claims makes the volume claim of a gang, with a volume.
func (c *chaos) claims(ctx context.Context, g worldGang) {
	none, modes := "", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	size := corev1.ResourceList{corev1.ResourceStorage: quantity(1)}
	_, err := api().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + g.claim, Labels: map[string]string{volumeOf: c.namespace}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: c.namespace, Name: g.claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + g.claim}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = api().CoreV1().PersistentVolumeClaims(c.namespace).Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: g.claim},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &none, VolumeName: c.namespace + "-" + g.claim,
			},
		}, metav1.CreateOptions{})
	}
	c.claimed[g.claim] = err == nil
	c.audit.did("the claim of gang %s is made: %v", g.name, err)
}

// volumeOf is the label of a run's volumes.
const volumeOf = "test.gpuplan.dev/run"

// able are those of some pods that mount no claim which has not been made.
func (c *chaos) able(pods []*corev1.Pod) (able []*corev1.Pod) {
	for _, pod := range pods {
		missing := func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && !c.claimed[v.PersistentVolumeClaim.ClaimName]
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, missing) {
			able = append(able, pod)
		}
	}
	return able
}

// launches reports whether a pod starts once the members of its gang run.
func launches(pod *corev1.Pod) bool {
	return pod.Labels[contract.JobReplicaTypeLabel] == contract.ReplicaLauncher
}

// serves reports whether a pod is a member of its gang that asks for no GPU.
func serves(pod *corev1.Pod) bool { return pod.Labels[contract.JobReplicaTypeLabel] == server }

// begin submits a gang.
func (c *chaos) begin(g worldGang) {
	c.audit.did("gang %s begins: %d members, %d needed", g.name, g.late, c.audit.gangs[g.name].minimum)
	c.operator.submit(g)
}

// finish ends a gang that runs: its pods succeed.
func (c *chaos) finish(t *testing.T, g worldGang) {
	pods, err := api().CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + g.name})
	if err != nil || bound(pods.Items) < len(g.pods) {
		return
	}
	c.audit.did("gang %s ends", g.name)
	c.operator.end(g.name)
	for _, pod := range pods.Items {
		pod.Status.Phase = corev1.PodSucceeded
		_, _ = api().CoreV1().Pods(c.namespace).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{}) // a pod that goes on is settled like any other
	}
}
