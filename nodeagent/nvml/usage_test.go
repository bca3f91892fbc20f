//go:build cgo && linux

package nvml

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

func TestUsage(t *testing.T) {
	f := build(t, folder)
	s, stop := f.start()
	defer stop()
	for name, text := range map[string]string{"busy": "2 90", "memory": "2 512", "throttle": "2 68", "hot": "2 71", "ecc": "2 4", "pid": "2 77", "client": "2 78", "lost": "5"} {
		f.set(name, text)
		defer f.unset(name)
	}
	all, err := s.Usage(context.Background())
	require.NoError(t, err)
	require.Len(t, all, 7, "the GPU that does not answer is left out")
	assert.Equal(t, hardware.Usage{
		GPU: id(2), Index: 2,
		Values: map[hardware.Quantity]float64{
			hardware.Utilization: 0.9, hardware.MemoryUsed: 512 << 20, hardware.MemoryTotal: 32 << 30,
			hardware.Power: 61.5, hardware.Temperature: 71, hardware.Clock: 1.38e9, hardware.Energy: 5,
			hardware.SlowedByPower: 1, hardware.SlowedByHeat: 1, hardware.SlowedByHardware: 0,
			hardware.ECCCorrected: 4, hardware.ECCUncorrected: 4,
			hardware.NVLinkReceived: 1002 << 10, hardware.NVLinkSent: 2002 << 10,
		},
		Processes: []hardware.Process{{PID: 77, Memory: 256 << 20, Utilization: 0.3}, {PID: 78, Memory: 256 << 20, Utilization: -1}},
	}, all[2])
	assert.Empty(t, all[0].Processes)

	f.set("quiet", "2 60")
	defer f.unset("quiet")
	all, err = s.Usage(context.Background())
	require.NoError(t, err)
	assert.Equal(t, []hardware.Process{{PID: 77, Memory: 256 << 20}, {PID: 78, Memory: 256 << 20, Utilization: -1}}, all[2].Processes, "one does nothing, the other may")
	assert.Zero(t, all[0].Values[hardware.SlowedByPower], "an idle GPU is not slowed down")
}
