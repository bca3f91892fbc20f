package main

import "github.com/gpuplan/terraform-provider-gpuplan/internal/chart"

// drawChart draws the means as SVG: allocation as full lines, fragmentation dashed.
func drawChart(reports []report) []byte {
	l := chart.Lines{
		Title: "GPUs of the cluster as demand arrives",
		X:     chart.Axis{Label: "arrived demand, % of all GPUs"},
		Y:     chart.Axis{Label: "%"},
	}
	for _, r := range reports {
		l.Series = append(l.Series,
			line(r.Trace+": allocated, of all GPUs", r.AllocatedPercent, false),
			line(r.Trace+": fragments, of idle GPUs", r.FragmentedPercent, true))
	}
	return l.SVG()
}

// line is one value per percent of arrived demand.
func line(name string, values []float64, dashed bool) chart.Series {
	s := chart.Series{Name: name, Dashed: dashed, Plain: true}
	for percent, value := range values {
		s.Points = append(s.Points, chart.Point{X: float64(percent), Y: value})
	}
	return s
}
