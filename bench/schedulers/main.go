// Command schedulers compares gpuplan's scheduler with others, on one machine, one
// after the other. Every run has a fresh control plane (etcd and kube-apiserver, each
// a process of its own), nodes without anything behind them, and one scheduler as a
// process. Times from a pod's creation to its bind come from one watch, for all alike.
//
//	make -C bench/schedulers run
//	bin/bench/schedulers -table throughput -nodes 500 -shapes 1000x4 -series "backlog first"
//
// It prints Markdown tables with ratios to ours, and writes all figures as JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench holds what all runs share.
type bench struct {
	bin, work string
	// passes is the pause between the passes of schedulers that work in passes.
	passes time.Duration
	// profiles is the folder for CPU profiles of the schedulers, "" for none.
	profiles string
	// ceiling adds to a backlog what API server and etcd can do without a scheduler.
	ceiling    bool
	schedulers []scheduler
	results    results
}

// results is the JSON that is written.
type results struct {
	Throughput []throughput `json:"throughput,omitempty"`
	Waiting    []waiting    `json:"waiting,omitempty"`
	Idle       []idling     `json:"idle,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "schedulers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	table := flag.String("table", "throughput", "what to measure: throughput, waiting, idle; or report, which prints all figures of the JSON file again")
	nodes := flag.Int("nodes", 500, "number of nodes, each with 8 cards")
	shapes := flag.String("shapes", "100x16,1000x4,4000x1", "workloads: GANGSxMEMBERS[xCARDS],...")
	series := flag.String("series", live+","+backlog, "series of the table throughput")
	names := flag.String("schedulers", "", "names of the schedulers to compare, all when empty")
	interval := flag.Duration("interval", 20*time.Second, "how long to look at schedulers that wait or idle")
	repeat := flag.Int("repeat", 1, "how often to measure; the run with the median time is shown")
	out := flag.String("json", "", "file to which all figures are added")
	charts := flag.String("charts", "", "folder for the charts of a report")
	b := &bench{}
	flag.StringVar(&b.bin, "bin", "bin/bench", "folder of the programs")
	flag.DurationVar(&b.passes, "passes", 100*time.Millisecond, "pause between the passes of schedulers that work in passes")
	flag.BoolVar(&b.ceiling, "ceiling", false, "also measure a backlog without a scheduler: how fast the API server takes bindings")
	flag.StringVar(&b.profiles, "profiles", "", "folder for CPU profiles of kube-schedulers with plugins")
	flag.Parse()

	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.schedulers, err = choose(*names); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "schedulers-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.work) }() // a leftover in the temporary folder does no harm

	var workloads []shape
	for _, text := range strings.Split(*shapes, ",") {
		w, err := parseShape(text)
		if err != nil {
			return err
		}
		workloads = append(workloads, w)
	}
	switch *table {
	case "throughput":
		for _, series := range strings.Split(*series, ",") {
			for _, w := range workloads {
				err = b.compareThroughput(ctx, *nodes, w, series, *repeat)
				if err != nil {
					return err
				}
			}
		}
	case "waiting":
		for _, w := range workloads {
			if err := b.compareWaiting(ctx, *nodes, w, *interval); err != nil {
				return err
			}
		}
	case "idle":
		if err := b.compareIdle(ctx, *nodes, *interval); err != nil {
			return err
		}
	case "report":
		all, err := readResults(*out)
		if err != nil {
			return err
		}
		all.print()
		return all.draw(*charts)
	default:
		return fmt.Errorf("there is no table %q: throughput, waiting, idle or report", *table)
	}
	return b.results.add(*out)
}

// choose finds schedulers by name.
func choose(names string) ([]scheduler, error) {
	all := schedulers()
	if names == "" {
		return slices.DeleteFunc(all, func(s scheduler) bool { return s.name == extra }), nil
	}
	var chosen []scheduler
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(all, func(s scheduler) bool { return s.name == name })
		if i < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("there is no scheduler %q, but %s", name, strings.Join(known, "; "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
