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
	const beta, zone, region = corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone, corev1.LabelTopologyRegion
	term := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	nodes := []placement.Node{
		{Name: "a", Labels: map[string]string{"host": "a", zone: "a"}},
		{Name: "b", Labels: map[string]string{"host": "b", zone: "b"}},
		{Name: "old", Labels: map[string]string{"host": "old", beta: "a"}},
		{Name: "moved", Labels: map[string]string{"host": "moved", beta: "b", zone: "a"}},
		{Name: "elsewhere", Labels: map[string]string{"host": "elsewhere", region: "r"}},
		{Name: "unplaced", Labels: map[string]string{"host": "unplaced"}},
	}
	all := []string{"a", "b", "old", "moved", "elsewhere", "unplaced"}
	for name, test := range map[string]struct {
		labels map[string]string
		terms  []corev1.NodeSelectorTerm
		want   []string
	}{
		"everywhere":                  {labels: map[string]string{"team": "a"}, want: all},
		"on a node":                   {terms: []corev1.NodeSelectorTerm{term("host", "b")}, want: []string{"b"}},
		"in zones":                    {labels: map[string]string{zone: "a__b"}, want: []string{"a", "b", "moved", "unplaced"}},
		"in a zone by its old label":  {labels: map[string]string{beta: "a"}, want: []string{"a", "old", "unplaced"}},
		"in a zone by both":           {labels: map[string]string{beta: "a", zone: "a"}, want: []string{"a", "unplaced"}},
		"in a zone and a region":      {labels: map[string]string{zone: "a", region: "r"}, want: []string{"unplaced"}},
		"on one of two nodes, a zone": {map[string]string{zone: "a"}, []corev1.NodeSelectorTerm{term("host", "a"), term("host", "b")}, []string{"a"}},
		"on a node without a zone":    {map[string]string{zone: "a"}, []corev1.NodeSelectorTerm{term("host", "unplaced")}, []string{"unplaced"}},
		"nowhere":                     {terms: []corev1.NodeSelectorTerm{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			if test.terms != nil {
				volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
			}
			alternatives := reach(volume)
			var reached []string
			for _, node := range nodes {
				if node.MeetsOne(alternatives) {
					reached = append(reached, node.Name)
				}
			}
			assert.Equal(t, test.want, reached)
		})
	}
}

// Alternatives do not double with each volume.
func TestReachOfManyVolumes(t *testing.T) {
	var alternatives [][]placement.Requirement
	for range 12 {
		alternatives = both(alternatives, reach(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelFailureDomainBetaZone: "a"}}}))
	}
	assert.Len(t, alternatives, 3)
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
