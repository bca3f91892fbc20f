// Command gpuset answers, for a machine described by a topology file, which set
// of k GPUs is chosen out of a set of free ones, and at what ring bandwidth.
//
//	gpuset -k 4 -free 0-2,4-7 dgx1-v100.json
//	gpuset -all -json dgx1-v100.json
//	gpuset -k 4 -svg sets.svg dgx1-v100.json
//
// The file has the form that gpu.ParseMachine reads. GPUs are named by their index.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpuset:", err)
		os.Exit(1)
	}
}

// maxAllGPUs bounds the machines for which -all lists every set of free GPUs.
const maxAllGPUs = 16

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("gpuset", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: gpuset [-free GPUs] [-near-nic] [-json] [-svg file] -k number | -all topology.json")
		flags.PrintDefaults()
	}
	free := flags.String("free", "", "free GPUs: a list of indices and ranges such as 0-2,5, or a mask such as 0xf7 over the GPUs in order (default all healthy GPUs)")
	k := flags.Int("k", 0, "number of GPUs to choose")
	all := flags.Bool("all", false, "answer for every set of free GPUs and every k")
	nearNIC := flags.Bool("near-nic", false, "prefer GPUs near a network device, as for a gang that spans machines")
	asJSON := flags.Bool("json", false, "print JSON, one answer per line")
	svg := flags.String("svg", "", "also draw the rings of all sets of k free GPUs into this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return errors.New("name one topology file")
	}

	data, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	m, err := gpu.ParseMachine(data)
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	questions, err := ask(m, *all, *free, *k)
	if err != nil {
		return err
	}
	table, err := gpu.NewTable(m)
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}

	if *svg != "" {
		if *all || len(m.GPUs) > maxAllGPUs {
			return fmt.Errorf("-svg draws all sets for one -k on a machine with at most %d GPUs: leave out -all", maxAllGPUs)
		}
		if err := os.WriteFile(*svg, histogram(table, questions[0], *nearNIC), 0o644); err != nil {
			return fmt.Errorf("draw the chart: %w", err)
		}
	}

	out := bufio.NewWriter(stdout)
	show := printer(out, *asJSON)
	for _, q := range questions {
		if err := show(answer(table, q, *nearNIC)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// question asks for the best k GPUs out of free.
type question struct {
	free gpu.Set
	k    int
}

// ask returns the questions that the flags ask.
func ask(m gpu.Machine, all bool, free string, k int) ([]question, error) {
	n := len(m.GPUs)
	if !all {
		set, err := parseFree(m, free)
		if err != nil {
			return nil, err
		}
		if k < 1 || k > set.Len() {
			return nil, fmt.Errorf("-k %d: want 1 to %d, the number of free healthy GPUs, or -all", k, set.Len())
		}
		return []question{{set, k}}, nil
	}
	if free != "" || k != 0 {
		return nil, errors.New("-all answers for every -free and every -k: leave them out")
	}
	if n > maxAllGPUs {
		return nil, fmt.Errorf("-all lists every set of free GPUs of machines with at most %d GPUs, this one has %d: name one with -free", maxAllGPUs, n)
	}
	var questions []question
	for set := range gpu.Full(n) + 1 {
		if set&^m.Healthy() != 0 {
			continue
		}
		for k := 1; k <= set.Len(); k++ {
			questions = append(questions, question{set, k})
		}
	}
	return questions, nil
}

// parseFree reads the flag -free and leaves out GPUs that are not healthy.
func parseFree(m gpu.Machine, text string) (gpu.Set, error) {
	if text == "" {
		return m.Healthy(), nil
	}
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		mask, err := strconv.ParseUint(digits, 16, 64)
		if err != nil || gpu.Set(mask)&^gpu.Full(len(m.GPUs)) != 0 {
			return 0, fmt.Errorf("-free %s: want a mask of %d GPUs", text, len(m.GPUs))
		}
		return gpu.Set(mask) & m.Healthy(), nil
	}
	var set gpu.Set
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0, fmt.Errorf("-free %s: %q is no GPU index", text, first)
		}
		to, err := strconv.Atoi(last)
		if err != nil || to < from {
			return 0, fmt.Errorf("-free %s: %q is no range of GPU indices", text, part)
		}
		for index := from; index <= to; index++ {
			position := slices.IndexFunc(m.GPUs, func(c gpu.GPU) bool { return c.Index == index })
			if position < 0 {
				return 0, fmt.Errorf("-free %s: the machine has no GPU %d", text, index)
			}
			set |= gpu.SetOf(position)
		}
	}
	return set & m.Healthy(), nil
}

// choice is the answer to a question. GPUs are indices.
type choice struct {
	Free        []int   `json:"free"`
	K           int     `json:"k"`
	GPUs        []int   `json:"gpus"`
	GBps        float64 `json:"gbps"`
	NVLinkRings int     `json:"nvlinkRings"`
	WorstGBps   float64 `json:"worstGbps"`
}

func answer(table *gpu.Table, q question, nearNIC bool) choice {
	choose := table.Best
	if nearNIC {
		choose = table.BestNearNIC
	}
	best, _ := choose(q.free, q.k)
	ring := table.Ring(best)
	gpus := table.Machine().GPUs
	return choice{
		Free:        indices(gpus, q.free),
		K:           q.k,
		GPUs:        indices(gpus, best),
		GBps:        ring.GBps,
		NVLinkRings: ring.NVLinkRings,
		WorstGBps:   table.Worst(q.free, q.k).GBps,
	}
}

func indices(gpus []gpu.GPU, s gpu.Set) []int {
	positions := s.GPUs()
	for i, position := range positions {
		positions[i] = gpus[position].Index
	}
	return positions
}

// printer returns a function that writes one answer as JSON or as a row of a table.
func printer(out io.Writer, asJSON bool) func(choice) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		return func(c choice) error { return encoder.Encode(c) }
	}
	const row = "%-24s %2v  %-24s %8v %13v %11v\n"
	fmt.Fprintf(out, row, "FREE", "K", "GPUS", "GB/S", "NVLINK RINGS", "WORST GB/S")
	return func(c choice) error {
		_, err := fmt.Fprintf(out, row, list(c.Free), c.K, list(c.GPUs), decimal(c.GBps), c.NVLinkRings, decimal(c.WorstGBps))
		return err
	}
}

func list(gpus []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(gpus), " ", ","), "[]")
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
