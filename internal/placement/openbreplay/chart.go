package main

import (
	"bytes"
	"fmt"
)

// drawChart draws the means as SVG: allocation as full lines, fragmentation dashed.
func drawChart(reports []report) []byte {
	const width, height, margin = 760, 420, 50
	colours := [...]string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"}
	last := 1
	for _, r := range reports {
		last = max(last, len(r.AllocatedPercent)-1)
	}
	x := func(percent int) float64 { return margin + float64(percent)*(width-2*margin)/float64(last) }
	y := func(percent float64) float64 { return height - margin - percent*(height-2*margin)/100 }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for percent := 0; percent <= 100; percent += 20 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			margin, y(float64(percent)), width-margin, margin-6, y(float64(percent))+4, percent)
	}
	for percent := 0; percent <= last; percent += 10 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(percent), height-margin+16, percent)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">arrived demand, %% of all cards (full: allocated %% of cards, dashed: fragmented %% of idle cards)</text>`+"\n",
		width/2, height-12)
	for i, r := range reports {
		colour := colours[i%len(colours)]
		for j, series := range [][]float64{r.AllocatedPercent, r.FragmentedPercent} {
			fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="%s" d="`, colour, [...]string{"none", "5 4"}[j])
			for percent, value := range series {
				fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(percent, 1)], x(percent), y(value))
			}
			b.WriteString("\"/>\n")
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", margin+10, margin+16*i, colour, r.Trace)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
