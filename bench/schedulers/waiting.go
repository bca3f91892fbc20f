package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// waiting is what a scheduler does while gangs wait that do not fit.
type waiting struct {
	conditions
	Scheduler    string `json:"scheduler"`
	Nodes        int    `json:"nodes"`
	Workload     string `json:"workload"`
	WholeGangs   int    `json:"wholeGangs"`
	PartialGangs int    `json:"partialGangs"`
	// IntervalSeconds is how long was looked at, once nothing was bound any more.
	IntervalSeconds float64 `json:"intervalSeconds"`
	// CPUSeconds and ServerCPUSeconds were used in it by the scheduler, and by API server and etcd.
	CPUSeconds       float64 `json:"cpuSeconds"`
	ServerCPUSeconds float64 `json:"serverCPUSeconds"`
	// FirstVerdictSeconds is from the creation of the last member of one more gang that
	// does not fit until a member says why it waits, LastVerdictSeconds until all do; 0
	// when that does not happen.
	FirstVerdictSeconds float64 `json:"firstVerdictSeconds"`
	LastVerdictSeconds  float64 `json:"lastVerdictSeconds"`
	Verdict             string  `json:"verdict"`
}

const (
	// quiet is how long no pod was bound before the interval begins.
	quiet = 4 * time.Second
	// verdictTime bounds the wait for a verdict.
	verdictTime = 10 * time.Second
)

// waitingRun fills a cluster with more gangs than fit, and looks at those that wait.
func (b *bench) waitingRun(ctx context.Context, s scheduler, nodes int, w shape, interval time.Duration) (waiting, error) {
	result := waiting{Scheduler: s.name, Nodes: nodes, Workload: w.String(), IntervalSeconds: interval.Seconds()}
	var err error
	result.conditions, err = b.onCluster(ctx, s, nodes, false, func(ctx context.Context, c *cluster, o *observer) error {
		p, err := b.startIdle(ctx, s, c)
		if err != nil {
			return err
		}
		defer p.Stop()
		if err := c.createGroups(ctx, s, "job", w); err != nil {
			return err
		}
		if err := c.createPods(ctx, s, "job", w); err != nil {
			return err
		}
		if err := o.awaitBound(ctx, w.pods(), quiet, b.limit, p, c.api, c.etcd); err != nil {
			return err
		}
		before, err := read(p, c)
		if err != nil {
			return err
		}
		pause(ctx, interval)
		after, err := read(p, c)
		if err != nil {
			return err
		}
		result.CPUSeconds = (after.scheduler - before.scheduler).Seconds()
		result.ServerCPUSeconds = (after.server - before.server).Seconds()
		var count throughput
		count.summarise(o.records(), before.at, after.at)
		result.WholeGangs, result.PartialGangs = count.WholeGangs, count.PartialGangs
		return b.verdict(ctx, s, c, o, w.members, w.gpus, &result)
	})
	return result, err
}

// verdict creates one more gang that does not fit and waits for what its pods say.
func (b *bench) verdict(ctx context.Context, s scheduler, c *cluster, o *observer, members, gpus int, result *waiting) error {
	w := shape{gangs: 1, members: members, gpus: gpus}
	if err := c.createGroups(ctx, s, "infeasible", w); err != nil {
		return err
	}
	if err := c.createPods(ctx, s, "infeasible", w); err != nil {
		return err
	}
	deadline := time.After(verdictTime)
	for {
		_, _, changed, err := o.state()
		if err != nil {
			return err
		}
		if result.say(o.records(), members) {
			return nil
		}
		select {
		case <-changed:
		case <-deadline:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say looks for the verdict on the members of the infeasible gang, and reports whether
// all have one. What was said while members were missing is none.
func (w *waiting) say(records []record, members int) bool {
	var created time.Time
	var gang []record
	for _, r := range records {
		if strings.HasPrefix(r.name, "infeasible-") {
			gang = append(gang, r)
			if r.created.After(created) {
				created = r.created
			}
		}
	}
	if len(gang) < members {
		return false
	}
	gang = slices.DeleteFunc(gang, func(r record) bool { return !r.said.After(created) })
	if len(gang) == 0 {
		return false
	}
	slices.SortFunc(gang, func(a, b record) int { return a.said.Compare(b.said) })
	w.FirstVerdictSeconds, w.Verdict = gang[0].said.Sub(created).Seconds(), gang[0].verdict
	if len(gang) < members {
		return false
	}
	w.LastVerdictSeconds = gang[members-1].said.Sub(created).Seconds()
	return true
}

func (w *waiting) progress() string {
	return fmt.Sprintf("%.2f s CPU in %.0f s, verdict after %.0f ms", w.CPUSeconds, w.IntervalSeconds, 1000*w.FirstVerdictSeconds)
}
