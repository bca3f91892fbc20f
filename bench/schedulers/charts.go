package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/chart"
)

// draw draws what the schedulers do with a backlog into a folder.
func (r results) draw(dir string) error {
	speed := chart.Bars{Title: "Backlog first: pods bound per second", XLabel: "pods × 1 GPU on nodes", YLabel: "pods/s"}
	cost := chart.Bars{Title: "Backlog first: scheduler CPU per bound pod", XLabel: "pods × 1 GPU on nodes", YLabel: "ms"}
	index := map[string]int{}
	for _, c := range r.cases() {
		if c.Series != backlog {
			continue
		}
		category := len(speed.Categories)
		name := fmt.Sprintf("%s on %d", strings.ReplaceAll(c.Workload, " pods × 1 GPU", ""), c.Nodes)
		speed.Categories, cost.Categories = append(speed.Categories, name), append(cost.Categories, name)
		for _, row := range c.rows {
			m := row.median
			if m.Scheduler == ceilingName {
				continue
			}
			i, known := index[m.Scheduler]
			if !known {
				i = len(index)
				index[m.Scheduler] = i
				speed.Series = append(speed.Series, chart.BarSeries{Name: m.Scheduler})
				cost.Series = append(cost.Series, chart.BarSeries{Name: m.Scheduler})
			}
			place(&speed.Series[i].Values, category, m.perSecond())
			place(&cost.Series[i].Values, category, m.cpuPerPod())
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
