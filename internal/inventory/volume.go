package inventory

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// BoundVolume finds the volume that a claim is bound to, nil for none.
type BoundVolume func(namespace, claim string) *corev1.PersistentVolume

// RestrictToVolumes leaves members the nodes that reach the volumes which their claims are bound to:
// members of one shape may have claims of their own, each with a disk in another zone. Claims that are
// not bound restrict nothing; the scheduler's own filters know where their volumes can be.
func RestrictToVolumes(members []Member, bound BoundVolume) {
	for i := range members {
		p, role := members[i].Pod, &members[i].Role
		for _, mounted := range p.Spec.Volumes {
			if mounted.PersistentVolumeClaim == nil {
				continue
			}
			if volume := bound(p.Namespace, mounted.PersistentVolumeClaim.ClaimName); volume != nil {
				role.Volumes = both(role.Volumes, reach(volume))
			}
		}
	}
}

// zoneLabels are the labels by which a volume says where it is, as kube-scheduler's VolumeZone
// reads them.
var zoneLabels = []string{corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

// renamedLabels are the names that nodes have today for those of old volumes.
var renamedLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
}

// reach translates which nodes reach a volume, by its node affinity and its zone labels; nil for all.
func reach(volume *corev1.PersistentVolume) [][]placement.Requirement {
	var alternatives [][]placement.Requirement
	if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		alternatives = terms(affinity.Required)
	}
	var zones [][]placement.Requirement
	for _, key := range zoneLabels {
		value, ok := volume.Labels[key]
		if !ok {
			continue
		}
		values := strings.Split(value, "__")
		of := [][]placement.Requirement{{{Key: key, Operator: opIn, Values: values}}}
		if renamed := renamedLabels[key]; renamed != "" {
			of = append(of, []placement.Requirement{{Key: key, Operator: opAbsent}, {Key: renamed, Operator: opIn, Values: values}})
		}
		zones = both(zones, of)
	}
	if zones == nil {
		return alternatives
	}
	// Nodes that do not say where they are reach every volume: the cluster has one zone.
	var unplaced []placement.Requirement
	for _, key := range zoneLabels {
		unplaced = append(unplaced, placement.Requirement{Key: key, Operator: opAbsent})
	}
	return both(alternatives, append(zones, unplaced))
}

const (
	opIn     = string(corev1.NodeSelectorOpIn)
	opAbsent = string(corev1.NodeSelectorOpDoesNotExist)
)

// both combines alternatives so that one of each is met; nil is met by every node, and an empty
// alternative by none.
func both(a, b [][]placement.Requirement) [][]placement.Requirement {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := make([][]placement.Requirement, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			if len(x) > 0 && len(y) > 0 && !contradict(x, y) {
				out = append(out, slices.Concat(x, y))
			}
		}
	}
	return out
}

// contradict reports whether a label that one list asks a value of must be absent by the other: without
// such alternatives their number does not double with each volume.
func contradict(a, b []placement.Requirement) bool {
	return slices.ContainsFunc(a, func(x placement.Requirement) bool {
		return slices.ContainsFunc(b, func(y placement.Requirement) bool {
			return x.Key == y.Key && (x.Operator == opIn && y.Operator == opAbsent || x.Operator == opAbsent && y.Operator == opIn)
		})
	})
}
