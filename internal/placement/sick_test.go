package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// A verdict says that GPUs are sick where they would make room, and nowhere else.
func TestVerdictNamesSickGPUs(t *testing.T) {
	const silent = "the node agent is silent since 2026-05-04T12:00:00Z"
	sick := func(reasons map[int]string) *gpu.Table {
		m := v100().Machine()
		m.GPUs = append([]gpu.GPU(nil), m.GPUs...)
		for i := range m.GPUs {
			m.GPUs[i].MemoryMiB = 32 << 10
		}
		for i, reason := range reasons {
			m.GPUs[i].Unhealthy = reason
		}
		return tableOf(t, m)
	}
	all := map[int]string{}
	for i := range 8 {
		all[i] = silent
	}
	shared := placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 4, CorePercent: 50}
	large := shared
	large.MemoryGiB = 64
	greedy := wholeGPUs(1)
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
		"none is free": {placement.ModeTopology, []map[int]string{{0: "XID 79", 1: "XID 79", 2: "XID 48"}}, nil, wholeGPUs(1), 6, placement.SickGPUs,
			"1 node has no free GPU left but 3 that are sick (XID 79; XID 48)"},
		"one": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, nil, wholeGPUs(4), 2, placement.SickGPUs,
			"1 node has too few free GPUs left without 1 that is sick (XID 79)"},
		"silent": {placement.ModeTopology, []map[int]string{all, all}, nil, wholeGPUs(4), 1, placement.SickGPUs,
			"2 nodes have no free GPU left but 16 that are sick (" + silent + ")"},
		"many reasons": {placement.ModeTopology, []map[int]string{{0: "a", 1: "b", 2: "c"}}, nil, wholeGPUs(6), 1, placement.SickGPUs,
			"1 node has too few free GPUs left without 3 that are sick (a; b; others)"},
		"in use as well": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, []placement.Pod{{Own: gpu.SetOf(0, 1, 2, 3, 4, 5, 6, 7), Request: wholeGPUs(8)}}, wholeGPUs(1), 1,
			placement.NotEnoughGPUs, "1 node has no free GPU left"},
		"would not do": {placement.ModeTopology, []map[int]string{{0: "XID 79"}}, []placement.Pod{{Own: gpu.SetOf(4, 5, 6, 7), Request: wholeGPUs(4)}}, wholeGPUs(5), 1,
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
			v := topologyView(0)
			for i, reasons := range test.sick {
				v.SetNode(node("n"+string(rune('0'+i)), "v100", test.mode, sick(reasons)))
			}
			for _, pod := range test.held {
				pod.ID, pod.Node = "held", "n0"
				v.AddPod(pod)
			}
			reasons := v.Plan(gang("ns/job", test.members, test.asks)).Verdict.Reasons
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
	v := topologyView(0)
	m := v100().Machine()
	m.GPUs = append([]gpu.GPU(nil), m.GPUs...)
	m.GPUs[7].Unhealthy = "XID 79"
	v.SetNode(node("n0", "v100", placement.ModeTopology, tableOf(t, m)))
	first := v.Plan(gang("ns/first", 1, wholeGPUs(6)))
	require.NotNil(t, first.Placement)
	v.AddReservation(placement.Reservation{Gang: gang("ns/first", 1, wholeGPUs(6)), Placement: *first.Placement})
	reasons := v.Plan(gang("ns/second", 1, wholeGPUs(3))).Verdict.Reasons
	require.NotEmpty(t, reasons)
	assert.Equal(t, placement.NotEnoughGPUs, reasons[0].Code, reasons[0].Text)
}
