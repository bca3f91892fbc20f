package chart

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func cells() Cells {
	a, b := CellPart{Series: 0, Key: "a", Share: 1}, CellPart{Series: 1, Key: "b", Share: 0.5}
	return Cells{
		Title: "GPUs",
		Groups: []CellGroup{
			{Name: "pool <v100>", Rows: []CellRow{
				{Label: "n0", Note: "2 of 4 free", Cells: []Cell{{Parts: []CellPart{a}, Title: "GPU 0: ns/a & co"}, {Parts: []CellPart{a}}, {}, {}}},
				{Label: "n1", Note: "3 of 4 free", Cells: []Cell{{}, {}, {}, {Crossed: true, Title: "GPU 3: XID 79"}}},
			}},
			{Name: "pool shared", Rows: []CellRow{
				{Label: "n2", Cells: []Cell{{Parts: []CellPart{b, {Series: 0, Key: "a", Share: 0.1}}, Bar: 0.3}, {Parts: []CellPart{{Key: "a", Share: 1, Dashed: true}}}}},
			}},
		},
		Legend: []CellEntry{{a, "ns/a"}, {CellPart{Series: 1, Key: "b", Share: 1}, "ns/b"}},
	}
}

func TestCellsAreDrawn(t *testing.T) {
	counts := elements(t, cells().SVG())
	assert.Equal(t, 12, counts["g"], "ten cells and two entries of the legend")
	assert.Equal(t, 1+2, counts["title"])
	assert.Equal(t, 12+7, counts["rect"], "cells, and their parts")
	assert.Equal(t, 2, counts["path"], "a cross and a bar")
}

// Many rows flow into columns, so that the picture keeps a shape that can be looked at.
func TestManyRowsFlowIntoColumns(t *testing.T) {
	m := Cells{Groups: []CellGroup{{Name: "pool"}}}
	for i := range 400 {
		m.Groups[0].Rows = append(m.Groups[0].Rows, CellRow{Label: fmt.Sprintf("node-%d", i), Cells: make([]Cell, 8)})
	}
	l := m.layout()
	assert.Greater(t, l.columns, 3)
	assert.InDelta(t, 1, float64(l.width)/float64(l.height), 0.3)
	assert.Equal(t, 3200, elements(t, m.SVG())["g"])
	assert.Equal(t, 1, elements(t, Cells{Title: "nothing"}.SVG())["svg"])
}
