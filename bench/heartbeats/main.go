// Command heartbeats measures what the node agents of a large cluster cost its API server while nothing happens: one API server, in a
// process of its own with etcd, and for each node an agent with a connection and watches of its own, as it runs on a node. It prints
// the requests of a node, the time that the API server takes for them, and what it takes in CPU and memory, beside the renewals of
// their leases by the kubelets of as many nodes.
//
//	make bench-heartbeats
//	go run ./bench/heartbeats -nodes 500 -for 15m
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := run
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		run = serve
	}
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "heartbeats:", err)
		os.Exit(1)
	}
}

// quiet is for how long the API server is measured without agents, and after their start until the measured time begins.
const quiet = 30 * time.Second

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("heartbeats", flag.ContinueOnError)
	nodes := flags.Int("nodes", 5000, "how many nodes there are, each with an agent")
	length := flags.Duration("for", time.Hour, "how long the nodes are quiet")
	machine := flags.String("machine", "internal/gpu/testdata/topologies/hgx-h100.json", "description of the GPUs of a node")
	renewals := flags.Int("renewals", 20000, "how many leases are renewed to measure what that costs")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	if *nodes < 1 || *renewals < 1 {
		return errors.New("-nodes and -renewals have to be 1 at least")
	}
	if *length < contract.HeartbeatInterval {
		return fmt.Errorf("-for is %s: a node sends a heartbeat every %s, so it has to be that long at least", *length, contract.HeartbeatInterval)
	}
	data, err := os.ReadFile(*machine)
	if err != nil {
		return fmt.Errorf("read the GPUs of a node: %w", err)
	}
	gpus, err := gpu.ParseMachine(data)
	if err != nil {
		return fmt.Errorf("GPUs of a node in %s: %w", *machine, err)
	}
	dir, err := os.MkdirTemp("", "heartbeats-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Stop()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, kubeconfigFile))
	if err != nil {
		return err
	}
	config.QPS = -1
	b := &bench{config: config, server: server, progress: progress, machine: gpus, nodes: *nodes}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.measure(ctx, *length, *renewals); err != nil {
		return err
	}
	return b.report(out, *length)
}

// bench is one run.
type bench struct {
	config   *rest.Config
	server   *process.Process
	progress io.Writer
	machine  gpu.Machine
	nodes    int

	idle, start, hour, leases interval
	requests                  *requests
}

// interval is what the API server has taken in some time.
type interval struct {
	wall, cpu time.Duration
	// memoryMiB is its resident memory at the end.
	memoryMiB float64
	// writes are the requests of which the CPU time is.
	writes int
}

// prepare installs what the agents need, and makes the nodes.
func (b *bench) prepare(ctx context.Context) error {
	client, err := kube.New(b.config)
	if err != nil {
		return err
	}
	objects, err := deploy.Objects(deploy.Options{Image: contract.NodeAgentName})
	if err != nil {
		return err
	}
	if err := client.ApplyAll(ctx, objects, nil); err != nil {
		return fmt.Errorf("install the node agent's objects: %w", err)
	}
	b.say("making %d nodes", b.nodes)
	return b.makeNodes(ctx)
}

// measure runs the agents.
func (b *bench) measure(ctx context.Context, length time.Duration, renewals int) (err error) {
	if b.idle, err = b.during(func() error { return pause(ctx, quiet) }); err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	agents := &agents{requests: newRequests()}
	defer func() {
		end()
		agents.running.Wait()
	}()
	if b.start, err = b.during(func() error { return b.startAgents(running, agents) }); err != nil {
		return err
	}
	b.start.writes = agents.requests.count(written)
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	b.say("%d nodes are quiet for %s from now on", b.nodes, length)
	agents.requests.reset()
	if b.hour, err = b.during(func() error { return pause(ctx, length) }); err != nil {
		return err
	}
	b.requests = agents.requests.taken()
	b.hour.writes = b.requests.count(written)
	b.say("renewing %d leases", renewals)
	b.leases, err = b.during(func() error { return b.renew(ctx, renewals) })
	b.leases.writes = renewals
	return err
}

// during measures the API server while something is done.
func (b *bench) during(do func() error) (interval, error) {
	began := time.Now()
	before, err := b.server.CPU()
	if err != nil {
		return interval{}, err
	}
	if err := do(); err != nil {
		return interval{}, err
	}
	after, err1 := b.server.CPU()
	memory, err2 := b.server.MiB("VmRSS")
	return interval{wall: time.Since(began), cpu: after - before, memoryMiB: memory}, errors.Join(err1, err2)
}

// cores is how many cores the API server has used beyond what it uses without agents.
func (b *bench) cores(of interval) float64 {
	return of.cpu.Seconds()/of.wall.Seconds() - b.idle.cpu.Seconds()/b.idle.wall.Seconds()
}

// perWrite is the CPU time of a write, without what the API server uses anyway.
func (b *bench) perWrite(of interval) time.Duration {
	return time.Duration(b.cores(of) * float64(of.wall) / float64(max(of.writes, 1)))
}

// What a kubelet asks of the API server on a quiet node: its lease every ten seconds.
// https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats
const leasesPerHour = 360

func (b *bench) report(out io.Writer, length time.Duration) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("nodes", "%d, of %d GPUs", b.nodes, len(b.machine.GPUs))
	row("start of all agents", "%.0f s, %d writes, %.0f s of CPU", b.start.wall.Seconds(), b.start.writes, b.start.cpu.Seconds())
	row("memory of the API server with etcd", "%.0f MiB, %.0f MiB with the agents, %.0f MiB at the end", b.idle.memoryMiB, b.start.memoryMiB, b.hour.memoryMiB)
	for _, kind := range b.requests.kinds() {
		row("requests: "+kind, "%d, %.2f of a node in an hour", b.requests.count(kind), float64(b.requests.count(kind))/float64(b.nodes)/length.Hours())
	}
	row("requests that failed", "%d", b.requests.failed())
	p50, p99, most := b.requests.latency()
	row("time of a write", "%s (p50), %s (p99), %s at most", round(p50), round(p99), round(most))
	row("the API server used", "%.2f cores; without agents %.2f", b.hour.cpu.Seconds()/b.hour.wall.Seconds(), b.idle.cpu.Seconds()/b.idle.wall.Seconds())
	row("CPU of a heartbeat, watches included", "%s", round(b.perWrite(b.hour)))
	row("CPU of the renewal of a lease", "%s", round(b.perWrite(b.leases)))
	kubelets := b.perWrite(b.leases).Seconds() * leasesPerHour * float64(b.nodes) / time.Hour.Seconds()
	row("kubelets' leases of as many nodes", "%.2f cores: the agents use %.1f %% of that", kubelets, 100*b.cores(b.hour)/kubelets)
	return table.Flush()
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
