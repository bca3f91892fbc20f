package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// What filters of others say of a member holds for those that mount the same, so that others are another role.
func TestMembersThatMountOtherThingsAreAnotherRole(t *testing.T) {
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	template := func(name string) corev1.PodResourceClaim {
		return corev1.PodResourceClaim{Name: "device", ResourceClaimTemplateName: &name}
	}
	for name, test := range map[string]struct {
		first, second func(*corev1.PodSpec)
		roles         int
	}{
		"a claim and none": {func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{VolumeSource: claim("big")}} }, func(*corev1.PodSpec) {}, 2},
		"claims alike": {
			func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{VolumeSource: claim("small-0")}} },
			func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{VolumeSource: claim("small-1")}} }, 1,
		},
		"claims of other sizes": {
			func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{VolumeSource: claim("small-0")}} },
			func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{VolumeSource: claim("big")}} }, 2,
		},
		"templates of other devices": {
			func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{template("one")} },
			func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{template("two")} }, 2,
		},
		"what kubelets must be able to do": {
			func(s *corev1.PodSpec) {
				s.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
			},
			func(*corev1.PodSpec) {}, 2,
		},
		"what every node has": {
			func(s *corev1.PodSpec) {
				s.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			},
			func(*corev1.PodSpec) {}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods := podtest.Gang(2)
			test.first(&pods[0].Spec)
			test.second(&pods[1].Spec)
			members := []Member{MemberOf(pods[0]), MemberOf(pods[1])}
			TellClaimsApart(members, func(_, name string) *corev1.PersistentVolumeClaim {
				size := map[string]string{"small-0": "1Gi", "small-1": "1Gi", "big": "2Gi"}[name]
				return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
				}}}
			})
			g, _, _ := gang(members, nil, nil, nil)
			assert.Len(t, g.Roles, test.roles)
		})
	}
}
