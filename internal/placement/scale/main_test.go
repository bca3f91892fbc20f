package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/chart"
)

func TestRun(t *testing.T) {
	for _, workload := range []string{"racks", "gpus"} {
		t.Run(workload, func(t *testing.T) {
			nodes, members := filepath.Join(t.TempDir(), "nodes.svg"), filepath.Join(t.TempDir(), "members.svg")
			args := []string{"-workload", workload, "-nodes", "50,100,200", "-members", "1,10,40,10000", "-for", "1ns", "-svg-nodes", nodes, "-svg-members", members}
			var out strings.Builder
			require.NoError(t, run(append(args, "-json"), &out))
			var r report
			require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
			assert.Len(t, r.Points, 9, "10,000 members fit nowhere")
			for _, p := range r.Points {
				assert.Positive(t, p.Milliseconds)
				assert.Equal(t, 3, p.Placements)
			}
			assert.Len(t, r.Fits, 6)
			for path, want := range map[string]string{nodes: "40 members", members: "200 nodes"} {
				svg, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Contains(t, string(svg), want)
			}

			out.Reset()
			require.NoError(t, run(args, &out))
			assert.Contains(t, out.String(), "ms per placement")
			assert.Regexp(t, `cost grows with nodes to the power -?\d+\.\d\d at 40 members`, out.String())
		})
	}
}

func TestExponent(t *testing.T) {
	line := func(power float64) (points []chart.Point) {
		for _, x := range []float64{1, 3, 10, 500} {
			points = append(points, chart.Point{X: x, Y: 7 * math.Pow(x, power)})
		}
		return points
	}
	for _, power := range []float64{0, 1, 2} {
		assert.InDelta(t, power, exponent(line(power)), 1e-9)
	}
}

// Every combination of used GPUs is there, so that placements are not those of
// one state alone.
func TestNodesOfGPUsDiffer(t *testing.T) {
	c := gpus(256)
	states := map[string]bool{}
	for _, name := range c.view.Nodes() {
		states[c.view.FreeGPUs(name).String()] = true
	}
	assert.Len(t, states, 256)
}

func TestRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "chart.svg")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"workload":   {[]string{"-workload", "pods"}, "want racks or gpus"},
		"nodes":      {[]string{"-nodes", "5,x"}, "-nodes 5,x: want positive numbers"},
		"descending": {[]string{"-members", "5,1"}, "-members 5,1: want positive numbers in ascending order"},
		"zero":       {[]string{"-members", "0"}, "want positive numbers"},
		"too many":   {[]string{"-nodes", "1000000"}, "at most 200000"},
		"flag":       {[]string{"-x"}, "flag provided but not defined"},
		"chart":      {[]string{"-nodes", "50", "-members", "1", "-for", "1ns", "-svg-nodes", missing}, "write the chart"},
	} {
		assert.ErrorContains(t, run(tt.args, new(strings.Builder)), tt.want, name)
	}
}
