package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func in(key string, values ...string) placement.Requirement {
	return placement.Requirement{Key: key, Operator: "In", Values: values}
}

// TestReach is about where a volume can be reached.
func TestReach(t *testing.T) {
	term := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	for name, test := range map[string]struct {
		labels map[string]string
		terms  []corev1.NodeSelectorTerm
		want   [][]placement.Requirement
	}{
		"everywhere":                  {labels: map[string]string{"team": "a"}},
		"on a node":                   {terms: []corev1.NodeSelectorTerm{term("host", "n1")}, want: [][]placement.Requirement{{in("host", "n1")}}},
		"in zones by its label":       {labels: map[string]string{corev1.LabelTopologyZone: "a__b"}, want: [][]placement.Requirement{{in(corev1.LabelTopologyZone, "a", "b")}}},
		"on one of two nodes, a zone": {map[string]string{corev1.LabelTopologyZone: "a"}, []corev1.NodeSelectorTerm{term("host", "n1"), term("host", "n2")}, [][]placement.Requirement{{in("host", "n1"), in(corev1.LabelTopologyZone, "a")}, {in("host", "n2"), in(corev1.LabelTopologyZone, "a")}}},
		"nowhere":                     {terms: []corev1.NodeSelectorTerm{{}}, want: [][]placement.Requirement{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			if test.terms != nil {
				volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
			}
			assert.Equal(t, test.want, reach(volume))
		})
	}
}

func TestBoth(t *testing.T) {
	a, b := in("a", "1"), in("b", "2")
	none := [][]placement.Requirement{}
	assert.Nil(t, both(nil, nil))
	assert.Equal(t, [][]placement.Requirement{{a}}, both(nil, [][]placement.Requirement{{a}}))
	assert.Equal(t, [][]placement.Requirement{{a}}, both([][]placement.Requirement{{a}}, nil))
	assert.Equal(t, [][]placement.Requirement{{a, b}}, both([][]placement.Requirement{{a}}, [][]placement.Requirement{{b}}))
	assert.Equal(t, none, both([][]placement.Requirement{{a}}, [][]placement.Requirement{{}}), "an empty alternative is met by no node")
	assert.Equal(t, none, both(nil, none))
}

// Members with claims of their own are roles of their own where their volumes are elsewhere.
func TestMembersWithClaimsOfTheirOwn(t *testing.T) {
	claims, disks := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	c := newCache(t, "a", "b")
	c.volumes = &volumes{claims: corelisters.NewPersistentVolumeClaimLister(claims), volumes: corelisters.NewPersistentVolumeLister(disks)}
	pods := podtest.Gang(4)
	for i, p := range pods {
		name := p.Name
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
		if i < 3 { // the claim of the last is not bound
			claim.Spec.VolumeName = name
			require.NoError(t, disks.Add(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: []string{"x", "y", "x"}[i]}},
			}))
		}
		require.NoError(t, claims.Add(claim))
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		c.SetPod(p)
	}
	want := map[string][][]placement.Requirement{
		"0": {{in(corev1.LabelTopologyZone, "x")}}, "2": {{in(corev1.LabelTopologyZone, "x")}}, "1": {{in(corev1.LabelTopologyZone, "y")}}, "3": nil,
	}
	state, ok := c.Gang("ns/job")
	require.True(t, ok)
	fromSnapshot, ok := c.Snapshot().Gang("ns/job")
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
