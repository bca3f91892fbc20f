package main

import (
	"fmt"
	"math"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/chart"
)

// report is what was measured.
type report struct {
	Workload string  `json:"workload"`
	Points   []point `json:"points"`
	Fits     []fit   `json:"fits"`
}

// point is the cost of one placement.
type point struct {
	Nodes   int `json:"nodes"`
	Members int `json:"members"`
	// Milliseconds is the median over Placements.
	Milliseconds float64 `json:"milliseconds"`
	Placements   int     `json:"placements"`
}

// fit is the growth of cost against one number where the other stays the same:
// cost = factor × number^Exponent.
type fit struct {
	// Against is "nodes" or "members", Of the other one, which is At.
	Against  string  `json:"against"`
	Exponent float64 `json:"exponent"`
	At       int     `json:"at"`
	Of       string  `json:"of"`
}

// fit fits an exponent to every line with three points or more.
func (r *report) fit(nodes, members []int) {
	for _, m := range members {
		if line := r.nodeLine(m); len(line) > 2 {
			r.Fits = append(r.Fits, fit{Against: "nodes", Exponent: exponent(line), At: m, Of: "members"})
		}
	}
	for _, n := range nodes {
		if line := r.memberLine(n); len(line) > 2 {
			r.Fits = append(r.Fits, fit{Against: "members", Exponent: exponent(line), At: n, Of: "nodes"})
		}
	}
}

// exponent is the slope of the least-squares line through the points on logarithmic axes.
func exponent(line []chart.Point) float64 {
	var x, y, xx, xy float64
	for _, p := range line {
		lx, ly := math.Log(p.X), math.Log(p.Y)
		x, y, xx, xy = x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	n := float64(len(line))
	return (n*xy - x*y) / (n*xx - x*x)
}

// nodeLine is the cost against nodes with this many members.
func (r *report) nodeLine(members int) []chart.Point {
	var line []chart.Point
	for _, p := range r.Points {
		if p.Members == members {
			line = append(line, chart.Point{X: float64(p.Nodes), Y: p.Milliseconds})
		}
	}
	return line
}

// memberLine is the cost against members on this many nodes.
func (r *report) memberLine(nodes int) []chart.Point {
	var line []chart.Point
	for _, p := range r.Points {
		if p.Nodes == nodes {
			line = append(line, chart.Point{X: float64(p.Members), Y: p.Milliseconds})
		}
	}
	return line
}

func (r *report) againstNodes() []byte {
	return r.draw("nodes", "members", func(p point) int { return p.Members }, r.nodeLine)
}

func (r *report) againstMembers() []byte {
	return r.draw("members", "nodes", func(p point) int { return p.Nodes }, r.memberLine)
}

// draw draws the cost against one number, a line for each value of the other.
func (r *report) draw(against, of string, value func(point) int, line func(int) []chart.Point) []byte {
	l := chart.Lines{
		Title: fmt.Sprintf("Cost of one placement (%s)", r.Workload),
		X:     chart.Axis{Label: against, Log: true}, Y: chart.Axis{Label: "ms", Log: true},
	}
	drawn := map[int]bool{}
	for _, p := range r.Points {
		if v := value(p); !drawn[v] {
			drawn[v] = true
			l.Series = append(l.Series, chart.Series{Name: fmt.Sprintf("%d %s", v, of), Points: line(v)})
		}
	}
	return l.SVG()
}
