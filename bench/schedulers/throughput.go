package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
)

// The series: pods are created while the scheduler runs, or all of them exist before it
// starts; in the last, API server and etcd have one core for themselves, and the
// scheduler another, which it shares with this program.
const (
	live     = "live"
	backlog  = "backlog first"
	ownCores = "a core each"
)

// throughput is how one scheduler bound one workload, once.
type throughput struct {
	conditions
	Scheduler string `json:"scheduler"`
	Nodes     int    `json:"nodes"`
	Workload  string `json:"workload"`
	Series    string `json:"series"`
	Pods      int    `json:"pods"`
	// Members is the size of a gang, 1 for pods on their own.
	Members int `json:"members"`
	Bound   int `json:"bound"`
	// GaveUp means that not all pods were bound in time.
	GaveUp bool `json:"gaveUp,omitempty"`
	// WholeGangs and PartialGangs count gangs that are bound entirely or in part.
	WholeGangs   int `json:"wholeGangs"`
	PartialGangs int `json:"partialGangs"`
	// Seconds from the first pod's creation, or the scheduler's start, to the last bind, or
	// to the end of a run that was given up.
	Seconds float64 `json:"seconds"`
	// LastSeconds is from the creation of the last pod to the last bind.
	LastSeconds float64 `json:"lastSeconds,omitempty"`
	// BindingSeconds is from the first bind to the last.
	BindingSeconds float64 `json:"bindingSeconds"`
	// MedianSeconds and P99Seconds are from a pod's creation to its bind.
	MedianSeconds float64 `json:"medianSeconds"`
	P99Seconds    float64 `json:"p99Seconds"`
	// CPUSeconds is the scheduler's, from the start of the series until it has settled
	// after the last bind; in the series "backlog first" with its start.
	CPUSeconds float64 `json:"cpuSeconds"`
	// StartCPUSeconds is what the scheduler had used when it was ready and idle (live only).
	StartCPUSeconds float64 `json:"startCPUSeconds,omitempty"`
	PeakMiB         float64 `json:"peakMiB"`
	// SchedulerCores and ServerCores are the cores that the scheduler, and API server
	// with etcd, kept busy on average until the last bind.
	SchedulerCores float64 `json:"schedulerCores"`
	ServerCores    float64 `json:"serverCores"`
}

func (t throughput) perSecond() float64 { return float64(t.Bound) / t.Seconds }

// cpuPerPod is in milliseconds.
func (t throughput) cpuPerPod() float64 { return 1000 * t.CPUSeconds / float64(t.Bound) }

// settle is how long the scheduler may work on after the last bind, on events and
// status, for its CPU time to count.
const settle = time.Second

// throughputRun measures one workload on a fresh cluster.
func (b *bench) throughputRun(ctx context.Context, s scheduler, nodes int, w shape, series string) (throughput, error) {
	result := newThroughput(s.name, nodes, w, series)
	var err error
	result.conditions, err = b.onCluster(ctx, s, nodes, series == ownCores, func(ctx context.Context, c *cluster, o *observer) error {
		if err := c.createGroups(ctx, s, "job", w); err != nil {
			return err
		}
		var p *process.Process
		var err error
		var before clocks
		if series == live {
			if p, err = b.startIdle(ctx, s, c); err != nil {
				return err
			}
			defer p.Stop()
			if before, err = read(p, c); err != nil {
				return err
			}
			result.StartCPUSeconds = before.scheduler.Seconds()
			if err := c.createPods(ctx, s, "job", w); err != nil {
				return err
			}
		} else {
			if err := c.createPods(ctx, s, "job", w); err != nil {
				return err
			}
			if err := o.awaitSeen(ctx, w.pods()); err != nil {
				return err
			}
			if before, err = read(nil, c); err != nil {
				return err
			}
			if p, err = s.start(c, b.options()); err != nil {
				return err
			}
			defer p.Stop()
		}
		defer b.profile(p)()
		if err := o.awaitBound(ctx, w.pods(), b.limit/2, b.limit, p, c.api, c.etcd); err != nil {
			return err
		}
		return result.measure(ctx, p, c, o, before)
	})
	return result, err
}

// measure fills in the result once the last pod is bound.
func (t *throughput) measure(ctx context.Context, p *process.Process, c *cluster, o *observer, before clocks) error {
	after, err := read(p, c)
	if err != nil {
		return err
	}
	at := after.at
	wall := at.Sub(before.at).Seconds()
	t.SchedulerCores = (after.scheduler - before.scheduler).Seconds() / wall
	t.ServerCores = (after.server - before.server).Seconds() / wall
	pause(ctx, settle)
	if after, err = read(p, c); err != nil {
		return err
	}
	t.CPUSeconds = (after.scheduler - before.scheduler).Seconds()
	if t.PeakMiB, err = p.MiB("VmHWM"); err != nil {
		return err
	}
	t.summarise(o.records(), before.at, at)
	return nil
}

func newThroughput(scheduler string, nodes int, w shape, series string) throughput {
	return throughput{Scheduler: scheduler, Nodes: nodes, Workload: w.String(), Series: series, Pods: w.pods(), Members: w.members}
}

// summarise computes times from what the watch has shown until a moment.
func (t *throughput) summarise(records []record, start, end time.Time) {
	var first, last, created time.Time
	var waits []float64
	gangs := map[string][2]int{}
	for _, r := range records {
		gang := gangs[r.name[:strings.LastIndexByte(r.name, '-')]]
		gang[0]++
		if r.created.After(created) {
			created = r.created
		}
		if !r.bound.IsZero() {
			gang[1]++
			waits = append(waits, r.bound.Sub(r.created).Seconds())
			if first.IsZero() || r.bound.Before(first) {
				first = r.bound
			}
			if r.bound.After(last) {
				last = r.bound
			}
		}
		gangs[r.name[:strings.LastIndexByte(r.name, '-')]] = gang
	}
	for _, gang := range gangs {
		switch gang[1] {
		case 0:
		case gang[0]:
			t.WholeGangs++
		default:
			t.PartialGangs++
		}
	}
	t.Bound = len(waits)
	t.GaveUp = t.Bound < t.Pods
	t.Seconds = end.Sub(start).Seconds()
	if t.Bound == 0 {
		return
	}
	if !t.GaveUp {
		t.Seconds = last.Sub(start).Seconds()
	}
	t.BindingSeconds = last.Sub(first).Seconds()
	t.LastSeconds = last.Sub(created).Seconds()
	slices.Sort(waits)
	t.MedianSeconds, t.P99Seconds = waits[len(waits)/2], waits[len(waits)*99/100]
}

// clocks are the CPU times of the processes at a moment.
type clocks struct {
	at                time.Time
	scheduler, server time.Duration
}

// read reads the clocks; p is nil while the scheduler does not run.
func read(p *process.Process, c *cluster) (clocks, error) {
	now := clocks{at: time.Now()}
	for _, server := range []*process.Process{c.api, c.etcd} {
		used, err := server.CPU()
		if err != nil {
			return now, err
		}
		now.server += used
	}
	if p == nil {
		return now, nil
	}
	var err error
	now.scheduler, err = p.CPU()
	return now, err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// progress is one line about the result.
func (t throughput) progress() string {
	return fmt.Sprintf("%d of %d bound in %.1f s, %.2f s after the last was created, %.2f ms CPU per pod, server %.2f cores",
		t.Bound, t.Pods, t.Seconds, t.LastSeconds, t.cpuPerPod(), t.ServerCores)
}
