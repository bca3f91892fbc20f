package explanation

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestMemoryWords(t *testing.T) {
	for bytes, want := range map[int64]string{
		64 << 30: "64 GiB", 3 << 29: "1.5 GiB", 10 << 20: "10 MiB", 512 << 20: "512 MiB", 4 << 10: "4 KiB", 7: "7 B", 2 << 40: "2 TiB", 1 << 46: "at least 64 TiB",
	} {
		assert.Equal(t, want, memoryWords(bytes))
	}
}

func TestWordsOfARequest(t *testing.T) {
	r := placement.Request{Mode: placement.ModeTopology, GPUs: 2, Resources: placement.Resources{MilliCPU: 500, MemoryBytes: 1 << 30,
		Extended: map[string]int64{"aliyun/erdma": 1, "ephemeral-storage": 5 << 30, "hugepages-2Mi": 4 << 20}}}
	assert.Equal(t, "2 GPUs, mode topology, 0.5 CPU, 1 GiB memory, 1 aliyun/erdma, 5 GiB ephemeral-storage, 4 MiB hugepages-2Mi", Words(&r))
	more := placement.Request{Resources: placement.Resources{MilliCPU: placement.MostAsked, MemoryBytes: placement.MostAsked}}
	assert.Equal(t, "at least 70.37G CPU, at least 64 TiB memory", Words(&more), "9E of both")
	assert.Equal(t, " (at most 1 GiB of the 5 GiB that it asks for)", shortfall(placement.Rejection{Code: placement.NotEnoughOther, Detail: "ephemeral-storage"}, 2, 1<<30, &r))
}
