package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// SickGPU is a GPU that must not be used, and that a gang has all the same: it was well when the
// gang got it.
type SickGPU struct {
	Node string `json:"node"`
	// GPU is the NVML index.
	GPU    int    `json:"gpu"`
	Reason string `json:"reason"`
	// Members are those that run on it.
	Members []string `json:"members"`
}

// text is a line such as "GPU 6 of node v100-2 (worker-0): XID 79".
func (s SickGPU) text() string {
	return fmt.Sprintf("GPU %d of node %s (%s): %s", s.GPU, s.Node, strings.Join(s.Members, ", "), s.Reason)
}

// sickGPUs lists the sick GPUs that members run on, by node and index. Of GPUs that a node's
// device plugin picks nobody knows which member has which.
func sickGPUs(snapshot *clusterstate.Snapshot, running []placement.Assignment) (sick []SickGPU) {
	for _, member := range running {
		node, ok := snapshot.View.Node(member.Node)
		if !ok || node.GPUs == nil {
			continue
		}
		devices := node.GPUs.Machine().GPUs
		for _, at := range positions(member) {
			if at >= len(devices) || devices[at].Unhealthy == "" {
				continue
			}
			device := devices[at]
			i := slices.IndexFunc(sick, func(s SickGPU) bool { return s.Node == node.Name && s.GPU == device.Index })
			if i < 0 {
				i = len(sick)
				sick = append(sick, SickGPU{Node: node.Name, GPU: device.Index, Reason: device.Unhealthy})
			}
			sick[i].Members = append(sick[i].Members, member.Member)
		}
	}
	slices.SortFunc(sick, func(a, b SickGPU) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.GPU-b.GPU) })
	return sick
}

// positions are the GPUs of its node that a member has, wholly or in part, each once.
func positions(a placement.Assignment) []int {
	at := a.Own.GPUs()
	for _, share := range a.Shares {
		at = append(at, share.GPU)
	}
	slices.Sort(at)
	return slices.Compact(at)
}
