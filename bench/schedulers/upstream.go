package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// upstream is a workload of upstream's scheduler_perf, with upstream's own gangs and
// with our plugins.
type upstream struct {
	workload string
	// native and own are by the name of the figure in the output.
	native, own map[string]float64
}

// Lines are BenchmarkPerfScheduling/native#01/Gangs/500Nodes/1000x3-2  1  92.88 SchedulingThroughput/Average ...
var (
	upstreamLine   = regexp.MustCompile(`(?m)^BenchmarkPerfScheduling/(\w+)(?:#\d+)?/(\S+?)(?:-\d+)?\s(.*)$`)
	upstreamFigure = regexp.MustCompile(`([0-9.e+]+) (SchedulingThroughput/Average|SchedulingDuration/Duration)`)
)

// readUpstream reads the output of upstream's harness; without the file there is nothing.
func readUpstream(file string) ([]upstream, error) {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []upstream
	for _, match := range upstreamLine.FindAllStringSubmatch(string(text), -1) {
		figures := map[string]float64{}
		for _, m := range upstreamFigure.FindAllStringSubmatch(match[3], -1) {
			if figures[m[2]], err = strconv.ParseFloat(m[1], 64); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		i := slices.IndexFunc(all, func(u upstream) bool { return u.workload == match[2] })
		if i < 0 {
			i = len(all)
			all = append(all, upstream{workload: match[2]})
		}
		if match[1] == "native" {
			all[i].native = figures
		} else {
			all[i].own = figures
		}
	}
	return all, nil
}

func upstreamTable(rows []upstream) string {
	if len(rows) == 0 {
		return ""
	}
	const speed, time = "SchedulingThroughput/Average", "SchedulingDuration/Duration"
	var t strings.Builder
	t.WriteByte('\n')
	line(&t, "workload", "native: pods/s", "all, s", "gpuplan: pods/s", "all, s", "ours is, by pods/s", "by time")
	line(&t, "---", "---:", "---:", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		line(&t, r.workload, number(r.native[speed], 0), number(r.native[time], 1), number(r.own[speed], 0), number(r.own[time], 1),
			ratio(r.own[speed], r.native[speed])+" faster", ratio(r.native[time], r.own[time])+" faster")
	}
	return t.String()
}
