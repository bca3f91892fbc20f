package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files again")

func lines() Lines {
	return Lines{
		Title: "Cost per placement",
		X:     Axis{Label: "nodes", Log: true},
		Y:     Axis{Label: "ms"},
		Series: []Series{
			{Name: "1 member", Points: []Point{{500, 0.1}, {5_000, 1.25}, {50_000, 14}}},
			{Name: "10 members", Points: []Point{{500, 0.2}, {5_000, math.NaN()}, {50_000, 15}}, Dashed: true, Plain: true},
		},
	}
}

func bars() Bars {
	return Bars{
		Title: "Sets of four GPUs", XLabel: "ring, GB/s", YLabel: "sets",
		Categories: []string{"5", "25", "50"},
		Series:     []BarSeries{{"all sets", []float64{62, 2, 6}}, {"rated best", []float64{12, math.Inf(1)}}},
		Marks:      []Mark{{2, "chosen"}, {0, "worst"}, {0, "slowest pair"}, {3, "outside"}},
	}
}

func TestGolden(t *testing.T) {
	for name, got := range map[string][]byte{"lines.svg": lines().SVG(), "bars.svg": bars().SVG(), "cells.svg": cells().SVG()} {
		path := "testdata/" + name
		if *update {
			require.NoError(t, os.WriteFile(path, got, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err, "run go test -update to make it")
		assert.Equal(t, string(want), string(got), name)
	}
}

// elements parses a document and counts its elements by name.
func elements(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return counts
		}
		require.NoError(t, err, "%s", svg)
		if start, ok := token.(xml.StartElement); ok {
			counts[start.Name.Local]++
		}
	}
}

func TestTextIsEscaped(t *testing.T) {
	evil := `</text><script>alert("&")</script>`
	l, b := lines(), bars()
	l.Title, l.X.Label, l.Y.Label, l.Series[0].Name = evil, evil, evil, evil
	b.Title, b.XLabel, b.YLabel, b.Categories[0], b.Series[0].Name, b.Marks[0].Text = evil, evil, evil, evil, evil, evil
	for name, svg := range map[string][]byte{"lines": l.SVG(), "bars": b.SVG()} {
		assert.Zero(t, elements(t, svg)["script"], name)
		assert.Contains(t, string(svg), "&lt;script&gt;", name)
	}
}

func TestNothingToDraw(t *testing.T) {
	nan := math.NaN()
	for name, svg := range map[string][]byte{
		"no series":          Lines{}.SVG(),
		"no points":          Lines{Series: []Series{{Name: "a"}}}.SVG(),
		"no numbers":         Lines{Series: []Series{{Points: []Point{{nan, 1}, {1, math.Inf(-1)}}}}}.SVG(),
		"nothing positive":   Lines{Y: Axis{Log: true}, Series: []Series{{Points: []Point{{1, 0}, {2, -1}}}}}.SVG(),
		"no categories":      Bars{Series: []BarSeries{{Values: []float64{1}}}}.SVG(),
		"no bars":            Bars{Categories: []string{"a"}}.SVG(),
		"bars of no numbers": Bars{Categories: []string{"a"}, Series: []BarSeries{{Values: []float64{nan}}}}.SVG(),
	} {
		assert.Contains(t, string(svg), "no data", name)
		assert.NotContains(t, string(svg), "NaN", name)
		elements(t, svg)
	}
}

func TestGapsInterruptLines(t *testing.T) {
	svg := string(Lines{Series: []Series{{Points: []Point{{0, 1}, {1, 1}, {2, math.NaN()}, {3, 1}}}}}.SVG())
	assert.Contains(t, svg, `d="M76.0 78.0L296.0 78.0M736.0 78.0" fill="none"`)
	assert.Equal(t, 3, elements(t, []byte(svg))["circle"])
}

func TestTicks(t *testing.T) {
	for name, c := range map[string]struct {
		log    bool
		values []float64
		want   []float64
	}{
		"from zero":     {false, []float64{3, 95}, []float64{0, 20, 40, 60, 80, 100}},
		"below zero":    {false, []float64{-1, 2}, []float64{-1, -0.5, 0, 0.5, 1, 1.5, 2}},
		"one value":     {false, []float64{0}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		"decades":       {true, []float64{500, 50_000}, []float64{100, 1_000, 10_000, 100_000}},
		"one decade":    {true, []float64{10}, []float64{10, 100}},
		"many decades":  {true, []float64{1e-3, 1e13}, []float64{1e-3, 1e-1, 1e1, 1e3, 1e5, 1e7, 1e9, 1e11, 1e13}},
		"small numbers": {false, []float64{0.0003}, []float64{0, 5e-5, 1e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4}},
	} {
		got := newScale(c.log, c.values, 0, 1).ticks()
		assert.InDeltaSlice(t, c.want, got, 1e-9*c.want[len(c.want)-1], name)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.25: "0.25", 0.0001: "0.0001", 1e-5: "1e-05", 999: "999", 50_000: "50,000", -1234.5: "-1,234.5", 2e6: "2e+06",
	} {
		assert.Equal(t, want, number(v))
	}
}

func FuzzLines(f *testing.F) {
	f.Add("cost", 1.0, 2.0, 3.0, -4.0, true, false)
	f.Add("", math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), false, true)
	f.Fuzz(func(t *testing.T, label string, a, b, c, d float64, logX, logY bool) {
		l := Lines{
			Title: label, X: Axis{Label: label, Log: logX}, Y: Axis{Log: logY},
			Series: []Series{{Name: label, Points: []Point{{a, b}, {c, d}}}},
		}
		svg := l.SVG()
		require.Equal(t, 1, elements(t, svg)["svg"])
		require.NotRegexp(t, `"[^"<>]*(NaN|Inf)[^"<>]*"`, string(bytes.ReplaceAll(svg, []byte(escape(label)), nil)))
	})
}
