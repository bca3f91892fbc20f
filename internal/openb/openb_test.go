package openb

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	trace, err := Read("testdata/openb_node_list_gpu_node.csv.gz", "testdata/openb_pod_list_gpuspec33.csv.gz", 1.3)
	require.NoError(t, err)
	assert.Equal(t, "gpuspec33", trace.Name)
	require.Len(t, trace.Machines, 1213)
	require.Len(t, trace.Pods, 8152)
	assert.EqualValues(t, 6_212_000, trace.Capacity())
	trace.Every(4)
	assert.Len(t, trace.Machines, 304)
	assert.True(t, Pod{}.RunsOn("T4"))
	assert.Nil(t, Pod{}.ModelList())
	assert.True(t, Pod{Models: "P100|T4"}.RunsOn("T4"))
	assert.False(t, Pod{Models: "P100|T4"}.RunsOn("T"))
}

// The bound counts what may run nowhere else and what one GPU cannot hold together, and no more
// than there is.
func TestBound(t *testing.T) {
	machines := []Machine{{GPUs: 2, Model: "T4"}, {GPUs: 4, Model: "A10"}}
	ask := func(gpus int, models string) Pod { return Pod{GPUs: gpus, ShareMilli: 1000, Models: models} }
	shares := func(n int, milli int64) []Pod { return slices.Repeat([]Pod{{GPUs: 1, ShareMilli: milli}}, n) }
	for name, test := range map[string]struct {
		pods []Pod
		want float64
	}{
		"nothing":                       {nil, 0},
		"no GPUs":                       {[]Pod{{MilliCPU: 1000}}, 0},
		"less than there is":            {[]Pod{ask(1, ""), ask(1, "T4")}, 2000},
		"more than there is":            {[]Pod{ask(8, "")}, 6000},
		"more of one model":             {[]Pod{ask(3, "T4"), ask(1, "")}, 3000},
		"more of either than of both":   {[]Pod{ask(3, "T4"), ask(1, "A10|T4"), ask(4, "A10")}, 6000},
		"a model that there is not":     {[]Pod{ask(3, "H100"), ask(1, "")}, 1000},
		"all of one, and some of other": {[]Pod{ask(3, "T4"), ask(3, "A10|T4")}, 5000},
		"shares that fill no GPU":       {shares(20, 400), 4800},
		"shares that others fill up":    {slices.Concat(shares(20, 810), shares(2, 190)), 5240},
		"shares, or whole GPUs":         {slices.Concat(shares(20, 810), []Pod{ask(2, ""), ask(2, "")}), 5620},
		"shares on several GPUs":        {[]Pod{{GPUs: 4, ShareMilli: 600}, {GPUs: 4, ShareMilli: 600}}, 3600},
	} {
		assert.InDelta(t, test.want, bound(machines, test.pods), 1e-6, name)
	}
}

// Whatever is placed in whichever order is within the bound.
func TestNothingExceedsTheBound(t *testing.T) {
	for seed := range int64(50) {
		random := rand.New(rand.NewSource(seed))
		machines := []Machine{{GPUs: 1, Model: "T4"}, {GPUs: 2, Model: "A10"}}
		var pods []Pod
		for range 3 + random.Intn(8) {
			pods = append(pods, Pod{GPUs: 1, ShareMilli: int64(100 * (1 + random.Intn(10))), Models: []string{"", "T4", "A10"}[random.Intn(3)]})
		}
		least := bound(machines, pods)
		for range 50 {
			random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			idle, placed := []int64{1000, 1000, 1000}, int64(0)
			for _, p := range pods {
				for i, model := range []string{"T4", "A10", "A10"} {
					if idle[i] >= p.ShareMilli && p.RunsOn(model) {
						idle[i] -= p.ShareMilli
						placed += p.ShareMilli
						break
					}
				}
			}
			assert.LessOrEqual(t, float64(placed), least+1e-6, "seed %d", seed)
		}
	}
}

func TestArrivals(t *testing.T) {
	pods := []Pod{{GPUs: 1, ShareMilli: 1000}, {GPUs: 1, ShareMilli: 500}, {GPUs: 2, ShareMilli: 1000}}
	total := func(list []Pod) (sum int64) {
		for _, p := range list {
			sum += p.GPUMilli()
		}
		return sum
	}
	for seed := range int64(20) {
		for _, gpus := range []int{10, 1} {
			trace := Trace{Machines: []Machine{{GPUs: gpus}}, Pods: pods, Demand: 1.3}
			list := trace.Arrivals(seed)
			assert.GreaterOrEqual(t, total(list), int64(gpus)*1300)
			assert.Less(t, total(list[:len(list)-1]), int64(gpus)*1300)
			assert.Equal(t, list, trace.Arrivals(seed), "a seed gives the same every time")
		}
	}
}

func TestMeter(t *testing.T) {
	meter := (&Trace{Machines: []Machine{{GPUs: 3}, {GPUs: 1}}}).Meter()
	meter.Arrive(Pod{GPUs: 2, ShareMilli: 1000}, true)
	meter.Arrive(Pod{GPUs: 1, ShareMilli: 30}, true)
	meter.Arrive(Pod{MilliCPU: 1000}, true)
	meter.Arrive(Pod{GPUs: 2, ShareMilli: 1000}, false)
	assert.Equal(t, 100, meter.Demand())
	assert.InDelta(t, 50.75, meter.Allocated(), 1e-9)
}
