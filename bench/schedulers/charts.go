package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/chart"
)

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

// print prints the tables of all results.
func (r results) print() {
	for _, rows := range r.cases() {
		fmt.Print(throughputTable(rows))
	}
	if len(r.Waiting) > 0 {
		fmt.Print(waitingTable(r.Waiting))
	}
	if len(r.Idle) > 0 {
		fmt.Print(idleTable(r.Idle))
	}
}

// cases groups rows of one workload, number of nodes and series, in their order.
func (r results) cases() [][]throughput {
	var all [][]throughput
	for i, row := range r.Throughput {
		last := throughput{}
		if i > 0 {
			last = r.Throughput[i-1]
		}
		if row.Nodes != last.Nodes || row.Workload != last.Workload || row.Series != last.Series {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], row)
	}
	return all
}

// draw draws what the schedulers do with a backlog into a folder.
func (r results) draw(dir string) error {
	speed := chart.Bars{Title: "Backlog first: pods bound per second", XLabel: "pods × 1 card on nodes", YLabel: "pods/s"}
	cost := chart.Bars{Title: "Backlog first: scheduler CPU per bound pod", XLabel: "pods × 1 card on nodes", YLabel: "ms"}
	index := map[string]int{}
	for _, rows := range r.cases() {
		if rows[0].Series != backlog {
			continue
		}
		category := len(speed.Categories)
		name := fmt.Sprintf("%s on %d", strings.ReplaceAll(rows[0].Workload, " pods × 1 card", ""), rows[0].Nodes)
		speed.Categories, cost.Categories = append(speed.Categories, name), append(cost.Categories, name)
		for _, row := range rows {
			if row.Scheduler == ceilingName {
				continue
			}
			i, known := index[row.Scheduler]
			if !known {
				i = len(index)
				index[row.Scheduler] = i
				speed.Series = append(speed.Series, chart.BarSeries{Name: row.Scheduler})
				cost.Series = append(cost.Series, chart.BarSeries{Name: row.Scheduler})
			}
			place(&speed.Series[i].Values, category, row.perSecond())
			place(&cost.Series[i].Values, category, row.cpuPerPod())
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "schedulers-speed.svg"), speed.SVG(), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "schedulers-cost.svg"), cost.SVG(), 0o600)
}

// place sets the value of a category; categories before it may have none.
func place(values *[]float64, category int, value float64) {
	for len(*values) < category {
		*values = append(*values, 0)
	}
	*values = append(*values, value)
}
