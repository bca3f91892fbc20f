package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Members whose claims have devices elsewhere, or ask for others, are roles of their own.
func TestRestrictToDevices(t *testing.T) {
	on := func(names ...string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: placement.FieldName, Operator: corev1.NodeSelectorOpIn, Values: names},
			}}}},
		}}}
	}
	asks := func(class string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
		}}}}}
	}
	everywhere := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}}
	claims := map[string]*resourcev1.ResourceClaim{
		"on-a": on("a"), "also-on-a": on("a"), "on-b": on("b"), "on-both": on("a", "b"), "everywhere": everywhere,
		"small": asks("small"), "also-small": asks("small"), "big": asks("big"),
	}
	for name, test := range map[string]struct {
		first, second []string
		roles         int
		reach         []string // of the first
	}{
		"on other nodes":         {[]string{"on-a"}, []string{"on-b"}, 2, []string{"a"}},
		"on one node":            {[]string{"on-a"}, []string{"also-on-a"}, 1, []string{"a"}},
		"on one and none yet":    {[]string{"on-a"}, []string{"small"}, 2, []string{"a"}},
		"two of one member":      {[]string{"on-b", "on-both"}, []string{"on-b", "on-both"}, 1, []string{"b"}},
		"on no node in common":   {[]string{"on-a", "on-b"}, []string{"on-b", "on-a"}, 2, nil},
		"everywhere":             {[]string{"everywhere"}, []string{"everywhere"}, 1, []string{"a", "b"}},
		"they ask for the same":  {[]string{"small"}, []string{"also-small"}, 1, []string{"a", "b"}},
		"they ask for others":    {[]string{"small"}, []string{"big"}, 2, []string{"a", "b"}},
		"claims that nobody has": {[]string{"none"}, []string{"missing"}, 1, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			pods := podtest.Gang(2)
			for i, names := range [][]string{test.first, test.second} {
				for _, claim := range names {
					pods[i].Spec.ResourceClaims = append(pods[i].Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
				}
			}
			members := []Member{MemberOf(pods[0]), MemberOf(pods[1])}
			RestrictToDevices(members, func(_, name string) *resourcev1.ResourceClaim { return claims[name] })
			g, _, _ := gang(members, nil, nil, nil)
			assert.Len(t, g.Roles, test.roles)
			var reached []string
			for _, node := range []placement.Node{{Name: "a"}, {Name: "b"}} {
				if node.MeetsOne(members[0].Role.Devices) {
					reached = append(reached, node.Name)
				}
			}
			assert.Equal(t, test.reach, reached)
		})
	}
}
