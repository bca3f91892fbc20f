package contract

import (
	"encoding/json"
	"fmt"
)

// PlannedVersion is the version of the [PlannedPlacement] record that this code writes.
const PlannedVersion = 1

// PlannedPlacement is the record of where a plan puts the members of a gang. It is written
// on a job and on the pods of one of its roles; the scheduler keeps to it as long as every
// member has its place there.
type PlannedPlacement struct {
	Version int           `json:"version"`
	Nodes   []PlannedNode `json:"nodes"`
}

// PlannedNode is one node with the members that are planned there.
type PlannedNode struct {
	// Node is the node's name, or "pool[0]" for a node that did not exist at plan: the first
	// of the pool in the planner's order.
	Node string `json:"node"`
	// Members are the NVML indexes of each member's GPUs, ascending, by role and index as in
	// "worker-0"; none where the device plugin picks them.
	Members map[string][]int `json:"members"`
	// RingGBps is the bandwidth of the best ring among all GPUs of the gang on the node, in
	// GB/s and one direction; NVLinkRings counts the NVLink rings of which it is made.
	RingGBps    float64 `json:"ringGBps,omitempty"`
	NVLinkRings int     `json:"nvlinkRings,omitempty"`
}

// Text is the value of [PlannedPlacementAnnotation].
func (p PlannedPlacement) Text() (string, error) {
	p.Version = PlannedVersion
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode planned placement: %w", err)
	}
	return string(text), nil
}

// PlannedPlacementFrom reads the record from annotations; ok is false when there is none.
func PlannedPlacementFrom(annotations map[string]string) (p PlannedPlacement, ok bool, err error) {
	text, ok := annotations[PlannedPlacementAnnotation]
	if !ok {
		return PlannedPlacement{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return PlannedPlacement{}, true, fmt.Errorf("annotation %s is not a planned placement: %w", PlannedPlacementAnnotation, err)
	}
	if p.Version != PlannedVersion {
		return PlannedPlacement{}, true, fmt.Errorf("annotation %s has version %d; this program reads version %d", PlannedPlacementAnnotation, p.Version, PlannedVersion)
	}
	return p, true, nil
}
