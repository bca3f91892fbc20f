package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
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
func (b *bench) startIdle(ctx context.Context, s scheduler, c *cluster) (*process, error) {
	p, err := s.start(c, b.options())
	if err != nil {
		return nil, err
	}
	var before time.Duration
	for range 10 {
		pause(ctx, time.Second)
		now, err := p.cpu()
		if err != nil {
			p.stop()
			return nil, err
		}
		if now-before < 5*tick {
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
func (b *bench) profile(p *process) func() {
	if b.profiles == "" {
		return func() {}
	}
	port := ""
	for _, arg := range p.command.Args {
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
			file, err := os.Create(filepath.Join(b.profiles, p.name+".pprof"))
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
// turns, and prints the table.
func (b *bench) compareThroughput(ctx context.Context, nodes int, w shape, series string, repeat int) error {
	var rows []throughput
	take := func(row throughput, err error) error {
		if err != nil {
			return fmt.Errorf("%s, %s, %s: %w", row.Scheduler, w, series, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %d nodes, %s, %s: %s\n", row.Scheduler, nodes, w, series, row.progress())
		rows = append(rows, row)
		return nil
	}
	for turn := range repeat {
		for _, s := range b.schedulers {
			if turn > 0 && !b.repeated(s.name) {
				continue
			}
			if err := take(b.throughputRun(ctx, s, nodes, w, series)); err != nil {
				return err
			}
		}
		if series == ownCores && (turn == 0 || b.repeated(ceilingName)) {
			if err := take(b.ceilingRun(ctx, nodes, w)); err != nil {
				return err
			}
		}
	}
	b.results.Throughput = append(b.results.Throughput, rows...)
	for _, c := range (results{Throughput: rows}).cases() {
		fmt.Print(c.table())
	}
	return nil
}

func (b *bench) compareWaiting(ctx context.Context, nodes int, w shape, interval time.Duration) error {
	var rows []waiting
	for _, s := range b.schedulers {
		r, err := b.waitingRun(ctx, s, nodes, w, interval)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", s.name, w, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %d nodes, %s: %s\n", s.name, nodes, w, r.progress())
		rows = append(rows, r)
	}
	b.results.Waiting = append(b.results.Waiting, rows...)
	fmt.Print(waitingTable(rows))
	return nil
}

func (b *bench) compareIdle(ctx context.Context, nodes int, interval time.Duration) error {
	rows, err := b.idleRun(ctx, nodes, interval)
	if err != nil {
		return err
	}
	b.results.Idle = append(b.results.Idle, rows...)
	fmt.Print(idleTable(rows))
	return nil
}
