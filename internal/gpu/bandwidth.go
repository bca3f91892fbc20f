package gpu

import "math"

// This file is the bandwidth model: every figure in GB/s that the package uses,
// and where it comes from. All figures are for one direction.
//
// A collective runs as rings. What a set of GPUs is worth is what NCCL's rings
// can carry in it:
//
//   - Directly connected NVLinks: edge-disjoint rings through all GPUs of the
//     set run side by side, each at the bandwidth of one NVLink. Two GPUs are a
//     ring of their own for each link between them.
//   - NVLinks to a switch: every pair has all the links of its GPUs at once, so
//     one ring runs at the bandwidth of its slowest hop.
//   - Anything else: one ring at the bandwidth of its slowest hop, whatever the
//     other hops are.
//
// NVLink figures are nominal, as vendors and catalogues state them; NCCL reaches
// about 80 % (20 of 25 GB/s: SM70_NVLINK_BW and SM80_NVLINK_BW in NCCL's
// src/graph/topo.h). PCIe figures are what NCCL reaches. Both only rank sets on
// one machine, where NVLink is ahead either way.
//
// Left out: trees and NVLS (they do not tell the sets of a switched fabric
// apart), and hops that share one PCIe bridge or socket interconnect.

// nvlinkGBps is the nominal bandwidth of one NVLink by generation. NVIDIA's
// product pages: Pascal P100 4 × 20, Volta V100 6 × 25, Ampere A100 12 × 25,
// Hopper H100 18 × 25, Blackwell B200 18 × 50.
var nvlinkGBps = [...]float64{1: 20, 2: 25, 3: 25, 4: 25, 5: 50}

// NVLinkGBps returns the nominal bandwidth in GB/s of one NVLink of a generation
// (1 to 5) in one direction, 0 for any other.
func NVLinkGBps(generation int) float64 {
	if generation < 0 || generation >= len(nvlinkGBps) {
		return 0
	}
	return nvlinkGBps[generation]
}

// maxLinksPerGPU is the largest number of NVLinks that a GPU has (Hopper and
// Blackwell). A GPU that seems to have more shows the same links to every peer:
// they go to a switch.
const maxLinksPerGPU = 18

const (
	// pcieGen3GBps is a x16 slot of generation 3 without a host bridge on the way:
	// PCI_BW in NCCL's src/graph/topo.h; 10 to 12.5 measured in NVIDIA/nccl#814.
	// Each generation doubles it (20 to 25 measured on generation 4 there).
	pcieGen3GBps = 12
	// hostBridgeOverhead divides what a path through a CPU's host bridge carries:
	// INTEL_P2P_OVERHEAD in NCCL's src/graph/topo.h. It makes 20 GB/s on
	// generation 4, as measured in NVIDIA/nccl-tests#178 on three A100 PCIe GPUs.
	hostBridgeOverhead = 6.0 / 5
	// stagingOverhead divides what a path carries when the GPUs cannot reach each
	// other: each byte is written to host memory and read back. It makes 5 GB/s on
	// generation 3, as measured in NVIDIA/nccl#179.
	stagingOverhead = 2

	defaultPCIeGeneration = 3
)

// MaxPCIeGeneration is the newest generation of PCI Express that there is.
const MaxPCIeGeneration = 7

// socketGBps is the interconnect between sockets on platforms of a PCIe
// generation: 5 measured on generation 3 in NVIDIA/nccl#179 (BDW_QPI_BW in NCCL's
// src/graph/topo.h is 6), then SKL_QPI_BW 10 and SRP_QPI_BW 22 there.
func socketGBps(pcieGeneration int) float64 {
	switch {
	case pcieGeneration <= 3:
		return 5
	case pcieGeneration == 4:
		return 10
	default:
		return 22
	}
}

// pcieGBps returns what a PCIe path of a class carries.
func pcieGBps(class Class, pcieGeneration int) float64 {
	if pcieGeneration == 0 {
		pcieGeneration = defaultPCIeGeneration
	}
	slot := pcieGen3GBps * math.Exp2(float64(pcieGeneration-3))
	switch class {
	case PIX, PXB:
		return slot
	case PHB, NODE:
		return slot / hostBridgeOverhead
	default:
		return min(socketGBps(pcieGeneration), slot/hostBridgeOverhead)
	}
}

// stagedGBps returns what two GPUs exchange through host memory.
func stagedGBps(sameSocket bool, pcieGeneration int) float64 {
	path := SYS
	if sameSocket {
		path = NODE
	}
	return pcieGBps(path, pcieGeneration) / stagingOverhead
}
