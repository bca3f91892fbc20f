package inventory_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// What pods that leave say of their gang counts still: a gang without a minimum needs all, and one with a master that.
func TestRunsWithout(t *testing.T) {
	minimum := map[string]string{contract.LightGangLabel: "g", contract.LightGangMinLabel: "2"}
	for name, test := range map[string]struct {
		labels  map[string]string
		roles   []string
		pending int
		leaves  int
		runs    bool
	}{
		"no minimum":                   {labels: nil, roles: []string{"", ""}, leaves: 1},
		"no minimum, one is recreated": {labels: nil, roles: []string{"", ""}, pending: 1, leaves: 1},
		"at its minimum":               {labels: minimum, roles: []string{"", ""}, leaves: 1},
		"beyond its minimum":           {labels: minimum, roles: []string{"", "", ""}, leaves: 1, runs: true},
		"its master":                   {labels: minimum, roles: []string{"master", "worker", "worker"}, leaves: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var members []inventory.Member
			for i := range len(test.roles) + test.pending {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p-", i), Labels: map[string]string{contract.TopologyGroupLabel: "g"}}}
				for key, value := range test.labels {
					p.Labels[key] = value
				}
				if i < len(test.roles) {
					p.Spec.NodeName = "n"
					if test.roles[i] != "" {
						p.Labels[contract.JobReplicaTypeLabel] = test.roles[i]
					}
				}
				members = append(members, inventory.MemberOf(p))
			}
			now := metav1.Now()
			members[0].Pod.DeletionTimestamp = &now
			gone := func(p *corev1.Pod) bool { return p == members[0].Pod }
			assert.Equal(t, test.runs, inventory.RunsWithout(members, nil, gone))
		})
	}
}
