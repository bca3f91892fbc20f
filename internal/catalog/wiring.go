package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

func parseWirings() (map[string]gpu.Machine, error) {
	entries, err := files.ReadDir("wirings")
	if err != nil {
		return nil, err
	}
	wirings := map[string]gpu.Machine{}
	for _, e := range entries {
		raw, err := files.ReadFile("wirings/" + e.Name())
		if err != nil {
			return nil, err
		}
		m, err := gpu.ParseMachine(raw)
		if err != nil {
			return nil, fmt.Errorf("wiring %s: %w", e.Name(), err)
		}
		wirings[m.Name] = m
	}
	return wirings, nil
}

// Wiring returns the machine with the link graph of that name, for example
// "dgx1-v100". "dgx1-v100:0,1" is the slice of it with the GPUs 0 and 1, renumbered
// from 0, which is what a virtual machine on part of the GPUs sees.
// The machine is the caller's own copy.
func Wiring(name string) (gpu.Machine, bool) {
	base, list, sliced := strings.Cut(name, ":")
	m, ok := load().wirings[base]
	if !ok {
		return gpu.Machine{}, false
	}
	positions := make([]int, len(m.GPUs))
	for i := range positions {
		positions[i] = i
	}
	if sliced {
		positions, ok = parsePositions(list, len(m.GPUs))
		if !ok {
			return gpu.Machine{}, false
		}
	}
	m = slice(m, positions)
	m.Name = name
	return m, true
}

// parsePositions reads ascending GPU positions below n from "0,1,4".
func parsePositions(list string, n int) ([]int, bool) {
	var positions []int
	for _, field := range strings.Split(list, ",") {
		p, err := strconv.Atoi(field)
		if err != nil || p < 0 || p >= n || len(positions) > 0 && p <= positions[len(positions)-1] {
			return nil, false
		}
		positions = append(positions, p)
	}
	return positions, true
}

// slice returns a deep copy of m with only the GPUs at the given positions, numbered from 0.
func slice(m gpu.Machine, positions []int) gpu.Machine {
	gpus := make([]gpu.GPU, len(positions))
	for i, p := range positions {
		gpus[i] = m.GPUs[p]
		gpus[i].Index = i
	}
	m.Links, m.PCIeLinks = sliceMatrix(m.Links, positions), sliceMatrix(m.PCIeLinks, positions)
	nics := slices.Clone(m.NICs)
	for i := range nics {
		nics[i].Links = sliceRow(nics[i].Links, positions)
	}
	m.GPUs, m.P2P, m.NICs = gpus, m.P2P.At(positions), nics
	return m
}

func sliceMatrix(matrix [][]gpu.Link, positions []int) [][]gpu.Link {
	if matrix == nil {
		return nil
	}
	rows := make([][]gpu.Link, len(positions))
	for i, p := range positions {
		rows[i] = sliceRow(matrix[p], positions)
	}
	return rows
}

func sliceRow(row []gpu.Link, positions []int) []gpu.Link {
	if row == nil {
		return nil
	}
	out := make([]gpu.Link, len(positions))
	for i, p := range positions {
		out[i] = row[p]
	}
	return out
}

// Machine returns the hardware of an instance type: its wiring with the type's own
// GPU model, GPU memory and PCIe generation, and without the CPU lists and network
// devices of the reference machine, which are others in the cloud. ok is false when
// the type is not in the catalogue.
func Machine(instanceType string) (m gpu.Machine, ok bool) {
	it, ok := Lookup(instanceType)
	if !ok {
		return gpu.Machine{}, false
	}
	m, ok = Wiring(it.Wiring)
	if !ok {
		return gpu.Machine{}, false
	}
	m.Model, m.NICs = it.GPUModel, nil
	if it.PCIeGeneration != 0 {
		m.PCIeGeneration = it.PCIeGeneration
	}
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = it.GPUMemoryMiB
		m.GPUs[i].CPUAffinity = ""
	}
	return m, true
}

// SameGPUs reports whether machines of two instance types have the same GPUs with the same links.
func SameGPUs(instanceType, other string) bool {
	a, ok := Machine(instanceType)
	b, okOther := Machine(other)
	return ok && okOther && reflect.DeepEqual(a, b)
}
