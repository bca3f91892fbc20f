// Command openbreplay replays pod lists of Alibaba's openb trace on its node list
// through the planner and prints how much of the cluster's GPUs is allocated, and
// how much of the idle part is fragmented, at each percent of arrived demand.
//
// Package internal/openb has the protocol.
//
//	openbreplay -nodes node_list.csv pod_list_default.csv pod_list_gpushare40.csv
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb/replay"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openbreplay:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("openbreplay", flag.ContinueOnError)
	nodeFile := flags.String("nodes", "", "node list: CSV with sn, cpu_milli, memory_mib, gpu; .gz is unpacked")
	seeds := flags.String("seeds", "42-51", "seeds, a range or one number")
	demand := flags.Float64("demand", 1.3, "GPUs that the arriving pods ask for, in parts of the cluster's")
	tightest := flags.Bool("tightest", false, "choose the tightest fit instead of the least fragmentation")
	asJSON := flags.Bool("json", false, "print JSON")
	chart := flags.String("svg", "", "also draw a chart of the means into this file")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	first, last, err := seedRange(*seeds)
	if err != nil {
		return err
	}
	if *nodeFile == "" || flags.NArg() == 0 {
		return fmt.Errorf("give a node list with -nodes and at least one pod list")
	}
	var reports []report
	for _, file := range flags.Args() {
		trace, err := openb.Read(*nodeFile, file, *demand)
		if err != nil {
			return err
		}
		curves, err := (&replay.Replay{Trace: trace, Tightest: *tightest}).Seeds(first, last)
		if err != nil {
			return fmt.Errorf("replay %s: %w", file, err)
		}
		reports = append(reports, summarise(trace.Name, curves))
	}
	if *chart != "" {
		if err := os.WriteFile(*chart, drawChart(reports), 0o644); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(reports)
	}
	return printTable(out, reports)
}

func seedRange(s string) (first, last int64, err error) {
	from, to, found := strings.Cut(s, "-")
	if !found {
		to = from
	}
	first, err = strconv.ParseInt(from, 10, 64)
	if err == nil {
		last, err = strconv.ParseInt(to, 10, 64)
	}
	if err != nil || last < first {
		return 0, 0, fmt.Errorf("seeds %q are no range like 42-51", s)
	}
	return first, last, nil
}

// tableAt are the percents of arrived demand that the table shows.
var tableAt = [...]int{50, 80, 90, 95, 100, 130}

func printTable(out io.Writer, reports []report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "trace\tseeds\t")
	for _, at := range tableAt {
		fmt.Fprintf(w, "alloc %%@%d\t", at)
	}
	for _, at := range tableAt {
		fmt.Fprintf(w, "frag %%@%d\t", at)
	}
	fmt.Fprintln(w, "most@100\tmost@end\tseconds\t")
	for _, r := range reports {
		fmt.Fprintf(w, "%s\t%d\t", r.Trace, r.Seeds)
		for _, series := range [][]float64{r.AllocatedPercent, r.FragmentedPercent} {
			for _, at := range tableAt {
				if at < len(series) {
					fmt.Fprintf(w, "%.2f\t", series[at])
				} else {
					fmt.Fprint(w, "-\t")
				}
			}
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.1f\t\n", r.MostPercent[0], r.MostPercent[1], r.Seconds)
	}
	return w.Flush()
}
