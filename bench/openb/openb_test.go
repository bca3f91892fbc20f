package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb/replay"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

const testdata = "../../internal/openb/testdata/"

func read(t *testing.T, name string) *openb.Trace {
	t.Helper()
	trace, err := openb.Read(testdata+"openb_node_list_gpu_node.csv.gz", testdata+"openb_pod_list_"+name+".csv.gz", 1.3)
	require.NoError(t, err)
	return trace
}

// Nodes and pods of the cluster are to the planner what the replay in memory gives it.
func TestBothAskThePlannerTheSame(t *testing.T) {
	trace := read(t, "gpuspec33")
	want, err := replay.Nodes(trace.Machines)
	require.NoError(t, err)
	gpus := func(table *gpu.Table) (memory []int64) {
		for _, device := range table.Machine().GPUs {
			memory = append(memory, device.MemoryMiB)
		}
		return memory
	}
	for i, m := range trace.Machines {
		object := node(m)
		have, err := inventory.Node(object, nil)
		require.NoError(t, err)
		assert.Equal(t, gpus(want[i].GPUs), gpus(have.GPUs))
		for label, value := range want[i].Labels {
			assert.Equal(t, value, have.Labels[label])
		}
		assert.EqualValues(t, mostPods, have.Allocatable.Pods)
		assert.Empty(t, have.Allocatable.Extended)
		have.GPUs, have.Labels, have.Allocatable = want[i].GPUs, want[i].Labels, placement.Resources{
			MilliCPU: have.Allocatable.MilliCPU, MemoryBytes: have.Allocatable.MemoryBytes, Pods: want[i].Allocatable.Pods,
		}
		have.GPUPolicy, have.Since = want[i].GPUPolicy, want[i].Since
		assert.Equal(t, want[i], have)
	}
	for i, p := range trace.Pods {
		have, problems := inventory.Gang([]*corev1.Pod{pod(p, i)}, nil, nil)
		require.Empty(t, problems)
		require.Len(t, have.Roles, 1)
		want := replay.Gang(p, i).Roles[0]
		assert.Equal(t, want.Request, have.Roles[0].Request)
		assert.Equal(t, want.Demand(), have.Roles[0].Demand())
	}
}

// few is a part of a trace that is replayed in half a minute. What the first pods of the list ask
// for is recorded before: learning it takes some seconds for each quarter more.
func few(t *testing.T) replay.Replay {
	t.Helper()
	r := replay.Replay{Trace: read(t, "gpuspec33"), Learned: placement.Workload{}}
	r.Every(40)
	for i, p := range r.Pods[:200] {
		r.Learned.Count(replay.Gang(p, i))
	}
	return r
}

// The planner that is measured is the planner that runs: the scheduler on the platform decides on
// every pod as the replay in memory does. Nothing is left to chance but the moment at which the
// scheduler follows what was recorded, and by then the next pod has not been created. One decision
// that is made otherwise moves up to a hundred of the pods after it, so there is no bound in between.
func TestPlatformDecidesAsMemory(t *testing.T) {
	for _, program := range []string{"gpuplan-local", "gpuplan-scheduler", "gpuplan-joboperator"} {
		_, err := localtest.Program(program)
		require.NoError(t, err)
	}
	bin, err := filepath.Abs("../../bin")
	require.NoError(t, err)
	var progress bytes.Buffer
	b := bench{bin: bin, seed: 42, inFlight: 16, progress: &progress}
	var r row
	for range 3 { // on a busy machine the scheduler may follow a record a pod later
		r, err = b.compare(t.Context(), few(t))
		require.NoError(t, err, progress.String())
		if r.elsewhere == 0 {
			break
		}
	}
	assert.Zero(t, r.elsewhere, "pods that one of the two has dropped, or placed on another node")
	for _, at := range tableAt {
		assert.Equal(t, r.memory[at], r.platform[at], "allocated at %d %% of demand", at)
	}
	assert.Greater(t, r.platform[100], 80.0)
	var table bytes.Buffer
	require.NoError(t, printTable(&table, []row{r}))
	assert.Contains(t, table.String(), "gpuspec33")
	assert.Contains(t, progress.String(), "gpuspec33: starting a platform with 31 nodes")
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	nodes, pods := testdata+"openb_node_list_gpu_node.csv.gz", testdata+"openb_pod_list_default.csv.gz"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no node list":     {[]string{pods}, "give a node list"},
		"no pod list":      {[]string{"-nodes", nodes}, "at least one pod list"},
		"no machines":      {[]string{"-nodes", nodes, "-every", "0", pods}, "1 or more"},
		"unknown flag":     {[]string{"-nope"}, "read flags"},
		"no such pod list": {[]string{"-nodes", nodes, "nowhere.csv"}, "read nowhere.csv"},
		"no programs":      {[]string{"-nodes", nodes, "-every", "400", "-bin", t.TempDir(), pods}, "make build"},
	} {
		err := run(t.Context(), c.args, &bytes.Buffer{}, &bytes.Buffer{})
		assert.ErrorContains(t, err, c.want, name)
	}
}
