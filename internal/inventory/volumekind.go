package inventory

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// PendingClaim finds a volume claim that is not bound yet, nil for none.
type PendingClaim func(namespace, claim string) *corev1.PersistentVolumeClaim

// mounts lists the kinds of what a pod mounts that not every node can have, and what it needs a kubelet to say that it can do. Claims
// that have a name are alike here: each member may have one of its own.
func mounts(p *corev1.Pod) (kinds []string) {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i].VolumeSource; {
		case v.PersistentVolumeClaim != nil:
			kinds = append(kinds, "volume claim")
		case v.Ephemeral != nil:
			kinds = append(kinds, "ephemeral volume "+described(v.Ephemeral.VolumeClaimTemplate))
		case v.CSI != nil:
			kinds = append(kinds, "CSI volume "+v.CSI.Driver)
		case v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.AzureDisk != nil || v.ISCSI != nil || v.RBD != nil:
			kinds = append(kinds, "disk")
		}
	}
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName != nil {
			kinds = append(kinds, "resource claim template "+*c.ResourceClaimTemplateName)
		} else {
			kinds = append(kinds, "resource claim")
		}
	}
	for _, feature := range features.AllFeatures {
		if feature.InferForScheduling(&types.PodInfo{Spec: &p.Spec}) {
			kinds = append(kinds, "kubelet feature "+feature.Name())
		}
	}
	slices.Sort(kinds)
	return kinds
}

// TellClaimsApart tells members apart by what their volume claims ask for that are not bound yet: which
// volume would do for one says nothing of another.
func TellClaimsApart(members []Member, pending PendingClaim) {
	for i := range members {
		p, role := members[i].Pod, &members[i].Role
		var asked []string
		for _, mounted := range p.Spec.Volumes {
			if mounted.PersistentVolumeClaim == nil {
				continue
			}
			if claim := pending(p.Namespace, mounted.PersistentVolumeClaim.ClaimName); claim != nil {
				asked = append(asked, "pending claim "+described(claim.Spec))
			}
		}
		if len(asked) > 0 {
			role.Mounts = append(slices.Clone(role.Mounts), asked...)
			slices.Sort(role.Mounts)
		}
	}
}

// described is an object in one text, equal for equal ones.
func described(object any) string {
	text, _ := json.Marshal(object) // types of the API always can
	return string(text)
}
