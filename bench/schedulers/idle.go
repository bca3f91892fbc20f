package main

import (
	"context"
	"time"
)

// idling is what a scheduler uses while nothing happens.
type idling struct {
	Scheduler       string  `json:"scheduler"`
	Nodes           int     `json:"nodes"`
	StartCPUSeconds float64 `json:"startCPUSeconds"`
	IntervalSeconds float64 `json:"intervalSeconds"`
	CPUSeconds      float64 `json:"cpuSeconds"`
	MiB             float64 `json:"mib"`
	PeakMiB         float64 `json:"peakMiB"`
}

// idleRun starts a scheduler beside idle nodes and looks at it for a while.
func (b *bench) idleRun(ctx context.Context, s scheduler, nodes int, interval time.Duration) (idling, error) {
	result := idling{Scheduler: s.name, Nodes: nodes, IntervalSeconds: interval.Seconds()}
	err := b.onCluster(ctx, s, nodes, func(ctx context.Context, c *cluster, _ *observer) error {
		p, err := b.startIdle(ctx, s, c)
		if err != nil {
			return err
		}
		defer p.stop()
		before, err := p.cpu()
		if err != nil {
			return err
		}
		pause(ctx, interval)
		after, err := p.cpu()
		if err != nil {
			return err
		}
		result.StartCPUSeconds, result.CPUSeconds = before.Seconds(), (after - before).Seconds()
		if result.MiB, err = p.memory("VmRSS"); err != nil {
			return err
		}
		result.PeakMiB, err = p.memory("VmHWM")
		return err
	})
	return result, err
}
