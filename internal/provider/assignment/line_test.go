package assignment_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

func TestOneLinePerMember(t *testing.T) {
	cases := map[string]assignment.Model{
		"v100[0] GPU 0-3: 150 GB/s, 4 NVLink rings":             {Node: "v100[0]", Cards: []int64{0, 1, 2, 3}, RingGBps: 150, NVLinkRings: 4},
		"v100[0] GPU 0,3: 25 GB/s, 1 NVLink ring":               {Node: "v100[0]", Cards: []int64{0, 3}, RingGBps: 25, NVLinkRings: 1},
		"cn-hangzhou.10.0.1.1 GPU 0,1,4-6: 12.5 GB/s over PCIe": {Node: "cn-hangzhou.10.0.1.1", Cards: []int64{0, 1, 4, 5, 6}, RingGBps: 12.5},
		"regular[11]: 5 GB/s guaranteed":                        {Node: "regular[11]", Cards: []int64{}, RingGBps: 5},
		"a10[0] GPU 7":                                          {Node: "a10[0]", Cards: []int64{7}},
		"n1":                                                    {Node: "n1", Cards: []int64{}},
	}
	for text, m := range cases {
		m.Member = "worker-0"
		assert.Equal(t, text, m.String())
		read, err := assignment.Parse("worker-0", text)
		require.NoError(t, err, text)
		assert.Equal(t, m, read)
	}
	for _, text := range []string{"", "n1 GPU", "n1 GPU a", "n1 GPU 3-1", "n1 somewhere", "n1: fast"} {
		_, err := assignment.Parse("worker-0", text)
		assert.Error(t, err, text)
	}
}

func TestMembersAreInOrder(t *testing.T) {
	models, err := assignment.From(map[string]string{"worker-10": "n", "worker-2": "n", "master-0": "n", "odd": "n"})
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
