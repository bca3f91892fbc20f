package chart

import "fmt"

// Lines is a chart of series over one x axis.
type Lines struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Series is one line. It is interrupted where a point has no place on an axis: NaN,
// infinities, and on a logarithmic axis what is not positive.
type Series struct {
	// Name is the line's entry in the legend; "" for none.
	Name   string
	Points []Point
	Dashed bool
	// Plain leaves the points of the line unmarked, for lines with many.
	Plain bool
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// SVG renders the chart.
func (l Lines) SVG() []byte {
	var c canvas
	c.open(l.Title, left, width, height)
	var xs, ys []float64
	var names []string
	for _, s := range l.Series {
		names = append(names, s.Name)
		for _, p := range s.Points {
			if l.drawable(p) {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	if len(xs) == 0 {
		c.nothing()
		return c.close()
	}
	x := newScale(l.X.Log, xs, left, width-right)
	y := newScale(l.Y.Log, ys, height-bottom, top)
	c.yAxis(y, l.Y.Label)
	for _, tick := range x.ticks() {
		fmt.Fprintf(&c, `<path d="M%s %dV%d" stroke="%s"/>`+"\n", pixels(x.at(tick)), top, height-bottom, gridColour)
		c.text(x.at(tick), height-bottom+18, "middle", number(tick))
	}
	c.xLabel(l.X.Label)
	c.legend(names, func(i int, x, y float64) {
		fmt.Fprintf(&c, `<path d="M%s %sh%d" %s/>`+"\n", pixels(x), pixels(y-4), swatch, l.stroke(i))
	})
	for i, s := range l.Series {
		l.draw(&c, i, s, x, y)
	}
	return c.close()
}

func (l Lines) drawable(p Point) bool { return drawable(p.X, l.X.Log) && drawable(p.Y, l.Y.Log) }

func (l Lines) stroke(series int) string {
	dashes := ""
	if l.Series[series].Dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	return fmt.Sprintf(`fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"%s`, colour(series), dashes)
}

// draw draws one line and its points.
func (l Lines) draw(c *canvas, series int, s Series, x, y scale) {
	var path, points canvas
	command := "M"
	for _, p := range s.Points {
		if !l.drawable(p) {
			command = "M"
			continue
		}
		px, py := pixels(x.at(p.X)), pixels(y.at(p.Y))
		fmt.Fprintf(&path, "%s%s %s", command, px, py)
		if !s.Plain {
			fmt.Fprintf(&points, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`+"\n", px, py, colour(series))
		}
		command = "L"
	}
	if path.Len() > 0 {
		fmt.Fprintf(c, `<path d="%s" %s/>`+"\n", path.String(), l.stroke(series))
	}
	c.Write(points.Bytes())
}
