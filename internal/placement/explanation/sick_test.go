package explanation_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// A verdict says that GPUs are sick where they would make room, and nowhere else.
func TestVerdictNamesSickGPUs(t *testing.T) {
	const silent = "the node agent is silent since 2026-05-04T12:00:00Z"
	sick := func(reasons map[int]string) *gpu.Table {
		m := placementtest.V100().Machine()
		m.GPUs = append([]gpu.GPU(nil), m.GPUs...)
		for i := range m.GPUs {
			m.GPUs[i].MemoryMiB = 32 << 10
		}
		for i, reason := range reasons {
			m.GPUs[i].Unhealthy = reason
		}
		return placementtest.TableOf(t, m)
	}
	all := map[int]string{}
	for i := range 8 {
		all[i] = silent
	}
	shared := placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 4, CorePercent: 50}
	large := shared
	large.MemoryGiB = 64
	greedy := placementtest.WholeGPUs(1)
	greedy.MilliCPU = 1 << 40
	for name, test := range map[string]struct {
		mode    placement.Mode
		sick    []map[int]string
		held    []placement.Pod
		asks    placement.Request
		members int
		code    placement.Code
		says    string
	}{
		"none is free": {placement.ModeTopology, []map[int]string{{0: "XID 79", 1: "XID 79", 2: "XID 48"}}, nil, placementtest.WholeGPUs(1), 6, placement.SickGPUs,
			"1 node has no free GPU left but 3 that are sick (XID 79; XID 48)"},
		"one": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, nil, placementtest.WholeGPUs(4), 2, placement.SickGPUs,
			"1 node has too few free GPUs left without 1 that is sick (XID 79)"},
		"silent": {placement.ModeTopology, []map[int]string{all, all}, nil, placementtest.WholeGPUs(4), 1, placement.SickGPUs,
			"2 nodes have no free GPU left but 16 that are sick (" + silent + ")"},
		"many reasons": {placement.ModeTopology, []map[int]string{{0: "a", 1: "b", 2: "c"}}, nil, placementtest.WholeGPUs(6), 1, placement.SickGPUs,
			"1 node has too few free GPUs left without 3 that are sick (a; b; others)"},
		"in use as well": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, []placement.Pod{{Own: gpu.SetOf(0, 1, 2, 3, 4, 5, 6, 7), Request: placementtest.WholeGPUs(8)}}, placementtest.WholeGPUs(1), 1,
			placement.NotEnoughGPUs, "1 node has no free GPU left"},
		"would not do": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, []placement.Pod{{Own: gpu.SetOf(4, 5, 6, 7), Request: placementtest.WholeGPUs(4)}}, placementtest.WholeGPUs(5), 1,
			placement.NotEnoughGPUs, "1 node has too few free GPUs left"},
		"default": {placement.ModeDefault, []map[int]string{{0: "XID 79"}}, nil, placement.Request{Mode: placement.ModeDefault, GPUs: 8}, 1, placement.SickGPUs,
			"1 node has too few free GPUs left without 1 that is sick (XID 79)"},
		"default, unknown which": {placement.ModeDefault, []map[int]string{all}, []placement.Pod{{Request: placement.Request{Mode: placement.ModeDefault, GPUs: 8}}},
			placement.Request{Mode: placement.ModeDefault, GPUs: 1}, 1, placement.NotEnoughGPUs, "1 node has no free GPU left"},
		"shared": {placement.ModeCoreMem, []map[int]string{all}, nil, shared, 1, placement.SickGPUs,
			"1 node has no GPU with enough memory or cores left but 8 that are sick (" + silent + ")"},
		"shared, too large": {placement.ModeCoreMem, []map[int]string{all}, nil, large, 1, placement.NotEnoughShare,
			"1 node has no GPU with enough memory or cores left"},
		"something else": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, nil, greedy, 1, placement.NotEnoughCPU, "1 node has too little CPU left"},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(0)
			for i, reasons := range test.sick {
				v.SetNode(placementtest.Node("n"+string(rune('0'+i)), "v100", test.mode, sick(reasons)))
			}
			for _, pod := range test.held {
				pod.ID, pod.Node = "held", "n0"
				v.AddPod(pod)
			}
			reasons := planner.Plan(v, placementtest.Gang("ns/job", test.members, test.asks)).Verdict.Reasons
			require.NotEmpty(t, reasons)
			assert.Equal(t, test.code, reasons[0].Code)
			assert.Contains(t, reasons[0].Text, test.says)
			if test.code != placement.SickGPUs {
				assert.NotContains(t, reasons[0].Text, "sick")
			}
		})
	}
}

// What a reservation holds is not put down to sick GPUs.
func TestReservedRoomIsNotSick(t *testing.T) {
	v := placementtest.TopologyView(0)
	m := placementtest.V100().Machine()
	m.GPUs = append([]gpu.GPU(nil), m.GPUs...)
	m.GPUs[7].Unhealthy = "XID 79"
	v.SetNode(placementtest.Node("n0", "v100", placement.ModeTopology, placementtest.TableOf(t, m)))
	first := planner.Plan(v, placementtest.Gang("ns/first", 1, placementtest.WholeGPUs(6)))
	require.NotNil(t, first.Placement)
	v.AddReservation(placement.Reservation{Gang: placementtest.Gang("ns/first", 1, placementtest.WholeGPUs(6)), Placement: *first.Placement})
	reasons := planner.Plan(v, placementtest.Gang("ns/second", 1, placementtest.WholeGPUs(3))).Verdict.Reasons
	require.NotEmpty(t, reasons)
	assert.Equal(t, placement.NotEnoughGPUs, reasons[0].Code, reasons[0].Text)
}
