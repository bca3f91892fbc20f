package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// plannedIn is the pod of a job that a plan places on GPUs of node n of a cluster.
func plannedIn(t *testing.T, cluster string, gpus ...int) []*corev1.Pod {
	t.Helper()
	pods := gang(t, "a", 0, len(gpus))
	text, err := contract.PlannedPlacement{Cluster: cluster, Nodes: []contract.PlannedNode{{Node: "n", Members: map[string][]int{"master-0": gpus}}}}.Text()
	require.NoError(t, err)
	for _, pod := range pods {
		pod.Annotations = map[string]string{contract.PlannedPlacementAnnotation: text}
	}
	return pods
}

// The place that a plan has promised is offered in the cluster that it was for. In another one nodes of the same name are other nodes.
func TestPlannedPlaceIsOfOneCluster(t *testing.T) {
	for name, test := range map[string]struct {
		cluster             string
		asPlanned, promised bool
		where               gpu.Set
	}{
		"this one":     {"m", true, true, gpu.SetOf(5) | gpu.SetOf(6)},
		"another one":  {"other", false, false, 0},
		"of no fleet":  {"", true, false, gpu.SetOf(5) | gpu.SetOf(6)},
		"is not there": {"gone", false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			offer, why := newMember(t).offer(newToCome(plannedIn(t, test.cluster, 5, 6)))
			require.Empty(t, why)
			assert.Equal(t, test.asPlanned, offer.AsPlanned)
			assert.Equal(t, test.promised, offer.Promised)
			var on gpu.Set
			for _, a := range offer.Placements[0].Assignments {
				on |= a.Own
			}
			if test.where != 0 {
				assert.Equal(t, test.where, on)
			} else {
				assert.NotEqual(t, gpu.SetOf(5)|gpu.SetOf(6), on, "the best place, not that of the plan")
			}
		})
	}
}

func TestReservationsElsewhereForgetThePlan(t *testing.T) {
	planned := object(t, `{apiVersion: v1, kind: Job, metadata: {name: a, annotations: {kept: "", gpuplan.dev/planned-placement: '{"version":1,"cluster":"m","nodes":[]}'}},
  spec: {roles: [{template: {metadata: {annotations: {gpuplan.dev/planned-placement: x, mine: y}}}}]}}`)
	before := planned.DeepCopy()
	assert.Contains(t, object(t, text(t, manifest(planned, "m"))).GetAnnotations(), contract.PlannedPlacementAnnotation)
	elsewhere := text(t, manifest(planned, "other"))
	assert.NotContains(t, elsewhere, contract.PlannedPlacementAnnotation)
	assert.Contains(t, elsewhere, "mine")
	assert.Equal(t, before, planned, "the job itself keeps it")
}
