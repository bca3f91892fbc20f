package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

func TestMetrics(t *testing.T) {
	w, o := newHubWorld(t, "{}"), object(t, jobText)
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(w.meters.decisions, w.meters.sent, w.meters.answers)
	registry.CustomMustRegister(w.meters)
	w.setCluster(t.Context(), object(t, strings.Replace(clusterText, "name: m", "name: other", 1)))
	w.setBinding(t.Context(), object(t, strings.Replace(bindingText("placement: {}, suspension: {scheduling: true}"), "name: a", "name: held", 1)))
	require.NoError(t, w.decide(t, o))
	w.kept(t, o, 1, time.Now().Add(time.Minute))
	require.NoError(t, w.decide(t, o))
	require.Equal(t, "m", w.sentTo(t))
	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP gpuplan_fleet_cluster_usable [ALPHA] Whether the hub reaches a cluster, and all that it shows is known, so that jobs may be sent there: 1 or 0.
# TYPE gpuplan_fleet_cluster_usable gauge
gpuplan_fleet_cluster_usable{cluster="m"} 1
gpuplan_fleet_cluster_usable{cluster="other"} 0
# HELP gpuplan_fleet_jobs [ALPHA] Jobs of the fleet's scheduler that have not gone, by state: held by the queue, waiting for a cluster, or sent to one.
# TYPE gpuplan_fleet_jobs gauge
gpuplan_fleet_jobs{cluster="",state="held"} 1
gpuplan_fleet_jobs{cluster="",state="waiting"} 0
gpuplan_fleet_jobs{cluster="m",state="sent"} 1
# HELP gpuplan_fleet_reservations_total [ALPHA] Questions for the place of a job, by the answer of the cluster's scheduler: reserved, refused, or none in time.
# TYPE gpuplan_fleet_reservations_total counter
gpuplan_fleet_reservations_total{answer="reserved",cluster="m"} 1
# HELP gpuplan_fleet_sent_total [ALPHA] Times that a job was sent to a cluster.
# TYPE gpuplan_fleet_sent_total counter
gpuplan_fleet_sent_total{cluster="m"} 1
`), "gpuplan_fleet_cluster_usable", "gpuplan_fleet_jobs", "gpuplan_fleet_reservations_total", "gpuplan_fleet_sent_total"))
	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(""), "gpuplan_fleet_withdrawn_total"))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "gpuplan_fleet_scheduling_algorithm_duration_seconds" {
			assert.EqualValues(t, 1, family.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
}

// A decision that does not end makes the process unhealthy; a replica that stands by is well.
func TestHealth(t *testing.T) {
	c := newHubWorld(t, "{}").controller
	require.NoError(t, c.healthy())
	c.busy.Store(&looking{"default/a", time.Now().Add(-stuckAfter / 2)})
	require.NoError(t, c.healthy())
	c.busy.Store(&looking{"default/a", time.Now().Add(-stuckAfter - time.Minute)})
	assert.ErrorContains(t, c.healthy(), "default/a has been looked at for 6m0s")
}
