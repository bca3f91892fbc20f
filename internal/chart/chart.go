// Package chart draws small line and bar charts, and maps of cells, as SVG.
//
// The background is transparent, and text, grid and colours are of medium lightness,
// so that a chart can be read on a light and on a dark page. The output depends on
// the input alone: the same chart is the same bytes on every machine.
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Axis describes one axis of a chart.
type Axis struct {
	Label string
	// Log makes the axis logarithmic; it then starts and ends at a power of ten, and
	// values that are not positive are left out. A linear axis includes zero.
	Log bool
}

// Geometry in pixels of the view box.
const (
	width, height            = 760, 420
	left, right, top, bottom = 76, 24, 78, 64
	fontSize                 = 13
	// characterWidth is about the mean width of a character at fontSize.
	characterWidth = 7
	swatch         = 22
)

const (
	inkColour  = "#767676" // 4.5:1 on white and on black (WCAG 2 AA)
	gridColour = "#8884"
)

// palette tells up to eight series apart.
var palette = [...]string{"#2f7ed8", "#d9534f", "#3c9d4e", "#b07d1a", "#8a63d2", "#1f9ea8", "#c2549d", "#7a8b2f"}

func colour(series int) string { return palette[series%len(palette)] }

// canvas collects SVG elements.
type canvas struct{ bytes.Buffer }

// open starts the document; the title is also what screen readers read.
func (c *canvas) open(title string, x, width, height int) {
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="%d" fill="%s">`+"\n",
		width, height, fontSize, inkColour)
	fmt.Fprintf(c, "<title>%s</title>\n", escape(title))
	fmt.Fprintf(c, `<text x="%d" y="22" font-size="15" font-weight="600">%s</text>`+"\n", x, escape(title))
}

func (c *canvas) close() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// text writes a label; anchor is "start", "middle" or "end".
func (c *canvas) text(x, y float64, anchor, label string) {
	fmt.Fprintf(c, `<text x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", pixels(x), pixels(y), anchor, escape(label))
}

// yAxis draws the grid and the labels of the y axis.
func (c *canvas) yAxis(s scale, label string) {
	for _, tick := range s.ticks() {
		y := s.at(tick)
		fmt.Fprintf(c, `<path d="M%d %sH%d" stroke="%s"/>`+"\n", left, pixels(y), width-right, gridColour)
		c.text(left-8, y+4, "end", number(tick))
	}
	middle := float64(top+height-bottom) / 2
	fmt.Fprintf(c, `<text transform="translate(18 %s) rotate(-90)" text-anchor="middle">%s</text>`+"\n", pixels(middle), escape(label))
}

// xLabel writes the label of the x axis.
func (c *canvas) xLabel(label string) {
	c.text(float64(left+width-right)/2, height-14, "middle", label)
}

// legend names the series in rows below the title.
func (c *canvas) legend(names []string, sample func(series int, x, y float64)) {
	x, y := float64(left), 46.0
	for i, name := range names {
		if name == "" {
			continue
		}
		space := float64(swatch + 8 + characterWidth*len([]rune(name)) + 18)
		if x > left && x+space > width-right {
			x, y = left, y+18
		}
		sample(i, x, y)
		c.text(x+swatch+6, y, "start", name)
		x += space
	}
}

// nothing says that there is nothing to draw.
func (c *canvas) nothing() { c.text(width/2, height/2, "middle", "no data") }

func escape(s string) string {
	var b strings.Builder
	// A strings.Builder does not fail.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// pixels renders a coordinate to a tenth of a pixel.
func pixels(v float64) string { return fmt.Sprintf("%.1f", v+0) }

// number renders the label of a tick: 0.01, 2.5, 50,000.
func number(v float64) string {
	if size := math.Abs(v); size != 0 && (size >= 1e6 || size < 1e-4) {
		return fmt.Sprintf("%.3g", v)
	}
	text := fmt.Sprintf("%.10g", v)
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}
