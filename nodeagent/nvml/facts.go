package nvml

import (
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// facts is what NVML says about a machine, before it is understood.
type facts struct {
	gpus []gpuFacts
	// paths are the PCIe paths by position of both GPUs.
	paths [][]gpu.Class
	// p2p is by position of both GPUs, too.
	p2p gpu.P2P
}

// gpuFacts is one GPU.
type gpuFacts struct {
	gpu gpu.GPU
	// lost means that the GPU does not answer, so that no path leads to it.
	lost   bool
	model  string
	detail hardware.GPU
	// nvlinks are the GPU's active NVLinks.
	nvlinks []nvlinkFacts
}

// nvlinkFacts is one active NVLink.
type nvlinkFacts struct {
	generation int
	// toSwitch means that the other end is a switch; remote is the PCI address of
	// the other end in the form of [gpu.GPU.PCIBusID].
	toSwitch bool
	remote   string
}

// machine understands the facts.
func (f facts) machine() gpu.Machine {
	m := gpu.Machine{P2P: f.p2p}
	n := len(f.gpus)
	hasNVLink := false
	for i, c := range f.gpus {
		m.GPUs = append(m.GPUs, c.gpu)
		if m.Model == "" {
			m.Model = c.model
		}
		m.PCIeGeneration = max(m.PCIeGeneration, c.detail.BestPCIe.Generation)
		for _, l := range c.nvlinks {
			m.NVLinkGBps = max(m.NVLinkGBps, gpu.NVLinkGBps(l.generation))
			m.NVSwitch = m.NVSwitch || l.toSwitch
		}
		m.Links = append(m.Links, make([]gpu.Link, n))
		m.PCIeLinks = append(m.PCIeLinks, make([]gpu.Link, n))
		for j, other := range f.gpus {
			path := gpu.Link{Class: f.paths[i][j]}
			if i == j {
				path.Class = gpu.Self
			}
			m.Links[i][j], m.PCIeLinks[i][j] = path, path
			if lanes := lanes(c, other); i != j && lanes > 0 {
				m.Links[i][j] = gpu.Link{Class: gpu.NVLink, Lanes: lanes}
				hasNVLink = true
			}
		}
	}
	if !hasNVLink {
		m.NVLinkGBps, m.NVSwitch, m.PCIeLinks = 0, false, nil
	}
	return m
}

// lanes counts the NVLinks from a GPU to another. A link to a switch names the
// switch, not the GPU behind it: behind switches, two GPUs have as many links
// between them as the one with fewer has to switches.
func lanes(from, to gpuFacts) int {
	if from.lost || to.lost {
		return 0
	}
	direct, fromSwitch, toSwitch := 0, 0, 0
	for _, l := range from.nvlinks {
		switch {
		case l.toSwitch:
			fromSwitch++
		case l.remote != "" && l.remote == to.gpu.PCIBusID:
			direct++
		}
	}
	for _, l := range to.nvlinks {
		if l.toSwitch {
			toSwitch++
		}
	}
	return direct + min(fromSwitch, toSwitch)
}

// nvlinkGeneration translates nvmlNvlinkVersion_t of nvml.h, which also counts
// the steps between generations. A version that is newer than this table is at least as
// fast as the newest one in it, and one that is not told is at least the first.
func nvlinkGeneration(version uint32) int {
	generations := [...]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}
	return generations[min(int(version), len(generations)-1)]
}

// clean makes text of what a driver wrote: everything that is published is valid UTF-8.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// busID brings a PCI address to the form "0000:06:00.0". NVML writes the domain
// with eight digits in newer structures and with four in older ones.
func busID(s string) (string, error) {
	parts := pciAddress.FindStringSubmatch(strings.TrimSpace(s))
	if parts == nil {
		return "", fmt.Errorf("%q is not a PCI address", s)
	}
	domain, _ := strconv.ParseUint(parts[1], 16, 32) // it has 8 digits at most
	return fmt.Sprintf("%04X:%s", domain, strings.ToUpper(parts[2])), nil
}

// pciAddress has the domain, and bus, device and function.
var pciAddress = regexp.MustCompile(`^([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$`)

// cpuList renders a bit mask of CPUs, lowest word first, in the format of cpuset: "0-19,40-59".
func cpuList(words []uint) string {
	var ranges []string
	start := -1
	for cpu := 0; cpu <= len(words)*bits.UintSize; cpu++ {
		set := cpu < len(words)*bits.UintSize && words[cpu/bits.UintSize]&(1<<(cpu%bits.UintSize)) != 0
		switch {
		case set && start < 0:
			start = cpu
		case !set && start == cpu-1 && start >= 0:
			ranges = append(ranges, strconv.Itoa(start))
			start = -1
		case !set && start >= 0:
			ranges = append(ranges, fmt.Sprintf("%d-%d", start, cpu-1))
			start = -1
		}
	}
	return strings.Join(ranges, ",")
}

// firstNode returns the lowest NUMA node of a bit mask, -1 for an empty one.
func firstNode(words []uint) int {
	for i, w := range words {
		if w != 0 {
			return i*bits.UintSize + bits.TrailingZeros(w)
		}
	}
	return -1
}
