package clusterstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Members with claims of their own are roles of their own where their volumes are elsewhere.
func TestMembersWithClaimsOfTheirOwn(t *testing.T) {
	s := newState(t, "a", "b")
	disks := map[string]*corev1.PersistentVolume{}
	s.FindVolumes(func(namespace, claim string) *corev1.PersistentVolume { return disks[namespace+"/"+claim] })
	pods := podtest.Gang(4)
	for i, p := range pods {
		if i < 3 { // the claim of the last is not bound
			disks["ns/"+p.Name] = &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: map[string]string{corev1.LabelTopologyZone: []string{"x", "y", "x"}[i]}},
			}
		}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name}}}}
		s.SetPod(p)
	}
	in := func(zone string) [][]placement.Requirement {
		var nowhere []placement.Requirement
		for _, key := range []string{corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			nowhere = append(nowhere, placement.Requirement{Key: key, Operator: "DoesNotExist"})
		}
		return [][]placement.Requirement{{{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{zone}}}, nowhere}
	}
	want := map[string][][]placement.Requirement{"0": in("x"), "2": in("x"), "1": in("y"), "3": nil}
	state, ok := s.Gang("ns/job")
	require.True(t, ok)
	fromSnapshot, ok := s.Snapshot().Gang("ns/job")
	require.True(t, ok)
	for _, g := range []placement.Gang{state.Gang, fromSnapshot.Gang} {
		assert.Len(t, g.Roles, 3)
		for _, role := range g.Roles {
			for _, m := range role.Members {
				assert.Equal(t, want[m[len(m)-1:]], role.Volumes, m)
			}
		}
	}
}

// A claim is pending until it has a volume, or devices.
func TestPendingClaims(t *testing.T) {
	s := newState(t)
	pod := podtest.New("p")
	for _, name := range []string{"bound", "late", "none"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "template", ResourceClaimTemplateName: new(string)})
	assert.Empty(t, s.PendingClaims(pod), "nobody knows")
	s.FindPendingClaims(func(_, name string) *corev1.PersistentVolumeClaim {
		return map[string]*corev1.PersistentVolumeClaim{"late": {}}[name]
	})
	given := resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}
	s.FindResourceClaims(func(_, name string) *resourcev1.ResourceClaim {
		return map[string]*resourcev1.ResourceClaim{"late": {}, "bound": {Status: given}}[name]
	})
	assert.Equal(t, []string{"volume ns/late", "devices ns/late"}, s.PendingClaims(pod))
}
