package clusterchoice_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
)

func TestBest(t *testing.T) {
	on := func(gbps float64, nodes ...string) []placement.Placement {
		var p placement.Placement
		for _, node := range nodes {
			p.Assignments = append(p.Assignments, placement.Assignment{Node: node, Ring: gpu.Ring{GBps: gbps}})
		}
		return []placement.Placement{p}
	}
	assert.Equal(t, -1, clusterchoice.Best(nil))
	for name, offers := range map[string][]clusterchoice.Offer{ // the best first
		"the place that was promised": {
			{Cluster: "b", Term: 1, AsPlanned: true, Promised: true},
			{Cluster: "a", Weight: 2, AsPlanned: true},
		},
		"a promised cluster without the planned place": {
			{Cluster: "b", Weight: 1},
			{Cluster: "a", Promised: true},
		},
		"the policy's affinities": {
			{Cluster: "b", Term: 0, Weight: 1},
			{Cluster: "a", Term: 1, Weight: 2},
		},
		"the policy's weight": {
			{Cluster: "b", Weight: 2, Placements: on(10, "n", "m")},
			{Cluster: "a", Weight: 1, Placements: on(50, "n")},
		},
		"the slowest ring": {
			{Cluster: "b", Placements: slices.Concat(on(40, "n"), on(40, "m"))},
			{Cluster: "a", Placements: slices.Concat(on(50, "n"), on(10, "n"))},
		},
		"nodes without rings are not slow": {
			{Cluster: "b", Placements: slices.Concat(on(40, "n"), on(0, "m"))},
			{Cluster: "a", Placements: on(30, "n")},
		},
		"fewer nodes": {
			{Cluster: "b", Placements: slices.Concat(on(40, "n"), on(40, "n"))},
			{Cluster: "a", Placements: on(40, "n", "m")},
		},
		"the tighter fit": {
			{Cluster: "b", Placements: on(40, "n"), LeftGPUs: 1},
			{Cluster: "a", Placements: on(40, "n"), LeftGPUs: 4},
		},
		"natural order of names": {
			{Cluster: "member-2"}, {Cluster: "member-10"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 0, clusterchoice.Best(offers))
			slices.Reverse(offers)
			assert.Equal(t, len(offers)-1, clusterchoice.Best(offers))
		})
	}
}
