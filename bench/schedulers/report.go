package main

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sections are the parts of the documentation that are made from figures, by the name
// in their marker. A part without figures is missing.
func (r results) sections() map[string]string {
	parts := map[string]string{}
	put := func(name, text string) {
		if text != "" {
			parts[name] += text
		}
	}
	put("in short", r.inShort())
	put("conditions", r.quietness())
	for _, c := range r.cases() {
		put(c.Series, c.table())
	}
	put("waiting", waitingTable(r.Waiting))
	put("idle", idleTable(r.Idle))
	put("upstream", upstreamTable(r.Upstream))
	return parts
}

// marked is a part of the documentation that is made from figures.
var marked = regexp.MustCompile(`(?s)(<!-- figures: ([^>]*) -->\n).*?(<!-- end of figures -->)`)

// write puts the parts into a page, between their markers.
func (r results) write(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	parts := r.sections()
	var unknown []string
	text = marked.ReplaceAllFunc(text, func(part []byte) []byte {
		match := marked.FindSubmatch(part)
		name := string(match[2])
		content, known := parts[name]
		if !known {
			unknown = append(unknown, name)
			return part
		}
		delete(parts, name)
		return fmt.Appendf(nil, "%s\n%s\n%s", match[1], strings.TrimSpace(content), match[3])
	})
	for _, name := range unknown {
		fmt.Fprintf(os.Stderr, "schedulers: %s: no figures for %q, left as it is\n", page, name)
	}
	for name := range parts {
		return fmt.Errorf("%s has no place for the figures %q: <!-- figures: %s -->", page, name, name)
	}
	return os.WriteFile(page, text, 0o644) //nolint:gosec // a page that everybody may read
}

// quietness tells what was measured and on how quiet a machine.
func (r results) quietness() string {
	var all []conditions
	for _, t := range r.Throughput {
		all = append(all, t.conditions)
	}
	for _, w := range r.Waiting {
		all = append(all, w.conditions)
	}
	for _, i := range r.Idle {
		all = append(all, i.conditions)
	}
	if len(all) == 0 {
		return ""
	}
	var commits []string
	runs := map[string]int{}
	var load, others []float64
	for _, c := range all {
		if runs[c.Commit]++; runs[c.Commit] == 1 {
			commits = append(commits, c.Commit)
		}
		load, others = append(load, c.Load), append(others, c.OtherCores)
	}
	for i, commit := range commits {
		commits[i] = fmt.Sprintf("%s (%d runs)", commit, runs[commit])
	}
	return fmt.Sprintf("%d runs, ours built from commit %s. Programs outside of a run kept %.2f to %.2f cores busy during it (median %.2f); the load average when a run began, with the run before in it, was %s.\n",
		len(all), strings.Join(commits, ", "), slices.Min(others), slices.Max(others), median(others), spread(load, 1))
}

// table is a Markdown table of a case, for all schedulers beside ours.
func (c comparison) table() string {
	var t strings.Builder
	fmt.Fprintf(&t, "\n#### %s on %d nodes, %s\n\n", c.Workload, c.Nodes, c.Series)
	head := []string{"scheduler", "bound", "gangs whole / partial", "all bound, s", "pods/s", "ours is faster", "CPU ms/pod", "ours is cheaper", "wait p50 / p99, s", "peak MiB", "cores: scheduler / API server"}
	limit := c.of(ceilingName)
	if limit != nil {
		head = append(head, "of binding alone")
	}
	line(&t, head...)
	line(&t, append([]string{"---"}, slices.Repeat([]string{"---:"}, len(head)-1)...)...)
	ours := c.ours()
	for i := range c.rows {
		r := &c.rows[i]
		m := r.median
		time := number(m.Seconds, 2)
		if m.GaveUp {
			time = fmt.Sprintf("gave up after %.0f", m.Seconds)
		}
		cells := []string{m.Scheduler, fmt.Sprintf("%d / %d", m.Bound, m.Pods), fmt.Sprintf("%d / %d", m.WholeGangs, m.PartialGangs),
			time, r.show(throughput.perSecond, 0), ratio(ours.perSecond(), m.perSecond()),
			r.show(throughput.cpuPerPod, 2), ratio(m.cpuPerPod(), ours.cpuPerPod()),
			number(m.MedianSeconds, 2) + " / " + number(m.P99Seconds, 2), number(m.PeakMiB, 0),
			number(m.SchedulerCores, 2) + " / " + number(m.ServerCores, 2)}
		if limit != nil {
			cells = append(cells, share(m.perSecond(), limit.median.perSecond(), 0))
		}
		line(&t, cells...)
	}
	return t.String()
}

func waitingTable(rows []waiting) string {
	if len(rows) == 0 {
		return ""
	}
	var t strings.Builder
	fmt.Fprintf(&t, "\n### %s on %d nodes, most of which never fit\n\n", rows[0].Workload, rows[0].Nodes)
	line(&t, "scheduler", "gangs whole / partial", fmt.Sprintf("CPU in %.0f s, s", rows[0].IntervalSeconds), "ours is", "API server CPU, s", "verdict first / on all members, ms")
	line(&t, "---", "---:", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		line(&t, r.Scheduler, fmt.Sprintf("%d / %d", r.WholeGangs, r.PartialGangs), fmt.Sprintf("%.2f", r.CPUSeconds),
			share(rows[0].CPUSeconds, r.CPUSeconds, 1), fmt.Sprintf("%.2f", r.ServerCPUSeconds), milliseconds(r.FirstVerdictSeconds)+" / "+milliseconds(r.LastVerdictSeconds))
	}
	return t.String()
}

func idleTable(rows []idling) string {
	if len(rows) == 0 {
		return ""
	}
	var t strings.Builder
	fmt.Fprintf(&t, "\n### %d idle nodes\n\n", rows[0].Nodes)
	line(&t, "scheduler", "CPU to start, s", fmt.Sprintf("CPU in %.0f s, s", rows[0].IntervalSeconds), "memory, MiB", "without the program file, MiB", "peak, MiB")
	line(&t, "---", "---:", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		line(&t, r.Scheduler, fmt.Sprintf("%.2f", r.StartCPUSeconds), fmt.Sprintf("%.2f", r.CPUSeconds), fmt.Sprintf("%.0f", r.MiB), fmt.Sprintf("%.0f", r.OwnMiB), fmt.Sprintf("%.0f", r.PeakMiB))
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

// spread prints the lowest and the highest of figures.
func spread(values []float64, digits int) string {
	low, high := number(slices.Min(values), digits), number(slices.Max(values), digits)
	if low == high {
		return low
	}
	return low + " to " + high
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// ratio is how many times b is in a, "" for a row beside itself and where there is none.
func ratio(a, b float64) string {
	if a == b || a == 0 || b == 0 || math.IsNaN(a/b) || math.IsInf(a/b, 0) {
		return ""
	}
	return strconv.FormatFloat(a/b, 'f', 1, 64) + "×"
}

// share is what part a is of b.
func share(a, b float64, digits int) string {
	if a == b || b == 0 {
		return ""
	}
	return strconv.FormatFloat(100*a/b, 'f', digits, 64) + " %"
}

func milliseconds(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", 1000*seconds)
}
