package gpu

// fabric is the machine as the bandwidth model sees it: symmetric, in GB/s.
type fabric struct {
	gpus int
	// perLinkGBps is the bandwidth of one NVLink.
	perLinkGBps float64
	switched    bool
	// hops is the bandwidth of the direct path between two GPUs as one hop of a ring.
	hops [][]float64
	// lanes counts the NVLinks between two GPUs.
	lanes [][]int
}

// newFabric applies the bandwidth model to a valid machine.
func newFabric(m Machine) fabric {
	n := len(m.GPUs)
	f := fabric{gpus: n, perLinkGBps: m.NVLinkGBps, switched: m.NVSwitch, hops: make([][]float64, n), lanes: make([][]int, n)}
	for i := range n {
		f.hops[i] = make([]float64, n)
		f.lanes[i] = make([]int, n)
		total := 0
		for j := range n {
			if i == j {
				continue
			}
			link := weaker(m.Links[i][j], m.Links[j][i])
			f.hops[i][j] = hopGBps(m, i, j, link)
			f.lanes[i][j] = link.Lanes
			total += link.Lanes
		}
		f.switched = f.switched || total > maxLinksPerGPU
	}
	return f
}

// hopGBps returns the bandwidth of the path between GPUs i and j.
func hopGBps(m Machine, i, j int, link Link) float64 {
	switch {
	case link.Class == NVLink:
		return float64(link.Lanes) * m.NVLinkGBps
	case link.Class == None, m.P2P.refused(i, j):
		a, b := m.GPUs[i].NUMANode, m.GPUs[j].NUMANode
		return stagedGBps(a == b && a >= 0, m.PCIeGeneration)
	default:
		return pcieGBps(link.Class, m.PCIeGeneration)
	}
}

// rings returns the best ring of every set of a machine of at most maxExactGPUs GPUs.
func (f fabric) rings() []Ring {
	slowest := bottlenecks(f.hops)
	rings := make([]Ring, len(slowest))
	linked := f.linkedRings()
	for s := range rings {
		rings[s].GBps = slowest[s]
		if n := linked[s]; n > 0 && float64(n)*f.perLinkGBps >= slowest[s] {
			rings[s] = Ring{GBps: float64(n) * f.perLinkGBps, NVLinkRings: n}
		}
	}
	return rings
}

// linkedRings returns the number of NVLink rings of every set.
func (f fabric) linkedRings() []int {
	counts := make([]int, 1<<f.gpus)
	lanes := make([][]float64, f.gpus)
	for i, row := range f.lanes {
		lanes[i] = make([]float64, f.gpus)
		for j, n := range row {
			lanes[i][j] = float64(n)
		}
	}
	packer := newPacker(f.lanes)
	for s, slowest := range bottlenecks(lanes) {
		switch set := Set(s); {
		case slowest == 0 || f.switched || set.Len() == 2:
			counts[s] = int(slowest)
		default:
			counts[s] = packer.rings(set)
		}
	}
	return counts
}
