package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

const dgx1 = "../testdata/topologies/dgx1-v100.json"

// gaps is a machine that lost GPU 1 of four, and whose GPU 3 is not healthy.
const gaps = `{"name": "gaps", "pcieGen": 4,
	"gpus": [{"index": 0, "numa": 0}, {"index": 2, "numa": 0}, {"index": 3, "numa": 0, "unhealthy": "XID 79"}],
	"links": [["X", "PIX", "PIX"], ["PIX", "X", "PIX"], ["PIX", "PIX", "X"]],
	"nics": {"mlx5_0": ["NODE", "PIX", "PIX"]}}`

func write(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "machine.json")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, run(args, &out))
	return out.String()
}

func TestOneAnswer(t *testing.T) {
	want := `FREE                      K  GPUS                         GB/S  NVLINK RINGS  WORST GB/S
0,1,2,4,5,6,7             4  4,5,6,7                      50.0             2         5.0
`
	assert.Equal(t, want, output(t, "-free", "0-2,4-7", "-k", "4", dgx1))
	assert.Equal(t, want, output(t, "-free", "0xf7", "-k", "4", dgx1))
	assert.JSONEq(t, `{"free": [0,1,2,4,5,6,7], "k": 4, "gpus": [4,5,6,7], "gbps": 50, "nvlinkRings": 2, "worstGbps": 5}`,
		output(t, "-json", "-free", "0xf7", "-k", "4", dgx1))
}

func TestGPUsAreNamedByIndex(t *testing.T) {
	path := write(t, gaps)
	assert.JSONEq(t, `{"free": [0,2], "k": 2, "gpus": [0,2], "gbps": 24, "nvlinkRings": 0, "worstGbps": 24}`, output(t, "-json", "-free", "2-3,0", "-k", "2", path))
	assert.JSONEq(t, `{"free": [0,2], "k": 1, "gpus": [2], "gbps": 0, "nvlinkRings": 0, "worstGbps": 0}`, output(t, "-json", "-k", "1", "-near-nic", path))
}

func TestAllAnswers(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(output(t, "-all", "-json", dgx1)), "\n")
	assert.Len(t, lines, 8*128, "every set of free GPUs and every k")
	table := machineTable(t, dgx1)
	for _, line := range lines {
		var c choice
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		best, ok := table.Best(gpu.SetOf(c.Free...), c.K)
		require.True(t, ok)
		assert.Equal(t, best.GPUs(), c.GPUs)
		assert.Equal(t, table.Ring(best), gpu.Ring{GBps: c.GBps, NVLinkRings: c.NVLinkRings})
	}
	assert.Equal(t, 4, strings.Count(output(t, "-all", "-json", write(t, gaps)), "\n"), "without the GPU that is not healthy")
}

func TestHistogram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sets.svg")
	output(t, "-k", "4", "-svg", path, dgx1)
	svg, err := os.ReadFile(path)
	require.NoError(t, err)
	table := machineTable(t, dgx1)
	assert.Equal(t, string(histogram(table, question{gpu.Full(8), 4}, false)), string(svg))
	for _, want := range []string{"dgx1-v100: sets of 4 out of 8 free GPUs", ">5.0<", ">25.0<", ">50.0<", ">chosen<", ">worst<", ">sets that max-min rates best<"} {
		assert.Contains(t, string(svg), want)
	}
	assert.Equal(t, 5.0, slowestPair(table, gpu.SetOf(0, 1, 4, 7)), "0 and 7 have no link")
	assert.Equal(t, 25.0, slowestPair(table, gpu.SetOf(0, 1, 2, 3)))
}

func machineTable(t *testing.T, path string) *gpu.Table {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	m, err := gpu.ParseMachine(data)
	require.NoError(t, err)
	table, err := gpu.NewTable(m)
	require.NoError(t, err)
	return table
}

func TestRefuses(t *testing.T) {
	large, err := json.Marshal(largeMachine())
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no file":             {nil, "name one topology file"},
		"two files":           {[]string{"-k", "1", dgx1, dgx1}, "name one topology file"},
		"missing file":        {[]string{"-k", "1", "missing.json"}, "missing.json"},
		"no machine":          {[]string{"-k", "1", write(t, "{}")}, "gpus is missing"},
		"unknown flag":        {[]string{"-gpus", "1", dgx1}, "flag provided but not defined"},
		"no k":                {[]string{dgx1}, "-k 0: want 1 to 8, the number of free healthy GPUs, or -all"},
		"k too large":         {[]string{"-free", "1-3", "-k", "4", dgx1}, "-k 4: want 1 to 3"},
		"all with k":          {[]string{"-all", "-k", "4", dgx1}, "leave them out"},
		"all of a large one":  {[]string{"-all", write(t, string(large))}, "at most 16 GPUs, this one has 17"},
		"mask too wide":       {[]string{"-k", "1", "-free", "0x100", dgx1}, "want a mask of 8 GPUs"},
		"no mask":             {[]string{"-k", "1", "-free", "0xzz", dgx1}, "want a mask of 8 GPUs"},
		"no index":            {[]string{"-k", "1", "-free", "a", dgx1}, `"a" is no GPU index`},
		"no end of the range": {[]string{"-k", "1", "-free", "1-", dgx1}, `"1-" is no range of GPU indices`},
		"range backwards":     {[]string{"-k", "1", "-free", "3-1", dgx1}, `"3-1" is no range of GPU indices`},
		"chart of all":        {[]string{"-all", "-svg", "sets.svg", dgx1}, "leave out -all"},
		"chart nowhere":       {[]string{"-k", "1", "-svg", filepath.Join(t.TempDir(), "missing", "sets.svg"), dgx1}, "draw the chart"},
		"GPU it lacks":        {[]string{"-k", "1", "-free", "7-8", dgx1}, "the machine has no GPU 8"},
	} {
		assert.ErrorContains(t, run(tt.args, new(strings.Builder)), tt.want, name)
	}
}

func largeMachine() gpu.Machine {
	var m gpu.Machine
	for i := range 17 {
		m.GPUs = append(m.GPUs, gpu.GPU{Index: i})
		row := make([]gpu.Link, 17)
		row[i].Class = gpu.Self
		m.Links = append(m.Links, row)
	}
	return m
}
