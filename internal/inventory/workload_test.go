package inventory

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

var learnt = placement.Workload{
	{Mode: placement.ModeTopology, GPUs: 8, MilliCPU: 64_000}:                                              12,
	{Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 4}:                                                     3,
	{Mode: placement.ModeCoreMem, GPUs: 1, MemoryGiB: 8, CorePercent: 25, MilliCPU: 2_000}:                 1,
	{Mode: placement.ModeTopology, GPUs: 8, MilliCPU: 64_000, MemoryMiB: 1024, Nodes: "field:pool In a|b"}: 2,
}

func TestWorkloadRecord(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("east", 3600))
	data, err := WorkloadRecord(learnt, until)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"version": "1", "countedUntil": "2026-01-02T02:04:05Z", "demands": `[
{"pods":1,"mode":"core_mem","gpus":1,"memoryGiBPerGPU":8,"corePercentPerGPU":25,"milliCPU":2000},
{"pods":3,"mode":"share","gpus":2,"memoryGiBPerGPU":4,"milliCPU":0},
{"pods":12,"mode":"topology","gpus":8,"milliCPU":64000},
{"pods":2,"mode":"topology","gpus":8,"milliCPU":64000,"memoryMiB":1024,"nodes":"field:pool In a|b"}
]
`}, data)
	w, counted, err := WorkloadOf(&corev1.ConfigMap{Data: data})
	require.NoError(t, err)
	assert.Equal(t, learnt, w)
	assert.True(t, until.Equal(counted))
}

// Earlier versions counted what no machine can serve.
func TestWorkloadWithImpossibleDemands(t *testing.T) {
	data, err := WorkloadRecord(placement.Workload{{Mode: placement.ModeTopology, GPUs: 8}: 2, {Mode: placement.ModeTopology, GPUs: 1_000_000}: 1}, time.Time{})
	require.NoError(t, err)
	w, _, err := WorkloadOf(&corev1.ConfigMap{Data: data})
	require.NoError(t, err)
	assert.Equal(t, placement.Workload{{Mode: placement.ModeTopology, GPUs: 8}: 2}, w)
}

func TestUnreadableWorkloads(t *testing.T) {
	good, err := WorkloadRecord(learnt, time.Time{})
	require.NoError(t, err)
	for name, change := range map[string]map[string]string{
		"version 2":                        {"version": "2"},
		"countedUntil is no time":          {"countedUntil": "yesterday"},
		"demands is no list of demands":    {"demands": "eight"},
		"Mode:mig":                         {"demands": `[{"pods":1,"mode":"mig","gpus":1}]`},
		"Mode:topology GPUs:0":             {"demands": `[{"pods":1,"mode":"topology"}]`},
		"MemoryGiBPerGPU:-8":               {"demands": `[{"pods":1,"mode":"share","gpus":1,"memoryGiBPerGPU":-8}]`},
		"Mode:share GPUs:1 MemoryGiBPerGP": {"demands": `[{"pods":1,"mode":"share","gpus":1}]`},
		"CorePercentPerGPU:101":            {"demands": `[{"pods":1,"mode":"core_mem","gpus":1,"memoryGiBPerGPU":8,"corePercentPerGPU":101}]`},
		"Nodes:model":                      {"demands": `[{"pods":1,"mode":"topology","gpus":1,"nodes":"model"}]`},
		"Pods:0":                           {"demands": `[{"pods":0,"mode":"topology","gpus":1}]`},
		"Pods:9000000000000000000":         {"demands": `[{"pods":9000000000000000000,"mode":"topology","gpus":1}]`},
	} {
		data := maps.Clone(good)
		maps.Copy(data, change)
		if name == "version 2" {
			name = `version "2"`
		}
		_, _, err := WorkloadOf(&corev1.ConfigMap{Data: data})
		assert.ErrorContains(t, err, name)
	}
}

func TestDemandOf(t *testing.T) {
	asks := func(amounts map[corev1.ResourceName]string) *corev1.Pod {
		list := corev1.ResourceList{}
		for name, amount := range amounts {
			list[name] = resource.MustParse(amount)
		}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}}}
	}
	d, ok := DemandOf(asks(map[corev1.ResourceName]string{contract.ResourceTopologyGPU: "8", corev1.ResourceCPU: "64"}))
	assert.True(t, ok)
	assert.Equal(t, placement.Demand{Mode: placement.ModeTopology, GPUs: 8, MilliCPU: 64_000}, d)
	_, ok = DemandOf(asks(map[corev1.ResourceName]string{corev1.ResourceCPU: "64"}))
	assert.False(t, ok, "it asks for no GPU")
	_, ok = DemandOf(asks(map[corev1.ResourceName]string{contract.ResourceCorePercent: "50"}))
	assert.False(t, ok, "no node can serve it")
	d, ok = DemandOf(asks(map[corev1.ResourceName]string{contract.ResourceTopologyGPU: "64"}))
	assert.True(t, ok, "%+v", d)
	_, ok = DemandOf(asks(map[corev1.ResourceName]string{contract.ResourceTopologyGPU: "65"}))
	assert.False(t, ok, "no machine has as many GPUs")
	shared := asks(map[corev1.ResourceName]string{contract.ResourceGPUMemory: "1000000"})
	shared.Labels = map[string]string{contract.ResourceGPUCount: "1000000"}
	_, ok = DemandOf(shared)
	assert.False(t, ok, "no machine has as many GPUs to share")
}
