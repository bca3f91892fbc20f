package contract

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// AllocationVersion is the version of the [Allocation] record that this code writes.
const AllocationVersion = 1

// Allocation is the record of a pod's GPUs. The scheduler writes it in the same
// API call that binds the pod; the node agent follows it by pod UID and refuses
// anything else.
type Allocation struct {
	Version int `json:"version"`
	// Gang is "namespace/name" of the pod's gang, "" for a pod on its own.
	Gang string `json:"gang,omitempty"`
	Node string `json:"node"`
	// GPUs are the NVML indexes of the pod's own GPUs, ascending.
	GPUs []int `json:"gpus,omitempty"`
	// Visible are the NVML indexes of all GPUs of the gang on the node, ascending.
	Visible []int `json:"visible,omitempty"`
	// Shares are the parts of GPUs of a shared request.
	Shares []GPUShare `json:"shares,omitempty"`
	// RingGBps is the bandwidth of the best ring among Visible, GB/s in one direction.
	RingGBps float64 `json:"ringGBps,omitempty"`
	// NVLinkRings counts the edge-disjoint NVLink rings among Visible.
	NVLinkRings int `json:"nvlinkRings,omitempty"`
	// NotAsPlanned says why the gang is not where [PlannedPlacement] has it, "" when it is, or
	// when the pod was not planned.
	NotAsPlanned string `json:"notAsPlanned,omitempty"`
}

// GPUShare is a part of one GPU.
type GPUShare struct {
	GPU int `json:"gpu"`
	// MemoryGiB is GPU memory in GiB, CorePercent the compute share of the GPU (0: not limited).
	MemoryGiB   int64 `json:"memoryGiB"`
	CorePercent int64 `json:"corePercent,omitempty"`
}

// Annotations returns the annotations that carry the record, for a Binding.
func (a Allocation) Annotations() (map[string]string, error) {
	a.Version = AllocationVersion
	b, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode allocation record: %w", err)
	}
	annotations := map[string]string{AllocationAnnotation: string(b)}
	if len(a.GPUs) > 0 {
		annotations[GPUsAnnotation] = IndexList(a.GPUs)
	}
	if len(a.Visible) > 0 {
		annotations[VisibleAnnotation] = IndexList(a.Visible)
	}
	return annotations, nil
}

// AllocationFrom reads the record from a pod's annotations; ok is false when there is none.
func AllocationFrom(annotations map[string]string) (a Allocation, ok bool, err error) {
	if ok, err = readRecord(annotations, AllocationAnnotation, "an allocation record", &a, &a.Version, AllocationVersion); err != nil {
		return Allocation{}, ok, err
	}
	return a, ok, nil
}

// IndexList renders GPU indexes as a comma list: "0,1,4".
func IndexList(indexes []int) string {
	parts := make([]string, len(indexes))
	for i, x := range indexes {
		parts[i] = strconv.Itoa(x)
	}
	return strings.Join(parts, ",")
}
