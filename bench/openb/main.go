// Command openb replays pod lists of Alibaba's openb trace twice, by the protocol of package
// internal/openb: through the planner in memory, and through what users run, the local platform
// with simulated nodes and the bundled scheduler, which learns the requests as they arrive. It
// prints how much of the GPUs both allocate, and the difference.
//
// Both decide alike, pod by pod, but for pods without GPUs: of more than a hundred nodes
// kube-scheduler scores a part for these. An interrupt ends the platform.
//
//	make bench-openb
//	go run ./bench/openb -nodes node_list.csv pod_list_default.csv pod_list_gpushare100.csv
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb/replay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "openb:", err)
		os.Exit(1)
	}
}

// bench is what all replays share.
type bench struct {
	// bin is the folder of the programs.
	bin  string
	seed int64
	// inFlight is how many pods may be undecided at a time.
	inFlight int
	progress io.Writer
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("openb", flag.ContinueOnError)
	nodes := flags.String("nodes", "", "node list of the trace; .gz is unpacked")
	demand := flags.Float64("demand", 1.3, "GPUs that the arriving pods ask for, in parts of the cluster's")
	every := flags.Int("every", 1, "take every so many-th machine of the list only")
	b := bench{progress: progress}
	flags.StringVar(&b.bin, "bin", "bin", "folder of the programs, which make build fills")
	flags.Int64Var(&b.seed, "seed", 42, "seed of the order in which pods arrive")
	flags.IntVar(&b.inFlight, "in-flight", 16, "how many pods may be undecided at a time")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	if *nodes == "" || flags.NArg() == 0 || *every < 1 || b.inFlight < 1 {
		return errors.New("give a node list with -nodes and at least one pod list; -every and -in-flight are 1 or more")
	}
	var rows []row
	for _, file := range flags.Args() {
		trace, err := openb.Read(*nodes, file, *demand)
		if err != nil {
			return err
		}
		trace.Every(*every)
		r, err := b.compare(ctx, replay.Replay{Trace: trace})
		if err != nil {
			err = fmt.Errorf("replay %s: %w", trace.Name, err)
			if len(rows) > 0 {
				err = errors.Join(err, printTable(out, rows))
			}
			return err
		}
		rows = append(rows, r)
	}
	return printTable(out, rows)
}

// row is a trace, replayed both ways.
type row struct {
	trace            string
	pods             int
	memory, platform course
	// elsewhere are the pods that one of the two has dropped, or placed on another node.
	elsewhere int
	took      time.Duration
}

// compare replays a trace both ways.
func (b *bench) compare(ctx context.Context, r replay.Replay) (row, error) {
	start := time.Now()
	curves, err := r.Seeds(b.seed, b.seed)
	if err != nil {
		return row{}, err
	}
	list := r.Arrivals(b.seed)
	nodes, err := b.onPlatform(ctx, r, list)
	if err != nil {
		return row{}, err
	}
	result := row{
		trace: r.Name, pods: len(list), took: time.Since(start),
		memory: courseOf(r.Trace, list, curves[0].Nodes), platform: courseOf(r.Trace, list, nodes),
	}
	for i, node := range nodes {
		if node == curves[0].Nodes[i] {
			continue
		}
		if result.elsewhere++; result.elsewhere == 1 {
			fmt.Fprintf(b.progress, "%s: pod %d, which asks for %d GPUs, is the first that is elsewhere: %q, in memory %q\n",
				r.Name, i, list[i].GPUs, node, curves[0].Nodes[i])
		}
	}
	return result, nil
}

// course is the allocated part of all GPUs; index i is at i percent of arrived demand.
type course []float64

// courseOf measures where the pods of a list went, "" for nowhere.
func courseOf(trace *openb.Trace, list []openb.Pod, nodes []string) course {
	meter := trace.Meter()
	c := course{0}
	for i, p := range list {
		meter.Arrive(p, nodes[i] != "")
		for len(c) <= meter.Demand() {
			c = append(c, meter.Allocated())
		}
	}
	return c
}

// tableAt are the percents of arrived demand that the table shows.
var tableAt = [...]int{95, 100, 130}

func printTable(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "trace\tpods\telsewhere\t")
	for _, at := range tableAt {
		fmt.Fprintf(w, "memory@%d\tplatform@%d\tdifference\t", at, at)
	}
	fmt.Fprintln(w, "time\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t", r.trace, r.pods, r.elsewhere)
		for _, at := range tableAt {
			if at < len(r.memory) {
				fmt.Fprintf(w, "%.2f\t%.2f\t%+.2f\t", r.memory[at], r.platform[at], r.platform[at]-r.memory[at])
			} else {
				fmt.Fprint(w, "-\t-\t-\t")
			}
		}
		fmt.Fprintf(w, "%s\t\n", r.took.Round(time.Second))
	}
	return w.Flush()
}
