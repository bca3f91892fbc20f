// Command scale measures what one placement costs against the number of nodes and
// the number of members, prints a table, and fits the exponent of growth: 1 is
// linear, 2 is quadratic.
//
//	scale
//	scale -workload gpus -nodes 500,5000 -members 1,100 -json
//	scale -svg-nodes nodes.svg -svg-members members.svg
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// maxNodes bounds the memory of a run: about 2 KiB for each node.
const maxNodes = 200_000

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	workload := flags.String("workload", "racks", "racks: members of 0.1 CPU on nodes of 4 CPU, all in one of 50 racks; gpus: members of one GPU on nodes of eight, of which some are in use")
	nodes := flags.String("nodes", "500,1000,2000,5000,10000,20000,50000", "numbers of nodes, ascending")
	members := flags.String("members", "1,10,100,1000,10000", "numbers of members, ascending")
	atLeast := flags.Duration("for", 200*time.Millisecond, "measure each point at least for this long, and three placements")
	asJSON := flags.Bool("json", false, "print JSON")
	svgNodes := flags.String("svg-nodes", "", "draw the cost against nodes into this file")
	svgMembers := flags.String("svg-members", "", "draw the cost against members into this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	build, ok := workloads[*workload]
	if !ok {
		return fmt.Errorf("-workload %s: want racks or gpus", *workload)
	}
	nodeCounts, err := counts("-nodes", *nodes)
	if err != nil {
		return err
	}
	memberCounts, err := counts("-members", *members)
	if err != nil {
		return err
	}
	if largest := nodeCounts[len(nodeCounts)-1]; largest > maxNodes {
		return fmt.Errorf("-nodes %d: at most %d are measured", largest, maxNodes)
	}

	r := report{Workload: *workload}
	for _, n := range nodeCounts {
		c := build(n)
		for _, m := range memberCounts {
			if p, ok := c.measure(m, *atLeast); ok {
				p.Nodes, p.Members = n, m
				r.Points = append(r.Points, p)
			}
		}
	}
	r.fit(nodeCounts, memberCounts)
	if err := write(*svgNodes, r.againstNodes); err != nil {
		return err
	}
	if err := write(*svgMembers, r.againstMembers); err != nil {
		return err
	}
	if *asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	return r.print(stdout)
}

// write draws a chart into a file, none when the path is empty.
func write(path string, draw func() []byte) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, draw(), 0o644); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// counts reads an ascending list of positive numbers.
func counts(name, text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || len(list) > 0 && n <= list[len(list)-1] {
			return nil, fmt.Errorf("%s %s: want positive numbers in ascending order, such as 500,5000", name, text)
		}
		list = append(list, n)
	}
	return list, nil
}

func (r *report) print(stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "nodes\tmembers\tms per placement\tplacements\t")
	for _, p := range r.Points {
		fmt.Fprintf(w, "%d\t%d\t%.3f\t%d\t\n", p.Nodes, p.Members, p.Milliseconds, p.Placements)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range r.Fits {
		fmt.Fprintf(stdout, "cost grows with %s to the power %.2f at %d %s\n", f.Against, f.Exponent, f.At, f.Of)
	}
	return nil
}
