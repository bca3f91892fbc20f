package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// rejections say what keeps members that are not bound from starting, wherever there is room.
func (a Around) rejections(state inventory.GangState) []string {
	var all []string
	late := lateMembers(state.Gang)
	for member, pod := range state.Pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		switch {
		case late[member] || !unseen(pod):
		case a.scheduler == absent:
			all = append(all, fmt.Sprintf("no scheduler named %s runs in the cluster, and none has looked at its pods", contract.SchedulerName))
		case a.scheduler == forbidden && a.read.Sub(pod.CreationTimestamp.Time) > noticed:
			all = append(all, fmt.Sprintf("no scheduler has looked at its pods, and whether %[1]s runs could not be looked at: you may not get deployment and lease %[1]s in namespace %[2]s",
				contract.SchedulerName, contract.SystemNamespace))
		}
		all = append(all, a.podRejections(pod)...)
	}
	return sorted(all)
}

// podRejections say what keeps a pod from starting, whatever there is room for and whoever looks at it.
func (a Around) podRejections(pod *corev1.Pod) (all []string) {
	if pod.Spec.SchedulerName != contract.SchedulerName {
		all = append(all, fmt.Sprintf("its pods name the scheduler %s, which decides by rules of its own", pod.Spec.SchedulerName))
	}
	for _, gate := range pod.Spec.SchedulingGates {
		all = append(all, fmt.Sprintf("pod %s has the scheduling gate %s", pod.Name, gate.Name))
	}
	all = append(all, a.volumeRejections(pod)...)
	return append(all, a.deviceRejections(pod)...)
}

// lateMembers are the members of which the scheduler says nothing until the others run.
func lateMembers(g placement.Gang) map[string]bool {
	late := map[string]bool{}
	for _, role := range g.Roles {
		for _, member := range role.Members {
			late[member] = role.Late
		}
	}
	return late
}

// noticed is how long a scheduler that runs may take to say something of a pod.
const noticed = 15 * time.Second

// unseen reports whether a pod is our scheduler's, and none has said anything of it.
func unseen(pod *corev1.Pod) bool {
	looked := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	return pod.Spec.SchedulerName == contract.SchedulerName && !looked
}

// claimsOf lists the names of the volume claims that a pod mounts.
func claimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, ephemeral.VolumeClaimName(pod, v))
		}
	}
	return names
}

func (a Around) volumeRejections(pod *corev1.Pod) (all []string) {
	for _, name := range claimsOf(pod) {
		if a.claims == nil {
			all = append(all, fmt.Sprintf("volume claim %s could not be looked at: you may not list persistentvolumeclaims", name))
			continue
		}
		claim := a.claims[pod.Namespace+"/"+name]
		switch {
		case claim == nil:
			all = append(all, fmt.Sprintf("volume claim %s does not exist", name))
		case claim.DeletionTimestamp != nil:
			all = append(all, fmt.Sprintf("volume claim %s is being deleted", name))
		case claim.Status.Phase == corev1.ClaimLost:
			all = append(all, fmt.Sprintf("volume claim %s has lost its volume", name))
		case claim.Spec.VolumeName == "" && claim.Annotations[volume.AnnSelectedNode] != "":
			all = append(all, fmt.Sprintf("volume claim %s has no volume yet, which is to be made for node %s", name, claim.Annotations[volume.AnnSelectedNode]))
		case claim.Spec.VolumeName == "" && !a.waitsForConsumer(claim):
			all = append(all, fmt.Sprintf("volume claim %s has no volume yet", name))
		case claim.Spec.VolumeName != "" && a.volumes != nil && a.volumes[claim.Spec.VolumeName] == nil:
			all = append(all, fmt.Sprintf("volume %s of claim %s does not exist", claim.Spec.VolumeName, name))
		}
	}
	return all
}

// waitsForConsumer reports whether a claim gets its volume only once its pod has a node, or
// nobody knows.
func (a Around) waitsForConsumer(claim *corev1.PersistentVolumeClaim) bool {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" || a.classes == nil {
		return name != ""
	}
	class := a.classes[name]
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func (a Around) deviceRejections(pod *corev1.Pod) (all []string) {
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		if a.devices == nil {
			all = append(all, fmt.Sprintf("resource claim %s could not be looked at: you may not list resourceclaims", ref.Name))
			continue
		}
		switch name, made := deviceClaim(pod, ref); {
		case !made:
			all = append(all, fmt.Sprintf("resource claim %s of pod %s has not been made", ref.Name, pod.Name))
		case name == "": // none is needed
		case a.devices[pod.Namespace+"/"+name] == nil:
			all = append(all, fmt.Sprintf("resource claim %s does not exist", name))
		case a.devices[pod.Namespace+"/"+name].DeletionTimestamp != nil:
			all = append(all, fmt.Sprintf("resource claim %s is being deleted", name))
		}
	}
	return all
}

// unallocated lists the resource claims of members that are not bound which are allocated when these are placed.
func (a Around) unallocated(state inventory.GangState) (names []string) {
	for _, pod := range state.Pods {
		for i := range pod.Spec.ResourceClaims {
			name, _ := deviceClaim(pod, &pod.Spec.ResourceClaims[i])
			claim := a.devices[pod.Namespace+"/"+name]
			if pod.Spec.NodeName == "" && claim != nil && claim.DeletionTimestamp == nil && claim.Status.Allocation == nil {
				names = append(names, name)
			}
		}
	}
	return sorted(names)
}

// deviceClaim is the name of the claim that a pod's reference stands for, "" when the pod needs
// none; made means that it is known.
func deviceClaim(pod *corev1.Pod, ref *corev1.PodResourceClaim) (name string, made bool) {
	if ref.ResourceClaimName != nil {
		return *ref.ResourceClaimName, true
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name == ref.Name {
			if status.ResourceClaimName == nil {
				return "", true
			}
			return *status.ResourceClaimName, true
		}
	}
	return "", false
}

// confine leaves out the nodes for each role from which the volumes of its members cannot
// be reached.
func (a Around) confine(snapshot *clusterstate.Snapshot, state inventory.GangState) placement.Gang {
	g := state.Gang
	g.Roles = slices.Clone(g.Roles)
	for i := range g.Roles {
		role := &g.Roles[i]
		for _, member := range role.Members {
			pod := state.Pods[member]
			for _, name := range claimsOf(pod) {
				claim := a.claims[pod.Namespace+"/"+name]
				if claim == nil || a.volumes[claim.Spec.VolumeName] == nil {
					continue
				}
				for _, node := range snapshot.View.Nodes() {
					known, _ := snapshot.View.Node(node)
					if volume.CheckNodeAffinity(a.volumes[claim.Spec.VolumeName], known.Labels) != nil {
						if role.NodeLimits == nil {
							role.NodeLimits = map[string]int{}
						}
						role.NodeLimits[node] = 0
					}
				}
			}
		}
	}
	return g
}

// await says for whom a gang still waits that fits once others have gone.
func await(snapshot *clusterstate.Snapshot, r *placement.Reservation) string {
	var names []string
	for _, victim := range r.After {
		if !slices.ContainsFunc(victim.Pods, func(id string) bool { return snapshot.Pod(id) != nil }) {
			continue // it has gone since the reservation was made
		}
		name := "gang " + victim.Gang
		if pod := snapshot.Pod(victim.Gang); pod != nil {
			name = "pod " + pod.Namespace + "/" + pod.Name
		}
		if victim.Surplus {
			name = inventory.Members(len(victim.Pods)) + " of " + name
		}
		if victim.Leaving {
			name += ", which is leaving"
		}
		names = append(names, name)
	}
	return strings.Join(sorted(names), "; ")
}
