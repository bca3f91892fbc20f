package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// drawJobs draws, for every job with GPUs of its own, the link graph of each of
// its nodes with the chosen GPUs.
func drawJobs(w io.Writer, jobs snapshot) error {
	for _, j := range jobs {
		machine, ok := catalog.Wiring(j.wiring)
		if !ok {
			continue
		}
		byNode := map[string][]int{}
		for _, m := range j.actual {
			for _, device := range m.GPUs {
				byNode[m.Node] = append(byNode[m.Node], int(device))
			}
		}
		nodes := make([]string, 0, len(byNode))
		for node := range byNode {
			nodes = append(nodes, node)
		}
		sort.Strings(nodes)
		for _, node := range nodes {
			fmt.Fprintf(w, "\n%s on %s (%s, %s)\n", j.Name, node, machine.Name, machine.Model)
			if err := draw(w, machine, byNode[node]); err != nil {
				return err
			}
		}
	}
	return nil
}

// draw prints the matrix of links with the chosen GPUs in brackets: links
// between chosen GPUs in capitals, other NVLinks in small letters, the rest as
// dots; below it the rings.
func draw(w io.Writer, m gpu.Machine, chosen []int) error {
	fmt.Fprint(w, "       ")
	for i := range m.GPUs {
		fmt.Fprintf(w, "%-5s", mark(i, chosen))
	}
	fmt.Fprintln(w)
	for i := range m.GPUs {
		fmt.Fprintf(w, "  %-5s", mark(i, chosen))
		for k := range m.GPUs {
			link := m.Links[i][k]
			cell := "·"
			switch {
			case i == k:
				cell = " "
			case slices.Contains(chosen, i) && slices.Contains(chosen, k):
				cell = link.String()
			case link.Class == gpu.NVLink:
				cell = strings.ToLower(link.String())
			}
			fmt.Fprintf(w, "%-5s", cell)
		}
		fmt.Fprintln(w)
	}
	table, err := gpu.NewTable(m)
	if err != nil {
		return fmt.Errorf("draw the rings of %s: %w", m.Name, err)
	}
	for n, ring := range table.NVLinkRings(gpu.SetOf(chosen...)) {
		hops := make([]string, 0, len(ring)+1)
		for _, device := range append(slices.Clone(ring), ring[0]) {
			hops = append(hops, fmt.Sprint(device))
		}
		fmt.Fprintf(w, "  NVLink ring %d: %s\n", n+1, strings.Join(hops, " ═ "))
	}
	return nil
}

func mark(device int, chosen []int) string {
	if slices.Contains(chosen, device) {
		return fmt.Sprintf("[%d]", device)
	}
	return fmt.Sprintf(" %d", device)
}
