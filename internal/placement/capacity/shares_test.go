package capacity

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Each member takes one share of as many different GPUs as it asks for.
func TestSharesOfSeveralGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		free        []int64
		gpus, share int64
		want        int
	}{
		"one GPU, by what each holds":     {[]int64{10, 5, 4}, 1, 5, 3},
		"two equal GPUs":                  {[]int64{10, 10}, 2, 5, 2},
		"one GPU cannot stand for two":    {[]int64{40, 5}, 2, 5, 1},
		"one GPU alone":                   {[]int64{40}, 2, 5, 0},
		"each GPU in turn":                {[]int64{10, 5, 5}, 2, 5, 2},
		"three of four, the last is full": {[]int64{15, 15, 15, 0}, 3, 5, 3},
	} {
		room := &Capacity{Mode: placement.ModeShare, pods: 100}
		for _, gib := range c.free {
			room.Shares, room.Sizes = append(room.Shares, GPU{gib, placement.FullCore}), append(room.Sizes, 40)
		}
		r := &placement.Request{Mode: placement.ModeShare, GPUs: int(c.gpus), MemoryGiB: c.gpus * c.share}
		assert.Equal(t, c.want, room.Fits(r, Unlimited), name)
		given := room.Take(r, c.want, nil)
		assert.Len(t, given, c.want, name)
		for _, shares := range given {
			assert.Len(t, shares, int(c.gpus), name)
		}
	}
}

// The driver keeps its headroom on every GPU, and what is left counts in whole GiB.
func TestHeadroomOfTheDriver(t *testing.T) {
	table, err := gpu.NewTable(gpu.Machine{
		Name:  "two GPUs",
		GPUs:  []gpu.GPU{{Index: 0, MemoryMiB: 16 << 10}, {Index: 1, MemoryMiB: 1 << 10}},
		Links: [][]gpu.Link{{{Class: gpu.Self}, {Class: gpu.SYS}}, {{Class: gpu.SYS}, {Class: gpu.Self}}},
	})
	require.NoError(t, err)
	for headroom, want := range map[int64][]GPU{
		0:       {{16, 100}, {1, 100}},
		1:       {{15, 100}, {0, 100}},
		1500:    {{14, 100}, {0, 100}},
		1 << 20: {{0, 100}, {0, 100}},
	} {
		n := &Node{Node: placement.Node{Mode: placement.ModeShare, GPUs: table, HeadroomMiB: headroom}}
		assert.Equal(t, want, n.Capacity().Shares, "%d MiB of headroom", headroom)
	}
}
