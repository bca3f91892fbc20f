package assignment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

func TestOneLinePerNode(t *testing.T) {
	type M = assignment.Model
	for text, members := range map[string][]M{
		"worker-0 GPU 0-3: 150 GB/s, 4 NVLink rings": {{Member: "worker-0", GPUs: []int64{0, 1, 2, 3}, RingGBps: 150, NVLinkRings: 4}},
		"worker-0..1 GPU 0,3: 25 GB/s, 1 NVLink ring": {
			{Member: "worker-0", GPUs: []int64{0}, RingGBps: 25, NVLinkRings: 1}, {Member: "worker-1", GPUs: []int64{3}, RingGBps: 25, NVLinkRings: 1},
		},
		"worker-9..10 GPU 0-3: 12.5 GB/s over PCIe": {
			{Member: "worker-9", GPUs: []int64{0, 1}, RingGBps: 12.5}, {Member: "worker-10", GPUs: []int64{2, 3}, RingGBps: 12.5},
		},
		"master-0 GPU 7; worker-0 GPU 0; worker-1 GPU 0": {
			{Member: "master-0", GPUs: []int64{7}}, {Member: "worker-0", GPUs: []int64{0}}, {Member: "worker-1", GPUs: []int64{0}},
		},
		"worker-0..1 GPU 0,3; worker-2 GPU 1: 50 GB/s, 2 NVLink rings; worker-3 GPU 5: 25 GB/s, 1 NVLink ring; launcher-0": {
			{Member: "launcher-0", GPUs: []int64{}},
			{Member: "worker-0", GPUs: []int64{0}, RingGBps: 50, NVLinkRings: 2}, {Member: "worker-1", GPUs: []int64{3}, RingGBps: 50, NVLinkRings: 2},
			{Member: "worker-2", GPUs: []int64{1}, RingGBps: 50, NVLinkRings: 2}, {Member: "worker-3", GPUs: []int64{5}, RingGBps: 25, NVLinkRings: 1},
		},
		"worker-0..1: 5 GB/s guaranteed": {{Member: "worker-0", GPUs: []int64{}, RingGBps: 5}, {Member: "worker-1", GPUs: []int64{}, RingGBps: 5}},
		"odd":                            {{Member: "odd", GPUs: []int64{}}},
	} {
		for i := range members {
			members[i].Node = "v100[0]"
		}
		assert.Equal(t, map[string]string{"v100[0]": text}, assignment.Lines(members))
		read, err := assignment.From(map[string]string{"v100[0]": text})
		require.NoError(t, err, text)
		assert.Equal(t, members, read)
	}
	for _, text := range []string{"", "w-0 GPU", "w-0 GPU a", "w-0 GPU 3-1", "w-0 somewhere", "w-0: fast", "w-2..1", "odd..1", "w-0..1 GPU 0-2", "w-0..99999999"} {
		_, err := assignment.From(map[string]string{"n": text})
		assert.Error(t, err, text)
	}
}

// What is written of any placement is what is read of it.
func TestLinesAreReadAsWritten(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var models []assignment.Model
		each := random.IntN(3)
		for _, role := range []string{"master", "worker"} {
			for i := range random.IntN(14) {
				m := assignment.Model{Member: fmt.Sprintf("%s-%d", role, i), Node: fmt.Sprintf("n%d", random.IntN(3)), GPUs: []int64{}}
				for len(m.GPUs) < each {
					if gpu := random.Int64N(8); !slices.Contains(m.GPUs, gpu) {
						m.GPUs = append(m.GPUs, gpu)
					}
				}
				slices.Sort(m.GPUs)
				if m.RingGBps = float64(random.IntN(3)) * 12.5; m.RingGBps > 0 && each > 0 {
					m.NVLinkRings = random.Int64N(3)
				}
				models = append(models, m)
			}
		}
		lines := assignment.Lines(models)
		read, err := assignment.From(lines)
		require.NoError(t, err, "%v", lines)
		require.ElementsMatch(t, models, read, "%v", lines)
	}
}

func TestMembersAreInOrder(t *testing.T) {
	models, err := assignment.From(map[string]string{"n1": "worker-10; worker-2", "n2": "master-0; odd"})
	require.NoError(t, err)
	var members []string
	for _, m := range models {
		members = append(members, m.Member)
	}
	assert.Equal(t, []string{"master-0", "odd", "worker-2", "worker-10"}, members)
}

func TestRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		numbers := []int64{}
		for n := range int64(64) {
			if random.IntN(3) > 0 {
				numbers = append(numbers, n)
			}
		}
		read, err := assignment.FromRanges(assignment.Ranges(numbers))
		require.NoError(t, err)
		require.Equal(t, numbers, read)
	}
}
