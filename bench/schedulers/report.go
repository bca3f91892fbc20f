package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// throughputTable is a Markdown table of one workload and series. The first row is
// what the others are compared with.
func throughputTable(rows []throughput) string {
	var t strings.Builder
	fmt.Fprintf(&t, "\n%s on %d nodes, %s\n\n", rows[0].Workload, rows[0].Nodes, rows[0].Series)
	line(&t, "scheduler", "bound", "gangs whole / partial", "all bound, s", "pods/s", "ours is faster", "CPU ms/pod", "ours is cheaper", "wait p50 / p99, s", "peak MiB", "cores: scheduler / API server")
	line(&t, "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:")
	ours := rows[0]
	for _, r := range rows {
		line(&t, r.Scheduler, fmt.Sprintf("%d / %d", r.Bound, r.Pods), fmt.Sprintf("%d / %d", r.WholeGangs, r.PartialGangs),
			number(r.Seconds, 2), number(r.perSecond(), 0), ratio(ours.perSecond(), r.perSecond()),
			number(r.cpuPerPod(), 2), ratio(r.cpuPerPod(), ours.cpuPerPod()),
			number(r.MedianSeconds, 2)+" / "+number(r.P99Seconds, 2), number(r.PeakMiB, 0),
			number(r.SchedulerCores, 2)+" / "+number(r.ServerCores, 2))
	}
	return t.String()
}

func waitingTable(rows []waiting) string {
	var t strings.Builder
	fmt.Fprintf(&t, "\n%s on %d nodes, most of which never fit\n\n", rows[0].Workload, rows[0].Nodes)
	line(&t, "scheduler", "gangs whole / partial", fmt.Sprintf("CPU in %.0f s, s", rows[0].IntervalSeconds), "ours is", "API server CPU, s", "verdict first / on all members, ms")
	line(&t, "---", "---:", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		line(&t, r.Scheduler, fmt.Sprintf("%d / %d", r.WholeGangs, r.PartialGangs), fmt.Sprintf("%.2f", r.CPUSeconds),
			share(rows[0].CPUSeconds, r.CPUSeconds), fmt.Sprintf("%.2f", r.ServerCPUSeconds), milliseconds(r.FirstVerdictSeconds)+" / "+milliseconds(r.LastVerdictSeconds))
	}
	return t.String()
}

func idleTable(rows []idling) string {
	var t strings.Builder
	fmt.Fprintf(&t, "\n%d idle nodes\n\n", rows[0].Nodes)
	line(&t, "scheduler", "CPU to start, s", fmt.Sprintf("CPU in %.0f s, s", rows[0].IntervalSeconds), "memory, MiB", "peak, MiB")
	line(&t, "---", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		line(&t, r.Scheduler, fmt.Sprintf("%.2f", r.StartCPUSeconds), fmt.Sprintf("%.2f", r.CPUSeconds), fmt.Sprintf("%.0f", r.MiB), fmt.Sprintf("%.0f", r.PeakMiB))
	}
	return t.String()
}

func line(t *strings.Builder, cells ...string) {
	fmt.Fprintf(t, "| %s |\n", strings.Join(cells, " | "))
}

// number prints a figure, and a dash where there is none.
func number(value float64, digits int) string {
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return "–"
	}
	return strconv.FormatFloat(value, 'f', digits, 64)
}

// ratio is how many times b is in a, "" for a row beside itself and where there is none.
func ratio(a, b float64) string {
	if a == b || a == 0 || b == 0 || math.IsNaN(a/b) || math.IsInf(a/b, 0) {
		return ""
	}
	return strconv.FormatFloat(a/b, 'f', 1, 64) + "×"
}

// share is what part a is of b.
func share(a, b float64) string {
	if a == b || b == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*a/b)
}

func milliseconds(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", 1000*seconds)
}
