package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
)

// idling is what a scheduler uses while nothing happens.
type idling struct {
	conditions
	Scheduler string `json:"scheduler"`
	Nodes     int    `json:"nodes"`
	// StartCPUSeconds is what the scheduler had used when the interval began.
	StartCPUSeconds float64 `json:"startCPUSeconds"`
	IntervalSeconds float64 `json:"intervalSeconds"`
	CPUSeconds      float64 `json:"cpuSeconds"`
	MiB             float64 `json:"mib"`
	// OwnMiB is the part that is not the program file, which replicas on a node share.
	OwnMiB  float64 `json:"ownMiB"`
	PeakMiB float64 `json:"peakMiB"`
}

// idleRun starts all schedulers beside one cluster of idle nodes, one after the other,
// and looks at all of them for the same while.
func (b *bench) idleRun(ctx context.Context, nodes int, interval time.Duration) ([]idling, error) {
	rows := make([]idling, len(b.schedulers))
	first, others := b.schedulers[0], b.schedulers[1:]
	under, err := b.onCluster(ctx, first, nodes, false, func(ctx context.Context, c *cluster, _ *observer) error {
		running := make([]*process.Process, len(rows))
		for i, s := range b.schedulers {
			fmt.Fprintf(os.Stderr, "start %s beside %d idle nodes\n", s.name, nodes)
			p, err := b.startIdle(ctx, s, c)
			if err != nil {
				return err
			}
			defer p.Stop()
			running[i] = p
		}
		for i, p := range running {
			used, err := p.CPU()
			if err != nil {
				return err
			}
			rows[i] = idling{Scheduler: b.schedulers[i].name, Nodes: nodes, IntervalSeconds: interval.Seconds(), StartCPUSeconds: used.Seconds()}
		}
		pause(ctx, interval)
		for i, p := range running {
			if err := rows[i].finish(p); err != nil {
				return err
			}
		}
		return nil
	}, others...)
	for i := range rows {
		rows[i].conditions = under
	}
	return rows, err
}

// finish reads what a scheduler has used since the interval began.
func (r *idling) finish(p *process.Process) error {
	used, err := p.CPU()
	if err != nil {
		return err
	}
	r.CPUSeconds = used.Seconds() - r.StartCPUSeconds
	if r.MiB, err = p.MiB("VmRSS"); err != nil {
		return err
	}
	if r.OwnMiB, err = p.MiB("RssAnon"); err != nil {
		return err
	}
	r.PeakMiB, err = p.MiB("VmHWM")
	return err
}
