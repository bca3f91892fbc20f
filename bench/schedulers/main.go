// Command schedulers compares gpuplan's scheduler with others, on one machine, one
// after the other. Every run has a fresh control plane (etcd and kube-apiserver, each
// a process of its own), nodes without anything behind them, and one scheduler as a
// process. Times from a pod's creation to its bind come from one watch, for all alike.
//
//	make -C bench/schedulers run
//	bin/bench/schedulers -table throughput -nodes 500 -shapes 1000x4 -series "backlog first"
//
// It prints Markdown tables with ratios to ours, and adds all figures to a JSON file.
// The table "report" writes those of the file into docs/benchmarks.md.
package main

import (
	"context"
	"errors"
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
	// bin is the folder of programs, work one for data, out the file for figures.
	bin, work, out string
	// passes is the pause between the passes of schedulers that work in passes.
	passes time.Duration
	// profiles is the folder for CPU profiles of the schedulers, "" for none.
	profiles string
	// limit is how long a scheduler may take for a workload, half of it without a bind.
	limit      time.Duration
	schedulers []scheduler
	// again are the schedulers that are measured more than once, all when empty.
	again string
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
	table := flag.String("table", "throughput", "what to measure: throughput, waiting, idle; or report, which writes what the JSON file holds into a page")
	nodes := flag.Int("nodes", 500, "number of nodes, each with 8 GPUs")
	shapes := flag.String("shapes", "100x16,1000x4,4000x1", "workloads: GANGSxMEMBERS[xGPUS],...")
	series := flag.String("series", live+","+backlog, "series of the table throughput: "+live+", "+backlog+", "+ownCores)
	names := flag.String("schedulers", "", "names of the schedulers to compare, all when empty")
	interval := flag.Duration("interval", 20*time.Second, "how long to look at schedulers that wait or idle")
	repeat := flag.Int("repeat", 1, "how often to measure, in turns; the run with the median speed is shown")
	page := flag.String("page", "", "page into which a report puts the tables")
	charts := flag.String("charts", "", "folder for the charts of a report")
	perf := flag.String("upstream", "", "output of upstream's harness, for a report")
	b := &bench{}
	flag.StringVar(&b.out, "json", "", "file to which all figures are added, run by run")
	flag.StringVar(&b.again, "again", "", "names of the rows to measure as often as -repeat says, all when empty")
	flag.DurationVar(&b.limit, "limit", time.Minute, "how long a scheduler may take for a workload, half of it without a bind")
	flag.StringVar(&b.bin, "bin", "bin/bench", "folder of the programs")
	flag.DurationVar(&b.passes, "passes", 100*time.Millisecond, "pause between the passes of schedulers that work in passes")
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
				err = errors.Join(err, b.compareThroughput(ctx, *nodes, w, series, *repeat))
			}
		}
		return err
	case "waiting":
		for _, w := range workloads {
			err = errors.Join(err, b.compareWaiting(ctx, *nodes, w, *interval))
		}
		return err
	case "idle":
		return b.compareIdle(ctx, *nodes, *interval)
	case "report":
		all, err := readResults(b.out)
		if err != nil {
			return err
		}
		if all.Upstream, err = readUpstream(*perf); err != nil {
			return err
		}
		if err := all.write(*page); err != nil {
			return err
		}
		return all.draw(*charts)
	default:
		return fmt.Errorf("there is no table %q: throughput, waiting, idle or report", *table)
	}
}

// repeated reports whether a scheduler is measured more than once.
func (b *bench) repeated(name string) bool {
	return b.again == "" || slices.Contains(strings.Split(b.again, ","), name)
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
