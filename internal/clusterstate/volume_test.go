package clusterstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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
