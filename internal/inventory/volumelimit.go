package inventory

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// attachments is what the CSI drivers of nodes attach there, by node and driver.
type attachments map[string]map[string]*attached

// attached are the volumes of a driver that pods have on a node, by their handles, and how many it can attach.
type attached struct {
	most    int
	handles map[string]bool
}

// attachmentsOf counts as kube-scheduler's NodeVolumeLimits does, but only volumes that claims are bound to, and those of
// pods that stay: a node without a limit is in none of it.
func attachmentsOf(csiNodes []storagev1.CSINode, pods []corev1.Pod, bound BoundVolume, counts func(*corev1.Pod) bool) attachments {
	on := attachments{}
	for _, n := range csiNodes {
		for _, driver := range n.Spec.Drivers {
			if driver.Allocatable == nil || driver.Allocatable.Count == nil {
				continue
			}
			if on[n.Name] == nil {
				on[n.Name] = map[string]*attached{}
			}
			on[n.Name][driver.Name] = &attached{most: int(*driver.Allocatable.Count), handles: map[string]bool{}}
		}
	}
	for i := range pods {
		p := &pods[i]
		drivers := on[p.Spec.NodeName]
		if drivers == nil || Finished(p) || p.DeletionTimestamp != nil || !counts(p) {
			continue
		}
		for driver, handles := range handlesOf(p, bound) {
			if a := drivers[driver]; a != nil {
				maps.Copy(a.handles, handles)
			}
		}
	}
	return on
}

// handlesOf are the volumes of CSI drivers that a pod's claims are bound to, by driver.
func handlesOf(p *corev1.Pod, bound BoundVolume) map[string]map[string]bool {
	of := map[string]map[string]bool{}
	for _, mounted := range p.Spec.Volumes {
		if mounted.PersistentVolumeClaim == nil {
			continue
		}
		volume := bound(p.Namespace, mounted.PersistentVolumeClaim.ClaimName)
		if volume == nil || volume.Spec.CSI == nil {
			continue
		}
		if of[volume.Spec.CSI.Driver] == nil {
			of[volume.Spec.CSI.Driver] = map[string]bool{}
		}
		of[volume.Spec.CSI.Driver][volume.Spec.CSI.VolumeHandle] = true
	}
	return of
}

// full lists, sorted, the nodes that cannot attach what a pod has of a driver, by driver.
func (on attachments) full(p *corev1.Pod, bound BoundVolume) map[string][]string {
	nodes := map[string][]string{}
	if len(on) == 0 {
		return nodes
	}
	for driver, handles := range handlesOf(p, bound) {
		for _, node := range slices.Sorted(maps.Keys(on)) {
			a := on[node][driver]
			if a == nil {
				continue
			}
			more := 0
			for handle := range handles {
				if !a.handles[handle] {
					more++
				}
			}
			if more > 0 && len(a.handles)+more > a.most {
				nodes[driver] = append(nodes[driver], node)
			}
		}
	}
	return nodes
}
