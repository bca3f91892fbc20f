package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// inShort is what was aimed at and what came out, against the best scheduler that
// places gangs.
func (r results) inShort() string {
	if len(r.Throughput) == 0 || len(r.Waiting) == 0 || len(r.Idle) == 0 {
		return ""
	}
	var t strings.Builder
	line(&t, "what", "aim", "measured")
	line(&t, "---", "---", "---")
	speeds := map[string][]string{}
	var limits []string
	type saving struct {
		times float64
		text  string
	}
	var savings []saving
	var gang512 *throughput
	for _, c := range r.cases() {
		ours, name := c.ours(), fmt.Sprintf("%s on %d nodes", strings.TrimSuffix(c.Workload, " × 1 GPU"), c.Nodes)
		var beside string
		if fastest := c.best(func(t throughput) float64 { return -t.perSecond() }); fastest != nil {
			beside = ratio(ours.perSecond(), fastest.perSecond()) + " " + fastest.Scheduler
		} else if stuck := c.rivals(); len(stuck) > 0 && !ours.GaveUp {
			beside = "ours alone finishes, not " + strings.Join(stuck, ", ")
		}
		if beside != "" {
			speeds[c.Series] = append(speeds[c.Series], fmt.Sprintf("%s: %s, with API server at %.2f and ours at %.2f of two cores",
				name, beside, ours.ServerCores, ours.SchedulerCores))
		}
		if cheapest := c.best(throughput.cpuPerPod); cheapest != nil {
			times := cheapest.cpuPerPod() / ours.cpuPerPod()
			savings = append(savings, saving{times, fmt.Sprintf("%.1f× less than %s (%s, %s)", times, cheapest.Scheduler, name, c.Series)})
		}
		if limit := c.of(ceilingName); limit != nil && c.Series == ownCores {
			limits = append(limits, fmt.Sprintf("%s: %s, API server %.2f, scheduler %.2f of a core", name,
				share(ours.perSecond(), limit.median.perSecond(), 0), ours.ServerCores, ours.SchedulerCores))
		}
		if c.Series == live && ours.Members == 512 && ours.Pods == 512 {
			gang512 = &ours
		}
	}
	line(&t, "backlog, pods bound per second", "twice, where the scheduler is the limit", strings.Join(speeds[backlog], "<br>"))
	line(&t, "live, pods bound per second", "as fast as pods are created", strings.Join(speeds[live], "<br>"))
	line(&t, "a core each: part of what API server and etcd can take at all", "all of it", strings.Join(limits, "<br>"))
	byTimes := func(a, b saving) int { return cmp.Compare(a.times, b.times) }
	if len(savings) > 0 {
		line(&t, "scheduler CPU per bound pod", "half", "from "+slices.MinFunc(savings, byTimes).text+"<br>to "+slices.MaxFunc(savings, byTimes).text)
	}
	var ours waiting
	var others []waiting
	for _, w := range r.Waiting {
		switch {
		case w.Scheduler == schedulers()[0].name:
			ours = w
		case slices.Contains(rivals(), w.Scheduler):
			others = append(others, w)
		}
	}
	if len(others) > 0 {
		least := slices.MinFunc(others, func(a, b waiting) int { return cmp.Compare(a.CPUSeconds, b.CPUSeconds) })
		line(&t, "CPU while infeasible gangs wait", "5 % of the best", share(ours.CPUSeconds, least.CPUSeconds, 1)+" of "+least.Scheduler)
	}
	line(&t, "verdict about a gang that does not fit", "100 ms", fmt.Sprintf("%s ms on the first member, %s ms on all", milliseconds(ours.FirstVerdictSeconds), milliseconds(ours.LastVerdictSeconds)))
	if gang512 != nil {
		line(&t, "one gang of 512 pods with eight GPUs each", "2 s of scheduler time", fmt.Sprintf("%.2f s from the creation of its last member to the last bind, %.2f s of scheduler CPU, %.2f s with the creation of the pods", gang512.LastSeconds, gang512.CPUSeconds, gang512.Seconds))
	}
	var memory, cpu []string
	for _, i := range r.Idle {
		memory, cpu = append(memory, fmt.Sprintf("%s %.0f (%.0f)", i.Scheduler, i.MiB, i.OwnMiB)), append(cpu, fmt.Sprintf("%s %.2f", i.Scheduler, i.CPUSeconds))
	}
	line(&t, fmt.Sprintf("%d idle nodes", r.Idle[0].Nodes), "less than Volcano and Koordinator",
		fmt.Sprintf("MiB, in brackets without the program file: %s<br>CPU seconds in %.0f s: %s", strings.Join(memory, ", "), r.Idle[0].IntervalSeconds, strings.Join(cpu, ", ")))
	return t.String()
}

// rivals are the names of the others that place gangs.
func rivals() []string {
	var names []string
	for _, s := range schedulers() {
		if s.group != nil && s.program != contract.SchedulerName {
			names = append(names, s.name)
		}
	}
	return names
}

// rivals are the names of those that were measured.
func (c comparison) rivals() []string {
	return slices.DeleteFunc(rivals(), func(name string) bool { return c.of(name) == nil })
}

// best is the rival's run for which a figure is lowest, nil when none has bound all pods.
func (c comparison) best(figure func(throughput) float64) *throughput {
	var best *throughput
	for _, name := range c.rivals() {
		if run := &c.of(name).median; !run.GaveUp && (best == nil || figure(*run) < figure(*best)) {
			best = run
		}
	}
	return best
}
