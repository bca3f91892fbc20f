package condition_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
)

var then, now = metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))

// object has a condition Ready of then, and one of another writer in a form of its own.
func object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "a", "namespace": "ns"},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Other", "status": "True", "lastTransitionTime": "yesterday"},
			map[string]any{"type": "Ready", "status": "True", "reason": "Works", "message": "all of it", "lastTransitionTime": "1970-01-01T00:16:40Z"},
		}},
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
	_, err = condition.Find(object(), "Other")
	assert.ErrorContains(t, err, "read condition Other of Thing ns/a")
}

func TestPatch(t *testing.T) {
	tests := map[string]struct {
		next metav1.Condition
		same bool
		want map[string]any
	}{
		"the same": {
			next: metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Works", Message: "all of it", LastTransitionTime: now, ObservedGeneration: 7},
			same: true,
			want: map[string]any{"type": "Ready", "status": "True", "reason": "Works", "message": "all of it", "lastTransitionTime": "1970-01-01T00:16:40Z", "observedGeneration": int64(7)},
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
			patch, changed := condition.Patch(object(), test.next)
			assert.Equal(t, !test.same, changed)
			assert.Equal(t, map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": "a", "namespace": "ns"},
				"status":   map[string]any{"conditions": []any{test.want}},
			}, patch.Object)
		})
	}
}

// Of a list only the own entry changes, and its place does not.
func TestAmong(t *testing.T) {
	own := func(status, since string) map[string]any {
		return map[string]any{"type": "Ready", "status": status, "reason": "Works", "message": "all of it", "lastTransitionTime": since}
	}
	next := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Works", Message: "all of it", LastTransitionTime: now}
	foreign, odd := map[string]any{"type": "Other", "status": "True", "lastTransitionTime": "yesterday", "lastProbeTime": int64(1)}, "odd"
	since, until := "1970-01-01T00:16:40Z", "1970-01-01T00:33:20Z"
	tests := map[string]struct{ have, want any }{
		"nothing":     {nil, []any{own("True", until)}},
		"no list":     {"none", []any{own("True", until)}},
		"of others":   {[]any{foreign, odd}, []any{foreign, odd, own("True", until)}},
		"the same":    {[]any{own("True", since), foreign}, []any{own("True", since), foreign}},
		"another one": {[]any{foreign, own("False", since), odd}, []any{foreign, own("True", until), odd}},
		"unreadable":  {[]any{own("True", "yesterday"), foreign}, []any{own("True", until), foreign}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := object()
			o.Object["status"] = map[string]any{"conditions": test.have}
			assert.Equal(t, test.want, condition.Among(o, next))
			assert.Equal(t, test.have, o.Object["status"].(map[string]any)["conditions"])
		})
	}
}

func TestOnPod(t *testing.T) {
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: then}
	waits := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "waits", LastTransitionTime: then}
	tests := map[string]struct {
		next, want corev1.PodCondition
	}{
		"another message": {
			next: corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "still waits", LastTransitionTime: now},
			want: corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "still waits", LastTransitionTime: then},
		},
		"another status": {
			next: corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			want: corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		},
		"a new one": {
			next: corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now},
			want: corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := corev1.PodStatus{Conditions: []corev1.PodCondition{ready, waits}}
			assert.Equal(t, test.want, condition.OnPod(&status, test.next))
			want := []corev1.PodCondition{ready, test.want}
			if test.want.Type != corev1.PodScheduled {
				want = []corev1.PodCondition{ready, waits, test.want}
			}
			assert.Equal(t, want, status.Conditions)
		})
	}
}
