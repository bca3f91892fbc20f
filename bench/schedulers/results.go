package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// results are all figures, as they are kept in a file.
type results struct {
	Throughput []throughput `json:"throughput,omitempty"`
	Waiting    []waiting    `json:"waiting,omitempty"`
	Idle       []idling     `json:"idle,omitempty"`
	// Upstream is read from the output of upstream's harness.
	Upstream []upstream `json:"-"`
}

// readResults reads figures that runs have added to a file.
func readResults(file string) (results, error) {
	var all results
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return all, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// add adds the results to those that a file holds, if there is a file.
func (r results) add(file string) error {
	if file == "" {
		return nil
	}
	all, err := readResults(file)
	if err != nil {
		return err
	}
	all.Throughput = append(all.Throughput, r.Throughput...)
	all.Waiting = append(all.Waiting, r.Waiting...)
	all.Idle = append(all.Idle, r.Idle...)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

// comparison is all runs of one workload, number of nodes and series.
type comparison struct {
	Nodes            int
	Workload, Series string
	rows             []row
}

// row is all runs of one scheduler, and the one with the median speed.
type row struct {
	runs   []throughput
	median throughput
}

// cases groups the runs, in the order in which each kind was first measured.
func (r results) cases() []comparison {
	var all []comparison
	for _, run := range r.Throughput {
		i := slices.IndexFunc(all, func(c comparison) bool {
			return c.Nodes == run.Nodes && c.Workload == run.Workload && c.Series == run.Series
		})
		if i < 0 {
			i = len(all)
			all = append(all, comparison{Nodes: run.Nodes, Workload: run.Workload, Series: run.Series})
		}
		all[i].take(run)
	}
	return all
}

func (c *comparison) take(run throughput) {
	of := c.of(run.Scheduler)
	if of == nil {
		c.rows = append(c.rows, row{})
		of = &c.rows[len(c.rows)-1]
	}
	of.runs = append(of.runs, run)
	sorted := slices.SortedFunc(slices.Values(of.runs), func(a, b throughput) int { return int(1000 * (a.perSecond() - b.perSecond())) })
	of.median = sorted[(len(sorted)-1)/2]
}

// of finds the row of a scheduler, nil for none.
func (c *comparison) of(scheduler string) *row {
	for i := range c.rows {
		if c.rows[i].runs[0].Scheduler == scheduler {
			return &c.rows[i]
		}
	}
	return nil
}

// ours is the run of our scheduler, with published hardware, that the others are
// compared with; without figures when there is none.
func (c *comparison) ours() throughput {
	if of := c.of(schedulers()[0].name); of != nil {
		return of.median
	}
	return throughput{}
}

// show prints a figure of the median run and, in brackets, of the lowest and the highest.
func (r row) show(figure func(throughput) float64, digits int) string {
	var values []float64
	for _, run := range r.runs {
		values = append(values, figure(run))
	}
	text := number(figure(r.median), digits)
	if len(values) > 1 && text != "–" {
		text += " (" + spread(values, digits) + ")"
	}
	return text
}
