package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
)

// onCluster calls measure with a fresh cluster of nodes for a scheduler, prepared for
// others too, and returns under which conditions it ran.
func (b *bench) onCluster(ctx context.Context, s scheduler, nodes int, apart bool, measure func(context.Context, *cluster, *observer) error, others ...scheduler) (conditions, error) {
	return under(b.bin, func() error {
		dir, err := os.MkdirTemp(b.work, "run-")
		if err != nil {
			return err
		}
		c, err := startCluster(ctx, b.bin, dir, apart)
		if err != nil {
			return err
		}
		defer c.stop()
		for _, s := range append(others, s) {
			if err := s.install(ctx, c); err != nil {
				return fmt.Errorf("install %s: %w", s.name, err)
			}
		}
		if err := c.createNodes(ctx, s, nodes); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // clients end before their server
		o, err := observe(ctx, c)
		if err != nil {
			return err
		}
		return measure(ctx, c, o)
	})
}

// startIdle starts a scheduler and waits until it has taken in the cluster: its CPU
// clock stands still for a second, or has gone on for ten.
func (b *bench) startIdle(ctx context.Context, s scheduler, c *cluster) (*process.Process, error) {
	p, err := s.start(c, b.options())
	if err != nil {
		return nil, err
	}
	var before time.Duration
	for range 10 {
		pause(ctx, time.Second)
		now, err := p.CPU()
		if err != nil {
			p.Stop()
			return nil, err
		}
		if now-before < 5*process.Tick {
			break
		}
		before = now
	}
	return p, ctx.Err()
}

func (b *bench) options() runOptions {
	o := runOptions{period: b.passes}
	if b.profiles != "" {
		if ports, err := freePorts(1); err == nil {
			o.port = ports[0]
		}
	}
	return o
}

// profile takes a CPU profile of the scheduler until the returned function is called.
func (b *bench) profile(p *process.Process) func() {
	if b.profiles == "" {
		return func() {}
	}
	port := ""
	for _, arg := range p.Args() {
		if value, ok := strings.CutPrefix(arg, "--secure-port="); ok {
			port = value
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a loopback address of a child process
		for range 50 {
			response, err := client.Get("https://127.0.0.1:" + port + "/debug/pprof/profile?seconds=8")
			if err != nil {
				time.Sleep(50 * time.Millisecond) // the port is not open yet
				continue
			}
			file, err := os.Create(filepath.Join(b.profiles, p.Name()+".pprof"))
			if err == nil {
				_, _ = io.Copy(file, response.Body) // a short profile is seen when it is read
				_ = file.Close()
			}
			_ = response.Body.Close()
			return
		}
	}()
	return func() { <-done }
}

// compareThroughput measures a workload with all schedulers, those that are repeated in
// turns, and prints the table. A run that fails does not keep the others from theirs.
func (b *bench) compareThroughput(ctx context.Context, nodes int, w shape, series string, repeat int) error {
	var all results
	var failures error
	take := func(row throughput, err error) {
		if err == nil {
			fmt.Fprintf(os.Stderr, "%s: %d nodes, %s, %s: %s\n", row.Scheduler, nodes, w, series, row.progress())
			all.Throughput = append(all.Throughput, row)
			err = results{Throughput: []throughput{row}}.add(b.out)
		}
		failures = failed(failures, err, row.Scheduler, w, series)
	}
	for turn := range repeat {
		for _, s := range b.schedulers {
			if (turn == 0 || b.repeated(s.name)) && ctx.Err() == nil {
				take(b.throughputRun(ctx, s, nodes, w, series))
			}
		}
		if series == ownCores && (turn == 0 || b.repeated(ceilingName)) && ctx.Err() == nil {
			take(b.ceilingRun(ctx, nodes, w))
		}
	}
	for _, c := range all.cases() {
		fmt.Print(c.table())
	}
	return failures
}

func (b *bench) compareWaiting(ctx context.Context, nodes int, w shape, interval time.Duration) error {
	var rows []waiting
	var failures error
	for _, s := range b.schedulers {
		if ctx.Err() != nil {
			break
		}
		r, err := b.waitingRun(ctx, s, nodes, w, interval)
		if err == nil {
			fmt.Fprintf(os.Stderr, "%s: %d nodes, %s: %s\n", s.name, nodes, w, r.progress())
			rows = append(rows, r)
			err = results{Waiting: []waiting{r}}.add(b.out)
		}
		failures = failed(failures, err, s.name, w, "waiting")
	}
	fmt.Print(waitingTable(rows))
	return failures
}

// failed adds what went wrong in a run, if anything, to the failures before it.
func failed(failures, err error, scheduler string, w shape, series string) error {
	if err == nil {
		return failures
	}
	err = fmt.Errorf("%s, %s, %s: %w", scheduler, w, series, err)
	fmt.Fprintln(os.Stderr, err)
	return errors.Join(failures, err)
}

func (b *bench) compareIdle(ctx context.Context, nodes int, interval time.Duration) error {
	rows, err := b.idleRun(ctx, nodes, interval)
	if err != nil {
		return err
	}
	fmt.Print(idleTable(rows))
	return results{Idle: rows}.add(b.out)
}
