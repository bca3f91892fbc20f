package explain

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/chart"
)

// WriteText writes the map as tables, one per pool: a letter stands for a gang, "·"
// for a free GPU, "✗" for one that is not used.
func (m GPUMap) WriteText(w io.Writer) error {
	var p page
	for i, pool := range m.Pools {
		if i > 0 {
			p.print("")
		}
		p.print("%s", pool.Heading())
		head := []string{"NODE", "FREE"}
		for _, c := range pool.Nodes[0].GPUs {
			head = append(head, fmt.Sprint(c.Index))
		}
		rows := [][]string{head}
		for _, n := range pool.Nodes {
			row := []string{n.Name, strings.TrimSuffix(pool.summary(n), " free")}
			for _, c := range n.GPUs {
				row = append(row, pool.cell(c))
			}
			if n.Cordoned {
				row = append(row, "cordoned")
			}
			rows = append(rows, row)
		}
		p.table("  ", rows)
	}
	m.notes(&p)
	return p.writeTo(w)
}

// cell is a GPU in the table: "a", or "ab 20/32 60%" of a shared GPU.
func (p Pool) cell(c GPU) string {
	var keys string
	for _, h := range c.Holders {
		if k := key(h.Holder); !strings.HasSuffix(keys, k) {
			keys += k
		}
		if h.Guessed {
			keys += "?"
		}
	}
	memoryGiB, corePercent := c.used()
	if memoryGiB > 0 {
		keys += fmt.Sprintf(" %d/%d", memoryGiB, p.GPUGiB)
	}
	if corePercent > 0 {
		keys += fmt.Sprintf(" %d%%", corePercent)
	}
	switch {
	case c.Unhealthy != "":
		return "✗" + keys
	case keys == "":
		return "·"
	}
	return keys
}

// notes explain the letters and list what is wrong.
func (m GPUMap) notes(p *page) {
	var rows [][]string
	guessed := false
	for i, h := range m.Holders {
		rows = append(rows, []string{key(i), h.Gang, count(h.Pods, "pod"), h.gpus(), h.confirmation()})
	}
	var wrong []string
	for _, h := range m.Holders {
		for _, differs := range h.Differs {
			wrong = append(wrong, "! "+differs)
		}
	}
	for _, pool := range m.Pools {
		for _, n := range pool.Nodes {
			if n.Unsure {
				wrong = append(wrong, fmt.Sprintf("? %s: a pod that another scheduler bound, or that was bound in another mode of the node, has GPUs, nobody knows which; no more of the node are given away until it has ended", n.Name))
			}
			for _, c := range n.GPUs {
				if c.Unhealthy != "" {
					wrong = append(wrong, fmt.Sprintf("✗ %s GPU %d: %s", n.Name, c.Index, c.Unhealthy))
				}
				for _, h := range c.Holders {
					guessed = guessed || h.Guessed && !n.Unsure
				}
			}
		}
	}
	if len(rows) > 0 {
		p.print("")
		p.table("  ", rows)
	}
	if guessed {
		p.print("  ? the node's device plugin picks the GPU; it may be another one of the node")
	}
	for _, line := range wrong {
		p.print("  %s", line)
	}
	if m.Bare > 0 {
		p.print("")
		p.print("%s without GPUs.", count(m.Bare, "node"))
	}
}

// gpus says how many GPUs the holder is on.
func (h Holder) gpus() string { return count(h.GPUs, "GPU") }

// confirmation says of how many pods the node agents have confirmed what they were given, "" of none.
func (h Holder) confirmation() string {
	switch h.Confirmed {
	case 0:
		return ""
	case h.Pods:
		return "confirmed"
	}
	return fmt.Sprintf("%d of %d confirmed", h.Confirmed, h.Pods)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// SVG draws the map.
func (m GPUMap) SVG() []byte {
	c := chart.Cells{Title: "GPUs and who is on them"}
	for _, pool := range m.Pools {
		group := chart.CellGroup{Name: pool.Heading()}
		for _, n := range pool.Nodes {
			row := chart.CellRow{Label: n.Name, Note: pool.summary(n)}
			if n.Cordoned {
				row.Note += ", cordoned"
			}
			for _, gpu := range n.GPUs {
				row.Cells = append(row.Cells, m.draw(pool, gpu))
			}
			group.Rows = append(group.Rows, row)
		}
		c.Groups = append(c.Groups, group)
	}
	for i, h := range m.Holders {
		c.Legend = append(c.Legend, chart.CellEntry{
			CellPart: chart.CellPart{Series: i, Key: key(i), Share: 1},
			Name:     fmt.Sprintf("%s: %s on %s", h.Gang, count(h.Pods, "pod"), h.gpus()),
		})
	}
	return c.SVG()
}

// draw makes the cell of a GPU: whole, or filled by memory from the bottom.
func (m GPUMap) draw(p Pool, c GPU) chart.Cell {
	cell := chart.Cell{Crossed: c.Unhealthy != ""}
	lines := []string{fmt.Sprintf("GPU %d", c.Index)}
	for _, h := range c.Holders {
		part := chart.CellPart{Series: h.Holder, Key: key(h.Holder), Share: 1, Dashed: h.Guessed}
		text := h.Pod
		if h.MemoryGiB > 0 && p.GPUGiB > 0 {
			part.Share = float64(h.MemoryGiB) / float64(p.GPUGiB)
			text += fmt.Sprintf(": %d of %d GiB", h.MemoryGiB, p.GPUGiB)
		}
		if h.CorePercent > 0 {
			text += fmt.Sprintf(", %d %% of its cores", h.CorePercent)
			cell.Bar += float64(h.CorePercent) / 100
		}
		cell.Parts = append(cell.Parts, part)
		lines = append(lines, text)
	}
	if c.Unhealthy != "" {
		lines = append(lines, "not used: "+c.Unhealthy)
	}
	if c.Free() {
		lines = append(lines, "free")
	}
	cell.Title = strings.Join(lines, "\n")
	return cell
}
