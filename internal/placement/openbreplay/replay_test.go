package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	nodeList = "testdata/openb_node_list_gpu_node.csv.gz"
	podList  = "testdata/openb_pod_list_default.csv.gz"
	specList = "testdata/openb_pod_list_gpuspec33.csv.gz"
)

// quarter is every fourth machine of the trace, with a whole pod list.
func quarter(tb testing.TB, podList string) replay {
	tb.Helper()
	all, err := readNodes(nodeList)
	require.NoError(tb, err)
	require.Len(tb, all, 1213)
	pods, err := readPods(podList)
	require.NoError(tb, err)
	require.Len(tb, pods, 8152)
	r := replay{pods: pods, demand: 1.3}
	for i := 0; i < len(all); i += 4 {
		r.machines = append(r.machines, all[i])
	}
	return r
}

// descentAndTightest replays by fragmentation and by the tightest fit; descent are the curves of the
// first, with and without the means of both.
func descentAndTightest(t *testing.T, r replay) (descent []curve, with, without report) {
	t.Helper()
	descent, err := r.seeds(42, 43)
	require.NoError(t, err)
	r.tightest = true
	tightest, err := r.seeds(42, 43)
	require.NoError(t, err)
	return descent, summarise("descent", descent), summarise("tightest", tightest)
}

func TestFragmentationDescentBeatsTheTightestFit(t *testing.T) {
	r := quarter(t, podList)
	descent, with, without := descentAndTightest(t, r)
	for _, at := range []int{100, 130} {
		assert.Greater(t, with.AllocatedPercent[at], without.AllocatedPercent[at], "allocated at %d %%", at)
		assert.Greater(t, with.AllocatedPercent[at], 94.0, "allocated at %d %%", at)
	}
	assert.Less(t, with.FragmentedPercent[90], without.FragmentedPercent[90])

	again, err := r.seeds(42, 42)
	require.NoError(t, err)
	assert.Equal(t, descent[0].allocated, again[0].allocated, "a seed gives the same every time")
}

// Pods that may run anywhere keep away from the models that others need.
func TestScarceModelsAreKept(t *testing.T) {
	r := quarter(t, specList)
	_, with, without := descentAndTightest(t, r)
	assert.Greater(t, with.AllocatedPercent[100], without.AllocatedPercent[100]+5)
	assert.Greater(t, with.AllocatedPercent[130], without.AllocatedPercent[130])
	assert.Less(t, with.AllocatedPercent[100], with.MostPercent[0])
}

func TestFragmentsByThePaper(t *testing.T) {
	m := idle{milliCPU: 4000, gpus: []int64{1000, 300, 0, 600}}
	cases := map[string]struct {
		pod  pod
		want int64
	}{
		"fits one GPU whole":        {pod{milliCPU: 1000, wholeGPUs: 1, shareMilli: 1000}, 900},
		"two GPUs are big enough":   {pod{milliCPU: 1000, wholeGPUs: 1, shareMilli: 500}, 300},
		"everything is big enough":  {pod{milliCPU: 4000, wholeGPUs: 1, shareMilli: 300}, 0},
		"too few GPUs":              {pod{milliCPU: 1000, wholeGPUs: 2, shareMilli: 1000}, 1900},
		"too little CPU":            {pod{milliCPU: 4001, wholeGPUs: 1, shareMilli: 300}, 1900},
		"a pod without GPUs":        {pod{milliCPU: 1000}, 1900},
		"as many GPUs as there are": {pod{milliCPU: 0, wholeGPUs: 3, shareMilli: 300}, 0},
	}
	for name, c := range cases {
		assert.Equal(t, c.want, m.fragments(c.pod, 1900), name)
	}
}

// small writes a tiny node list and pod list.
func small(t *testing.T) (nodes, pods string) {
	t.Helper()
	dir := t.TempDir()
	nodes, pods = filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "openb_pod_list_tiny.csv")
	require.NoError(t, os.WriteFile(nodes, []byte("sn,cpu_milli,memory_mib,gpu,model\na,32000,65536,2,T4\nb,64000,65536,0,\n"), 0o600))
	require.NoError(t, os.WriteFile(pods, []byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,500\nq,1000,1024,1,1000\nr,2000,1024,0,0\n"), 0o600))
	return nodes, pods
}

func TestRunPrintsATableAndJSON(t *testing.T) {
	nodes, pods := small(t)
	var table, encoded bytes.Buffer
	chart := filepath.Join(t.TempDir(), "chart.svg")
	require.NoError(t, run([]string{"-nodes", nodes, "-seeds", "1-3", "-svg", chart, pods}, &table))
	assert.Contains(t, table.String(), "tiny")
	svg, err := os.ReadFile(chart)
	require.NoError(t, err)
	assert.Contains(t, string(svg), "tiny: allocated")

	require.NoError(t, run([]string{"-nodes", nodes, "-seeds", "7", "-json", "-tightest", pods}, &encoded))
	var reports []report
	require.NoError(t, json.Unmarshal(encoded.Bytes(), &reports))
	require.Len(t, reports, 1)
	assert.Equal(t, 1, reports[0].Seeds)
	assert.InDelta(t, 100, reports[0].AllocatedPercent[len(reports[0].AllocatedPercent)-1], 25)
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	nodes, pods := small(t)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,x,1024,1,500\n"), 0o600))
	short := filepath.Join(t.TempDir(), "short.csv")
	require.NoError(t, os.WriteFile(short, []byte("name,cpu_milli\np,1\n"), 0o600))
	plain := filepath.Join(t.TempDir(), "plain.gz")
	require.NoError(t, os.WriteFile(plain, []byte("no gzip"), 0o600))
	ragged := filepath.Join(t.TempDir(), "ragged.csv")
	require.NoError(t, os.WriteFile(ragged, []byte("a,b\n1\n"), 0o600))
	empty := filepath.Join(t.TempDir(), "empty.csv")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	cases := map[string]struct {
		args []string
		want string
	}{
		"no node list":      {[]string{pods}, "give a node list"},
		"no pod list":       {[]string{"-nodes", nodes}, "at least one pod list"},
		"unknown flag":      {[]string{"-nope"}, "read flags"},
		"seeds backwards":   {[]string{"-seeds", "9-3"}, "no range"},
		"seeds in words":    {[]string{"-seeds", "many"}, "no range"},
		"no such node list": {[]string{"-nodes", "nowhere.csv", pods}, "read nowhere.csv"},
		"no such pod list":  {[]string{"-nodes", nodes, "nowhere.csv"}, "read nowhere.csv"},
		"not a number":      {[]string{"-nodes", nodes, bad}, "column cpu_milli"},
		"missing column":    {[]string{"-nodes", nodes, short}, "no column"},
		"no gzip":           {[]string{"-nodes", nodes, plain}, "read " + plain},
		"ragged lines":      {[]string{"-nodes", nodes, ragged}, "wrong number of fields"},
		"empty file":        {[]string{"-nodes", nodes, empty}, "EOF"},
		"chart nowhere":     {[]string{"-nodes", nodes, "-seeds", "1", "-svg", filepath.Join(nodes, "x"), pods}, "write the chart"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := run(c.args, &bytes.Buffer{})
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
		})
	}
}

// The bound counts what may run nowhere else, and no more than there is.
func TestBound(t *testing.T) {
	machines := []machine{{gpus: 2, model: "T4"}, {gpus: 4, model: "A10"}}
	ask := func(gpus int, models string) pod { return pod{wholeGPUs: gpus, shareMilli: 1000, models: models} }
	for name, test := range map[string]struct {
		pods []pod
		want int64
	}{
		"nothing":                       {nil, 0},
		"less than there is":            {[]pod{ask(1, ""), ask(1, "T4")}, 2000},
		"more than there is":            {[]pod{ask(8, "")}, 6000},
		"more of one model":             {[]pod{ask(3, "T4"), ask(1, "")}, 3000},
		"more of either than of both":   {[]pod{ask(3, "T4"), ask(1, "A10|T4"), ask(4, "A10")}, 6000},
		"a model that there is not":     {[]pod{ask(3, "H100"), ask(1, "")}, 1000},
		"all of one, and some of other": {[]pod{ask(3, "T4"), ask(3, "A10|T4")}, 5000},
	} {
		assert.Equal(t, test.want, bound(machines, test.pods), name)
	}
}

func TestArrivals(t *testing.T) {
	r := replay{pods: []pod{{wholeGPUs: 1, shareMilli: 1000}, {wholeGPUs: 1, shareMilli: 500}, {wholeGPUs: 2, shareMilli: 1000}}, demand: 1.3}
	total := func(list []pod) (sum int64) {
		for _, p := range list {
			sum += p.gpuMilli()
		}
		return sum
	}
	for seed := range int64(20) {
		many := r.arrivals(seed, 10_000)
		assert.GreaterOrEqual(t, total(many), int64(13_000))
		assert.Less(t, total(many[:len(many)-1]), int64(13_000))
		few := r.arrivals(seed, 1_000)
		assert.GreaterOrEqual(t, total(few), int64(1_300))
		assert.Less(t, total(few[:len(few)-1]), int64(1_300))
	}
}

// BenchmarkSeed replays one seed of the whole default trace.
func BenchmarkSeed(b *testing.B) {
	machines, err := readNodes(nodeList)
	require.NoError(b, err)
	pods, err := readPods(podList)
	require.NoError(b, err)
	r := replay{machines: machines, pods: pods, demand: 1.3}
	for b.Loop() {
		curves, err := r.seeds(42, 42)
		require.NoError(b, err)
		b.ReportMetric(curves[0].allocated[100], "%allocated")
		b.ReportMetric(curves[0].fragmented[90], "%fragmented@90")
	}
}
