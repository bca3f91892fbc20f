package clusterstate

import (
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
