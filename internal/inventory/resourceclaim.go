package inventory

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// ResourceClaim finds a claim for devices, nil for none.
type ResourceClaim func(namespace, name string) *resourcev1.ResourceClaim

// RestrictToDevices leaves members the nodes that reach the devices which the claims that they name have been given: others may
// use them already. It tells members apart by what their claims ask for that have been given none yet.
func RestrictToDevices(members []Member, find ResourceClaim) {
	for i := range members {
		p, role := members[i].Pod, &members[i].Role
		var asked []string
		for _, ref := range p.Spec.ResourceClaims {
			if ref.ResourceClaimName == nil {
				continue
			}
			switch claim := find(p.Namespace, *ref.ResourceClaimName); {
			case claim == nil:
			case claim.Status.Allocation == nil:
				asked = append(asked, "pending resource claim "+described(claim.Spec))
			case claim.Status.Allocation.NodeSelector != nil:
				role.Devices = both(role.Devices, terms(claim.Status.Allocation.NodeSelector))
			}
		}
		if len(asked) > 0 {
			role.Mounts = append(slices.Clone(role.Mounts), asked...)
			slices.Sort(role.Mounts)
		}
	}
}
