package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// PlannedVersion is the version of the [PlannedPlacement] record that this code writes.
const PlannedVersion = 1

// PlannedPlacement is the record of where a plan puts the members of a gang. It is written
// on a job and on the pods of one of its roles; the scheduler keeps to it as long as every
// member has its place there.
type PlannedPlacement struct {
	Version int           `json:"version"`
	Nodes   []PlannedNode `json:"nodes"`
	// Cluster is the member cluster of a fleet in which the nodes are, "" for a job of no fleet.
	Cluster string `json:"cluster,omitempty"`
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
	const what = "a planned placement"
	if ok, err = readRecord(annotations, PlannedPlacementAnnotation, what, &p, &p.Version, PlannedVersion); err != nil || !ok {
		return PlannedPlacement{}, ok, err
	}
	if err := p.Check(); err != nil {
		return PlannedPlacement{}, true, fmt.Errorf("annotation %s is not %s: %w", PlannedPlacementAnnotation, what, err)
	}
	return p, true, nil
}

const (
	// longestName is the most bytes of a node's name, or of a pool's with an ordinal.
	longestName = 320
	// mostGPUs is the most GPUs of one machine.
	mostGPUs = 64
)

// Check refuses what no plan writes, so that nobody has to repeat it: anybody who may write
// pods may write the annotation.
func (p PlannedPlacement) Check() error {
	planned := map[string]bool{}
	for _, n := range p.Nodes {
		switch {
		case n.Node == "" || len(n.Node) > longestName || strings.ContainsFunc(n.Node, unicode.IsSpace):
			return fmt.Errorf("%.64q is no node", n.Node)
		case n.RingGBps < 0 || n.NVLinkRings < 0:
			return fmt.Errorf("node %q has a ring of %g GB/s and %d NVLink rings", n.Node, n.RingGBps, n.NVLinkRings)
		}
		for member, gpus := range n.Members {
			switch {
			case member == "" || len(member) > longestName:
				return fmt.Errorf("%.64q is no member", member)
			case planned[member]:
				return fmt.Errorf("member %.64q has two nodes", member)
			case len(gpus) > mostGPUs:
				return fmt.Errorf("member %.64q has %d GPUs, more than a machine", member, len(gpus))
			case slices.ContainsFunc(gpus, func(index int) bool { return index < 0 }):
				return fmt.Errorf("member %.64q has GPUs below 0", member)
			}
			planned[member] = true
		}
	}
	return nil
}
