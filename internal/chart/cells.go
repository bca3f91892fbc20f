package chart

import (
	"fmt"
	"math"
)

// Cells is a map of what is in which place: groups of rows of cells. Rows flow into
// as many columns as make the picture about as wide as it is high.
type Cells struct {
	Title  string
	Groups []CellGroup
	Legend []CellEntry
}

// CellGroup is rows under a heading.
type CellGroup struct {
	Name string
	Rows []CellRow
}

// CellRow is one row with a label before and a note behind its cells.
type CellRow struct {
	Label, Note string
	Cells       []Cell
}

// Cell is one place. Without parts it is empty.
type Cell struct {
	// Parts fill the cell from the bottom; their shares add up to 1 at most.
	Parts []CellPart
	// Bar is a second measure from 0 to 1, drawn as a line below the cell; 0 for none.
	Bar float64
	// Crossed marks a place that cannot be used.
	Crossed bool
	// Title is what a reader sees who points at the cell.
	Title string
}

// CellPart is one occupant of a cell.
type CellPart struct {
	// Series chooses the colour, Key is the letter drawn where there is room.
	Series int
	Key    string
	Share  float64
	// Dashed marks a part that may as well be in another cell of the row.
	Dashed bool
}

// CellEntry is an entry of the legend.
type CellEntry struct {
	CellPart
	Name string
}

// Geometry of cells in pixels.
const (
	cellSize   = 26
	cellPitch  = 30
	rowPitch   = 36
	cellMargin = 16
	headPitch  = 28
	entryPitch = 20
	// leastText is the height of a part that has room for its key.
	leastText = 12
	// boldWidth is about the mean width of a bold character at fontSize.
	boldWidth = 8
	// deadColour is the colour of what cannot be used.
	deadColour = "#d9534f"
)

// cellLayout is where things are.
type cellLayout struct {
	columns                       int
	label, cells, note            int // widths
	column, width, height, legend int
	entry, perRow                 int // width of a legend's entry, entries in a row
}

// SVG renders the map.
func (m Cells) SVG() []byte {
	at := m.layout()
	var c canvas
	c.open(m.Title, cellMargin, at.width, at.height)
	y := 40
	for _, g := range m.Groups {
		y += headPitch
		fmt.Fprintf(&c, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", cellMargin, y-10, escape(g.Name))
		rows := (len(g.Rows) + at.columns - 1) / at.columns
		for i, row := range g.Rows {
			c.row(row, at, cellMargin+(i/rows)*at.column, y+(i%rows)*rowPitch)
		}
		y += rows * rowPitch
	}
	for i, e := range m.Legend {
		x, y := cellMargin+(i%at.perRow)*at.entry, at.legend+(i/at.perRow)*entryPitch
		c.cell(Cell{Parts: []CellPart{e.CellPart}}, x, y, 16)
		c.text(float64(x+24), float64(y+13), "start", e.Name)
	}
	return c.close()
}

// layout chooses the number of columns and measures everything.
func (m Cells) layout() cellLayout {
	var l cellLayout
	rows, widest := 0, textWidth(m.Title)*boldWidth/characterWidth*15/fontSize
	for _, g := range m.Groups {
		rows += len(g.Rows)
		widest = max(widest, textWidth(g.Name)*boldWidth/characterWidth)
		for _, row := range g.Rows {
			l.label = max(l.label, textWidth(row.Label)+10)
			l.cells = max(l.cells, len(row.Cells)*cellPitch)
			l.note = max(l.note, textWidth(row.Note)+10)
		}
	}
	l.column = l.label + l.cells + l.note + 2*cellMargin
	l.columns = max(1, int(math.Round(math.Sqrt(float64(rows*rowPitch)/float64(l.column)))))
	l.width = max(l.columns*l.column, widest+2*cellMargin)
	l.legend = 40 + cellMargin/2
	for _, g := range m.Groups {
		l.legend += headPitch + (len(g.Rows)+l.columns-1)/l.columns*rowPitch
	}
	for _, e := range m.Legend {
		l.entry = max(l.entry, textWidth(e.Name)+24+cellMargin)
	}
	l.width = max(l.width, l.entry+2*cellMargin)
	l.perRow = max(1, (l.width-2*cellMargin)/max(l.entry, 1))
	l.height = l.legend + (len(m.Legend)+l.perRow-1)/l.perRow*entryPitch + cellMargin
	return l
}

func textWidth(s string) int { return characterWidth*len([]rune(s)) + characterWidth }

func (c *canvas) row(row CellRow, at cellLayout, x, y int) {
	c.text(float64(x), float64(y+18), "start", row.Label)
	for i, cell := range row.Cells {
		c.cell(cell, x+at.label+i*cellPitch, y, cellSize)
	}
	c.text(float64(x+at.label+len(row.Cells)*cellPitch+6), float64(y+18), "start", row.Note)
}

// cell draws one cell of a size with its corner at x, y.
func (c *canvas) cell(cell Cell, x, y, size int) {
	c.WriteString("<g>")
	if cell.Title != "" {
		fmt.Fprintf(c, "<title>%s</title>", escape(cell.Title))
	}
	fmt.Fprintf(c, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#8882" stroke="%s"/>`, x, y, size, size, inkColour)
	bottom := float64(y + size)
	for _, part := range cell.Parts {
		high := part.Share * float64(size)
		bottom -= high
		dashes := ""
		if part.Dashed {
			dashes = fmt.Sprintf(` fill-opacity="0.55" stroke="%s" stroke-dasharray="3 3"`, inkColour)
		}
		fmt.Fprintf(c, `<rect x="%d" y="%s" width="%d" height="%s" rx="4" fill="%s"%s/>`, x, pixels(bottom), size, pixels(high), colour(part.Series), dashes)
		if high >= leastText {
			fmt.Fprintf(c, `<text x="%s" y="%s" text-anchor="middle" font-size="11" font-weight="600" fill="#fff">%s</text>`,
				pixels(float64(x)+float64(size)/2), pixels(bottom+high/2+4), escape(part.Key))
		}
	}
	if cell.Crossed {
		fmt.Fprintf(c, `<path d="M%d %dl%d %dm0 -%dl-%d %d" stroke="%s" stroke-width="2.5"/>`, x+5, y+5, size-10, size-10, size-10, size-10, size-10, deadColour)
	}
	if cell.Bar > 0 {
		fmt.Fprintf(c, `<path d="M%d %dh%s" stroke="%s" stroke-width="3"/>`, x, y+size+3, pixels(cell.Bar*float64(size)), inkColour)
	}
	c.WriteString("</g>\n")
}
