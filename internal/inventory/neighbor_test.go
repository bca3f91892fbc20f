package inventory

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// prefer has a pod prefer nodes with a label.
func prefer(p *corev1.Pod, weight int32, key, value string) {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	}
	affinity := p.Spec.Affinity.NodeAffinity
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
		Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
		}},
	})
}

// spreadOver has a pod spread with those of its gang over the values of a label.
func spreadOver(p *corev1.Pod, key string, unsatisfiable corev1.UnsatisfiableConstraintAction) {
	p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: unsatisfiable, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "job"}},
	})
}

// What pods prefer is read from them.
func TestWishesOfPods(t *testing.T) {
	pod := podtest.Gang(1)[0]
	prefer(pod, 10, "disk", "ssd")
	prefer(pod, 1, "zone", "a")
	pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[1].Preference = corev1.NodeSelectorTerm{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1"}}},
	}
	spreadOver(pod, "zone", corev1.ScheduleAnyway)
	spreadOver(pod, "rack", corev1.DoNotSchedule)
	role := MemberOf(pod).Role
	assert.Equal(t, []placement.Preference{
		{Weight: 10, Requirements: []placement.Requirement{in("disk", "ssd")}},
		{Weight: 1, Requirements: []placement.Requirement{{Key: placement.FieldName, Operator: "NotIn", Values: []string{"n1"}}}},
	}, role.Preferred)
	pods := placement.Selector{Namespaces: []string{pod.Namespace}, Requirements: []placement.Requirement{in("app", "job")}}
	assert.Equal(t, []placement.TopologySpread{
		{Label: "zone", MaxSkew: 1, Soft: true, Pods: pods}, {Label: "rack", MaxSkew: 1, Pods: pods},
	}, role.Spreads)
}

// Gangs go where their pods prefer to be, as single pods would, and elsewhere where there is no room.
func TestWishesCount(t *testing.T) {
	for name, test := range map[string]struct {
		members int
		wish    func(*corev1.Pod)
		want    map[string]int
	}{
		"nobody prefers anything": {2, func(*corev1.Pod) {}, map[string]int{"a": 2}},
		"a node is preferred":     {2, func(p *corev1.Pod) { prefer(p, 1, corev1.LabelHostname, "b") }, map[string]int{"b": 2}},
		"it has too little room":  {9, func(p *corev1.Pod) { prefer(p, 1, corev1.LabelHostname, "b") }, map[string]int{"a": 1, "b": 8}},
		"they spread":             {2, func(p *corev1.Pod) { spreadOver(p, corev1.LabelHostname, corev1.ScheduleAnyway) }, map[string]int{"a": 1, "b": 1}},
		"they spread as they can": {16, func(p *corev1.Pod) {
			prefer(p, 100, corev1.LabelHostname, "b")
			spreadOver(p, corev1.LabelHostname, corev1.ScheduleAnyway)
		}, map[string]int{"a": 8, "b": 8}},
	} {
		t.Run(name, func(t *testing.T) {
			view := snapshot.NewView()
			for _, node := range []string{"a", "b"} {
				object := podtest.Node(node, 8)
				object.Labels[corev1.LabelHostname] = node
				n, err := Node(object, nil)
				require.NoError(t, err)
				view.SetNode(n)
			}
			pods := podtest.Workers(test.members, podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, strconv.Itoa(test.members)))
			for _, p := range pods {
				p.Labels["app"] = "job"
				test.wish(p)
			}
			g, problems := Gang(pods, nil, nil)
			require.Empty(t, problems)
			result := planner.Plan(view, g)
			require.NotNil(t, result.Placement, result.Verdict.String())
			have := map[string]int{}
			for _, a := range result.Placement.Assignments {
				have[a.Node]++
			}
			assert.Equal(t, test.want, have)
		})
	}
}
