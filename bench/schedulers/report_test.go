package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// bound is a run that bound its pods in some seconds.
func bound(scheduler, series string, seconds float64) throughput {
	w := shape{gangs: 25, members: 4, gpus: 1}
	t := newThroughput(scheduler, 10, w, series)
	t.Bound, t.WholeGangs, t.Seconds, t.CPUSeconds = 100, 25, seconds, seconds/10
	t.Commit, t.Load = "abc", seconds
	return t
}

func TestReportFillsThePage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, results{Throughput: []throughput{bound("gpuplan", backlog, 1), bound("coscheduling", backlog, 4)}}.add(file))
	stuck := bound("koordinator", backlog, 60)
	stuck.Bound, stuck.GaveUp = 40, true
	alone := stuck
	alone.Series = live
	require.NoError(t, results{
		Throughput: []throughput{bound("gpuplan", backlog, 2), stuck, bound("gpuplan", backlog, 4), bound("gpuplan", ownCores, 2), bound(ceilingName, ownCores, 1), bound("gpuplan", live, 2), alone},
		Waiting:    []waiting{{Scheduler: "gpuplan", CPUSeconds: 0.1}, {Scheduler: "coscheduling", CPUSeconds: 4}, {Scheduler: "volcano", CPUSeconds: 1}},
		Idle:       []idling{{Scheduler: "gpuplan", Nodes: 10, MiB: 70}},
	}.add(file))
	all, err := readResults(file)
	require.NoError(t, err)

	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte(`# Page
<!-- figures: in short -->
<!-- end of figures -->
<!-- figures: conditions -->
<!-- end of figures -->
<!-- figures: backlog first -->
stale
<!-- end of figures -->
kept
<!-- figures: a core each -->
<!-- end of figures -->
<!-- figures: live -->
<!-- end of figures -->
<!-- figures: waiting -->
<!-- end of figures -->
<!-- figures: idle -->
<!-- end of figures -->
<!-- figures: upstream -->
of an earlier run
<!-- end of figures -->
`), 0o600))
	for range 2 { // once more changes nothing
		require.NoError(t, all.write(page))
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, want := range []string{
			"| gpuplan | 100 / 100 | 25 / 0 | 2.00 | 50 (25 to 100) |  | 2.00 (1.00 to 4.00) |",
			"| coscheduling | 100 / 100 | 25 / 0 | 4.00 | 25 | 2.0× |",
			"| koordinator | 40 / 100 | 25 / 0 | gave up after 60 | 1 |",
			"<br>", "25 × 4 pods on 10 nodes: 2.0× coscheduling", "25 × 4 pods on 10 nodes: 50 %", "10.0 % of volcano",
			"commit abc (9 runs)", "25 × 4 pods on 10 nodes: ours alone finishes, not koordinator", "\nkept\n", "of an earlier run", "| 50 % |",
		} {
			require.Contains(t, string(text), want)
		}
		require.NotContains(t, string(text), "stale")
	}

	require.NoError(t, os.WriteFile(page, []byte("# Page\n"), 0o600))
	require.ErrorContains(t, all.write(page), "has no place")
}

func TestUpstreamOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "output.txt")
	require.NoError(t, os.WriteFile(file, []byte(`goos: linux
BenchmarkPerfScheduling/native/Gangs/500Nodes/1000x3-2         	       1	        33.10 SchedulingDuration/Duration	        92.88 SchedulingThroughput/Average	         0 SchedulingThroughput/Perc50
BenchmarkPerfScheduling/gpuplan#01/Gangs/500Nodes/1000x3-2         	       1	        11.03 SchedulingDuration/Duration	       185.76 SchedulingThroughput/Average
`), 0o600))
	rows, err := readUpstream(file)
	require.NoError(t, err)
	require.Contains(t, upstreamTable(rows), "| Gangs/500Nodes/1000x3 | 93 | 33.1 | 186 | 11.0 | 2.0× faster | 3.0× faster |")
}
