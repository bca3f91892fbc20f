package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Kubernetes makes no pods of these indexes any more.
func TestEndedIndexes(t *testing.T) {
	for name, test := range map[string]struct {
		completed, failed string
		ended             []int
	}{
		"none":                 {},
		"one":                  {completed: "3", ended: []int{3}},
		"ranges":               {completed: "0-1,4", ended: []int{0, 1, 4}},
		"failed for good":      {completed: "5", failed: "1-2", ended: []int{1, 2, 5}},
		"no number":            {completed: "0,x", ended: []int{0}},
		"backwards":            {failed: "4-2"},
		"below the first":      {completed: "-1"},
		"more than an integer": {completed: "0-99999999999999999999"},
	} {
		t.Run(name, func(t *testing.T) {
			ended := inventory.EndedIndexes(batchv1.JobStatus{CompletedIndexes: test.completed, FailedIndexes: &test.failed})
			var has []int
			for i := range 7 {
				if ended.Has(i) {
					has = append(has, i)
				}
			}
			assert.Equal(t, test.ended, has)
			assert.Equal(t, len(test.ended), ended.Count())
		})
	}
}
