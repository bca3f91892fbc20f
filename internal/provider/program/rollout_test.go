package program

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func workload(kind string, replicas int64, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"kind": kind, "metadata": map[string]any{"generation": int64(2)},
		"spec": map[string]any{"replicas": replicas}, "status": status,
	}}
}

func TestRolledOut(t *testing.T) {
	for name, test := range map[string]struct {
		workload *unstructured.Unstructured
		done     bool
		status   string
	}{
		"deployment of the version before": {workload("Deployment", 1, map[string]any{"observedGeneration": int64(1), "replicas": int64(1), "updatedReplicas": int64(1), "availableReplicas": int64(1)}),
			false, "not looked at by its controller yet"},
		"deployment without pods": {workload("Deployment", 2, map[string]any{"observedGeneration": int64(2)}),
			false, "0 of 2 pods up to date, 0 ready"},
		"deployment with an old pod left": {workload("Deployment", 1, map[string]any{"observedGeneration": int64(2), "replicas": int64(2), "updatedReplicas": int64(1), "availableReplicas": int64(1)}),
			false, "1 of 1 pods up to date, 1 ready"},
		"deployment that runs": {workload("Deployment", 1, map[string]any{"observedGeneration": int64(2), "replicas": int64(1), "updatedReplicas": int64(1), "availableReplicas": int64(1)}),
			true, "1 of 1 pods up to date, 1 ready"},
		"deployment whose pods are refused": {workload("Deployment", 1, map[string]any{"observedGeneration": int64(2), "conditions": []any{
			map[string]any{"type": "ReplicaFailure", "status": "True", "message": "forbidden: quota"}}}),
			false, "0 of 1 pods up to date, 0 ready: forbidden: quota"},
		"agent on no node": {workload("DaemonSet", 0, map[string]any{"observedGeneration": int64(2)}),
			true, "0 of 0 pods up to date, 0 ready"},
		"agent that starts": {workload("DaemonSet", 0, map[string]any{"observedGeneration": int64(2), "desiredNumberScheduled": int64(3), "updatedNumberScheduled": int64(3), "numberReady": int64(1)}),
			false, "3 of 3 pods up to date, 1 ready"},
		"agent that runs": {workload("DaemonSet", 0, map[string]any{"observedGeneration": int64(2), "desiredNumberScheduled": int64(3), "updatedNumberScheduled": int64(3), "numberReady": int64(3)}),
			true, "3 of 3 pods up to date, 3 ready"},
	} {
		t.Run(name, func(t *testing.T) {
			done, status, err := rolledOut(test.workload)
			require.NoError(t, err)
			assert.Equal(t, test.done, done)
			assert.Equal(t, test.status, status)
		})
	}
}

func TestOptionsAreReadBackFromTheWorkload(t *testing.T) {
	w := workload("Deployment", 1, nil)
	w.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"image": "scheduler:1", "args": []any{"--v=4", "--config=/etc/x"}},
	}}}}
	assert.Equal(t, "scheduler:1", Image(w))
	assert.Equal(t, "4", Flag(w, "v"))
	assert.Empty(t, Flag(w, "secure-port"))
	assert.Empty(t, Image(workload("Deployment", 1, nil)))
}
