package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A job on a hub that is in no cluster says whom it waits for.
func TestUnsent(t *testing.T) {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.KubeflowGroup + "/" + contract.KubeflowVersion, "kind": contract.PyTorchJobKind,
		"metadata": map[string]any{"name": "a", "namespace": "ns"},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{
			"replicas": int64(2), "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": contract.PyTorchContainerName}}}},
		}}},
	}}
	binding := func(held bool, conditions ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a-pytorchjob", "namespace": "ns", "creationTimestamp": "2026-11-01T12:00:00Z"},
			"spec":     map[string]any{"schedulerName": contract.FleetSchedulerName, "suspension": map[string]any{"scheduling": held}},
			"status":   map[string]any{"conditions": conditions},
		}}
	}
	unit := &contract.QueueUnit{}
	unit.Status.Position, unit.Status.Message = 2, "1 of 1 jobs run"
	unit.CreationTimestamp = metav1.Date(2026, 11, 1, 11, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		binding  *unstructured.Unstructured
		unit     *contract.QueueUnit
		state    State
		headline string
		since    string
	}{
		"no policy": {nil, nil, Incomplete, "PyTorchJob ns/a has no pods that ask for GPUs: no policy of the hub sends it to a cluster.", ""},
		"no place": {
			binding(false, map[string]any{"type": contract.BindingScheduled, "status": "False", "reason": "NoClusterFit", "message": "x: no room; y: no room.", "lastTransitionTime": "2026-11-01T13:00:00Z"}),
			nil, Waiting, "PyTorchJob ns/a is in no cluster of the fleet: x: no room; y: no room.", "13:00",
		},
		"nobody has looked": {binding(false), nil, Waiting, "PyTorchJob ns/a is in no cluster of the fleet: gpuplan-fleet-scheduler has said nothing of it yet.", "12:00"},
		"in the queue":      {binding(true), unit, Queued, "PyTorchJob ns/a is held by the job queue: position 2 in queue root/x: 1 of 1 jobs run.", "11:00"},
		"in no queue": {
			binding(true), nil, Suspended,
			"PyTorchJob ns/a has no pods: its policy holds it for a queue, and it is in none: give a leaf of the hub's quota tree its namespace.", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := Unsent{heldJob: heldJob{kind: contract.PyTorchJobKind, namespace: "ns", name: "a", object: job, unit: test.unit, queue: "root/x"}, binding: test.binding}
			a := u.Answer()
			assert.Equal(t, test.state, a.State)
			assert.Equal(t, test.headline, a.headline())
			assert.Equal(t, 2, a.Needed)
			since := ""
			if !a.Since.IsZero() {
				since = a.Since.UTC().Format("15:04")
			}
			assert.Equal(t, test.since, since)
			assert.False(t, u.sent())
			assert.True(t, u.Is("ns", "a"))
		})
	}
}
