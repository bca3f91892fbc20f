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
