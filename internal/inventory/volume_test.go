package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
