package chart

import "fmt"

// Bars is a chart of groups of bars side by side, one bar of each series per category.
type Bars struct {
	Title string
	// XLabel says what the categories are.
	XLabel string
	// YLabel says what the height of a bar is. The axis is linear.
	YLabel     string
	Categories []string
	Series     []BarSeries
	// Marks are words above the bars of a category.
	Marks []Mark
}

// BarSeries has one value per category; values that are missing, NaN or infinite
// have no bar.
type BarSeries struct {
	// Name is the series' entry in the legend; "" for none.
	Name   string
	Values []float64
}

// Mark is a word above a category, by its position.
type Mark struct {
	Category int
	Text     string
}

// widestBar bounds the width of a bar in pixels.
const widestBar = 48

// SVG renders the chart.
func (b Bars) SVG() []byte {
	var c canvas
	c.open(b.Title, left, width, height)
	var values []float64
	var names []string
	for _, s := range b.Series {
		names = append(names, s.Name)
		for _, v := range s.Values[:min(len(s.Values), len(b.Categories))] {
			if drawable(v, false) {
				values = append(values, v)
			}
		}
	}
	if len(values) == 0 {
		c.nothing()
		return c.close()
	}
	y := newScale(false, values, height-bottom, top+24)
	c.yAxis(y, b.YLabel)
	c.xLabel(b.XLabel)
	c.legend(names, func(i int, x, y float64) {
		fmt.Fprintf(&c, `<rect x="%s" y="%s" width="%d" height="10" fill="%s"/>`+"\n", pixels(x), pixels(y-9), swatch, colour(i))
	})
	group := float64(width-left-right) / float64(len(b.Categories))
	highest := make([]float64, len(b.Categories))
	for i, category := range b.Categories {
		middle := left + (float64(i)+0.5)*group
		c.text(middle, height-bottom+18, "middle", category)
		bar := min(group*0.7/float64(len(b.Series)), widestBar)
		for j, s := range b.Series {
			if i >= len(s.Values) || !drawable(s.Values[i], false) {
				continue
			}
			highest[i] = max(highest[i], s.Values[i])
			from, to := y.at(max(s.Values[i], 0)), y.at(min(s.Values[i], 0))
			x := middle + (float64(j)-float64(len(b.Series))/2)*bar
			fmt.Fprintf(&c, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n",
				pixels(x), pixels(from), pixels(bar), pixels(to-from), colour(j))
		}
	}
	above := map[int]int{}
	for _, m := range b.Marks {
		if m.Category < 0 || m.Category >= len(b.Categories) {
			continue
		}
		at := y.at(highest[m.Category]) - 6 - float64(15*above[m.Category])
		c.text(left+(float64(m.Category)+0.5)*group, at, "middle", m.Text)
		above[m.Category]++
	}
	return c.close()
}
