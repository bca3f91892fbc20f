package clusterstate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// FindVolumes tells how to find what claims are bound to; before that, nobody knows.
func (s *State) FindVolumes(of inventory.BoundVolume) {
	s.volumeOf = of
}

// FindPendingClaims tells how to find claims that are not bound yet; before that, nobody knows.
func (s *State) FindPendingClaims(of inventory.PendingClaim) {
	s.pendingOf = of
}

// FindResourceClaims tells how to find claims for devices; before that, nobody knows.
func (s *State) FindResourceClaims(of inventory.ResourceClaim) {
	s.devicesOf = of
}

// PendingClaims lists the claims that a pod names and that have been given nothing yet, neither a volume nor devices.
func (s *State) PendingClaims(p *corev1.Pod) (claims []string) {
	for _, mounted := range p.Spec.Volumes {
		if claim := mounted.PersistentVolumeClaim; claim != nil && s.pendingOf != nil && s.pendingOf(p.Namespace, claim.ClaimName) != nil {
			claims = append(claims, "volume "+p.Namespace+"/"+claim.ClaimName)
		}
	}
	for _, ref := range p.Spec.ResourceClaims {
		if ref.ResourceClaimName == nil || s.devicesOf == nil {
			continue
		}
		if claim := s.devicesOf(p.Namespace, *ref.ResourceClaimName); claim != nil && claim.Status.Allocation == nil {
			claims = append(claims, "devices "+p.Namespace+"/"+*ref.ResourceClaimName)
		}
	}
	return claims
}

// restricted lists the members of a gang with the nodes that reach their volumes and devices.
func (s *State) restricted(key string) []inventory.Member {
	members := s.members(key)
	s.restrict(members)
	return members
}

// restrict lets members go to the nodes only that reach their volumes and devices, and tells apart those whose claims differ.
func (s *State) restrict(members []inventory.Member) {
	if s.volumeOf != nil {
		inventory.RestrictToVolumes(members, s.volumeOf)
	}
	if s.pendingOf != nil {
		inventory.TellClaimsApart(members, s.pendingOf)
	}
	if s.devicesOf != nil {
		inventory.RestrictToDevices(members, s.devicesOf)
	}
}
