package condition_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
)

var then, now = metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))

// object has a condition Ready of then, and one of another writer.
func object() *unstructured.Unstructured {
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Works", Message: "all of it", LastTransitionTime: then}
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Other", LastTransitionTime: then}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "a", "namespace": "ns"},
		"status":   map[string]any{"conditions": condition.Fields([]metav1.Condition{ready, other})},
	}}
}

func TestFind(t *testing.T) {
	have, err := condition.Find(object(), "Ready")
	require.NoError(t, err)
	require.NotNil(t, have)
	assert.Equal(t, "all of it", have.Message)
	assert.True(t, have.LastTransitionTime.Equal(&then))

	have, err = condition.Find(object(), "Missing")
	require.NoError(t, err)
	assert.Nil(t, have)

	broken := object()
	broken.Object["status"] = map[string]any{"conditions": "none"}
	_, err = condition.Find(broken, "Ready")
	assert.ErrorContains(t, err, "read the conditions of Thing ns/a")
}

func TestPatch(t *testing.T) {
	tests := map[string]struct {
		next metav1.Condition
		want map[string]any
	}{
		"the same": {
			next: metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Works", Message: "all of it", LastTransitionTime: now, ObservedGeneration: 7},
		},
		"another message": {
			next: metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Works", Message: "most of it", LastTransitionTime: now, ObservedGeneration: 7},
			want: map[string]any{"type": "Ready", "status": "True", "reason": "Works", "message": "most of it", "lastTransitionTime": "1970-01-01T00:16:40Z", "observedGeneration": int64(7)},
		},
		"another status": {
			next: metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Broken", Message: "none of it", LastTransitionTime: now},
			want: map[string]any{"type": "Ready", "status": "False", "reason": "Broken", "message": "none of it", "lastTransitionTime": "1970-01-01T00:33:20Z"},
		},
		"a new one": {
			next: metav1.Condition{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "NodeLost", LastTransitionTime: now},
			want: map[string]any{"type": "Degraded", "status": "True", "reason": "NodeLost", "message": "", "lastTransitionTime": "1970-01-01T00:33:20Z"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			patch, err := condition.Patch(object(), test.next)
			require.NoError(t, err)
			if test.want == nil {
				assert.Nil(t, patch)
				return
			}
			assert.Equal(t, map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": "a", "namespace": "ns"},
				"status":   map[string]any{"conditions": []any{test.want}},
			}, patch.Object)
		})
	}
}

// Whoever holds the list before keeps it as it was.
func TestSetCopies(t *testing.T) {
	have := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: then}}
	next := condition.Set(have, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: now})
	assert.Equal(t, metav1.ConditionTrue, have[0].Status)
	assert.Equal(t, metav1.ConditionFalse, next[0].Status)
	assert.Equal(t, now, next[0].LastTransitionTime)
}
