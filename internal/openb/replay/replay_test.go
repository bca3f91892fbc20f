package replay

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
)

// whole is a trace on all machines.
func whole(tb testing.TB, name string) Replay {
	tb.Helper()
	trace, err := openb.Read("../testdata/openb_node_list_gpu_node.csv.gz", "../testdata/openb_pod_list_"+name+".csv.gz", 1.3)
	require.NoError(tb, err)
	return Replay{Trace: trace}
}

// descentAndTightest replays a trace on every fourth machine by fragmentation and by the tightest
// fit, and returns the means of both.
func descentAndTightest(t *testing.T, name string) (descent, tightest Curve) {
	t.Helper()
	r := whole(t, name)
	r.Every(4)
	curves, err := r.Seeds(42, 43)
	require.NoError(t, err)
	again, err := r.Seeds(42, 42)
	require.NoError(t, err)
	assert.Equal(t, curves[0].Allocated, again[0].Allocated, "a seed gives the same every time")
	descent = Mean(curves)
	r.Tightest = true
	curves, err = r.Seeds(42, 43)
	require.NoError(t, err)
	return descent, Mean(curves)
}

func TestFragmentationDescentBeatsTheTightestFit(t *testing.T) {
	with, without := descentAndTightest(t, "default")
	for _, at := range []int{100, 130} {
		assert.Greater(t, with.Allocated[at], without.Allocated[at], "allocated at %d %%", at)
		assert.Greater(t, with.Allocated[at], 94.0, "allocated at %d %%", at)
	}
	assert.Less(t, with.Fragmented[90], without.Fragmented[90])
}

// Pods that may run anywhere keep away from the models that others need.
func TestScarceModelsAreKept(t *testing.T) {
	with, without := descentAndTightest(t, "gpuspec33")
	assert.Greater(t, with.Allocated[100], without.Allocated[100]+5)
	assert.Greater(t, with.Allocated[130], without.Allocated[130])
	assert.Less(t, with.Allocated[100], with.Most[0])
}

func TestFragmentsByThePaper(t *testing.T) {
	m := idle{milliCPU: 4000, gpus: []int64{1000, 300, 0, 600}}
	cases := map[string]struct {
		pod  openb.Pod
		want int64
	}{
		"fits one GPU whole":        {openb.Pod{MilliCPU: 1000, GPUs: 1, ShareMilli: 1000}, 900},
		"two GPUs are big enough":   {openb.Pod{MilliCPU: 1000, GPUs: 1, ShareMilli: 500}, 300},
		"everything is big enough":  {openb.Pod{MilliCPU: 4000, GPUs: 1, ShareMilli: 300}, 0},
		"too few GPUs":              {openb.Pod{MilliCPU: 1000, GPUs: 2, ShareMilli: 1000}, 1900},
		"too little CPU":            {openb.Pod{MilliCPU: 4001, GPUs: 1, ShareMilli: 300}, 1900},
		"a pod without GPUs":        {openb.Pod{MilliCPU: 1000}, 1900},
		"as many GPUs as there are": {openb.Pod{MilliCPU: 0, GPUs: 3, ShareMilli: 300}, 0},
	}
	for name, c := range cases {
		assert.Equal(t, c.want, m.fragments(c.pod, 1900), name)
	}
}

// BenchmarkSeed replays one seed of the whole default trace.
func BenchmarkSeed(b *testing.B) {
	r := whole(b, "default")
	for b.Loop() {
		curves, err := r.Seeds(42, 42)
		require.NoError(b, err)
		b.ReportMetric(curves[0].Allocated[100], "%allocated")
		b.ReportMetric(curves[0].Fragmented[90], "%fragmented@90")
	}
}
