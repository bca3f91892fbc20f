//go:build cgo && linux

package nvml

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Usage reads how much the GPUs are used. GPUs that do not answer are left out: [source.Read] tells of them.
func (s *source) Usage(context.Context) ([]hardware.Usage, error) {
	release, err := s.lib.use()
	if err != nil {
		return nil, err
	}
	defer release()
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs: %w", ret)
	}
	var all []hardware.Usage
	for i := range count {
		device, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		entry, err := identify(i, device)
		if err != nil {
			continue
		}
		used := hardware.Usage{GPU: hardware.ID(entry), Index: i, Values: map[hardware.Quantity]float64{}, Processes: s.processes(device)}
		for _, measure := range measures {
			if s.lib.has(measure.symbol) {
				measure.read(device, used.Values)
			}
		}
		all = append(all, used)
	}
	return all, nil
}

// measures read quantities, each by a function that not every driver has.
var measures = []struct {
	symbol string
	read   func(nvml.Device, map[hardware.Quantity]float64)
}{
	{"nvmlDeviceGetUtilizationRates", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if used, ret := d.GetUtilizationRates(); ret == nvml.SUCCESS {
			values[hardware.Utilization] = float64(used.Gpu) / 100
		}
	}},
	{"nvmlDeviceGetMemoryInfo", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if memory, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
			values[hardware.MemoryUsed], values[hardware.MemoryTotal] = float64(memory.Used), float64(memory.Total)
		}
	}},
	{"nvmlDeviceGetPowerUsage", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if milliwatts, ret := d.GetPowerUsage(); ret == nvml.SUCCESS {
			values[hardware.Power] = float64(milliwatts) / 1e3
		}
	}},
	{"nvmlDeviceGetTemperature", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if degrees, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
			values[hardware.Temperature] = float64(degrees)
		}
	}},
	{"nvmlDeviceGetClockInfo", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if megahertz, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
			values[hardware.Clock] = float64(megahertz) * 1e6
		}
	}},
	{"nvmlDeviceGetCurrentClocksThrottleReasons", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if reasons, ret := d.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS {
			slowedBy(reasons, values)
		}
	}},
	{"nvmlDeviceGetTotalEnergyConsumption", func(d nvml.Device, values map[hardware.Quantity]float64) {
		if millijoules, ret := d.GetTotalEnergyConsumption(); ret == nvml.SUCCESS {
			values[hardware.Energy] = float64(millijoules) / 1e3
		}
	}},
	{"nvmlDeviceGetTotalEccErrors", func(d nvml.Device, values map[hardware.Quantity]float64) {
		for quantity, kind := range map[hardware.Quantity]nvml.MemoryErrorType{
			hardware.ECCCorrected: nvml.MEMORY_ERROR_TYPE_CORRECTED, hardware.ECCUncorrected: nvml.MEMORY_ERROR_TYPE_UNCORRECTED,
		} {
			if errors, ret := d.GetTotalEccErrors(kind, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
				values[quantity] = float64(errors)
			}
		}
	}},
	{"nvmlDeviceGetFieldValues", nvlinkTraffic},
}

// slowedBy tells which of the driver's reasons for a lower clock hold. The driver has others that are as it should be, such as an
// idle GPU.
func slowedBy(reasons uint64, values map[hardware.Quantity]float64) {
	for quantity, bits := range map[hardware.Quantity]uint64{
		hardware.SlowedByPower:    nvml.ClocksThrottleReasonSwPowerCap,
		hardware.SlowedByHeat:     nvml.ClocksThrottleReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown,
		hardware.SlowedByHardware: nvml.ClocksThrottleReasonHwPowerBrakeSlowdown,
	} {
		values[quantity] = 0
		if reasons&bits != 0 {
			values[quantity] = 1
		}
	}
}

// nvlinkTraffic reads the counters of all links together, which the driver has in KiB.
func nvlinkTraffic(d nvml.Device, values map[hardware.Quantity]float64) {
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: math.MaxUint32},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: math.MaxUint32},
	}
	if d.GetFieldValues(fields) != nvml.SUCCESS {
		return
	}
	for i, quantity := range []hardware.Quantity{hardware.NVLinkReceived, hardware.NVLinkSent} {
		if nvml.Return(fields[i].NvmlReturn) == nvml.SUCCESS {
			values[quantity] = float64(binary.NativeEndian.Uint64(fields[i].Value[:])) * 1024
		}
	}
}

// recently is how far back the samples are read that tell what a process uses: the driver keeps older ones of a process that
// does nothing any more.
const recently = 10 * time.Second

// processes are those that compute on a GPU, by themselves or as clients of MPS.
func (s *source) processes(device nvml.Device) (all []hardware.Process) {
	at, clients := map[int]int{}, map[int]bool{}
	for _, list := range []struct {
		symbol string
		read   func() ([]nvml.ProcessInfo, nvml.Return)
		mps    bool
	}{
		{"nvmlDeviceGetComputeRunningProcesses", device.GetComputeRunningProcesses, false},
		{"nvmlDeviceGetMPSComputeRunningProcesses", device.GetMPSComputeRunningProcesses, true},
	} {
		if !s.lib.has(list.symbol) {
			continue
		}
		found, ret := list.read()
		if ret != nvml.SUCCESS {
			continue
		}
		for _, p := range found {
			pid := int(p.Pid)
			clients[pid] = clients[pid] || list.mps
			if _, known := at[pid]; known {
				continue // some drivers list the clients of MPS among the others
			}
			at[pid] = len(all)
			process := hardware.Process{PID: pid, Utilization: -1}
			if p.UsedGpuMemory != math.MaxUint64 { // the driver's word for unknown
				process.Memory = p.UsedGpuMemory
			}
			all = append(all, process)
		}
	}
	if len(all) == 0 || !s.lib.has("nvmlDeviceGetProcessUtilization") {
		return all
	}
	samples, ret := device.GetProcessUtilization(uint64(time.Now().Add(-recently).UnixMicro()))
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND { // what it says where there are no samples
		return all
	}
	latest := map[int]uint64{}
	for _, sample := range samples {
		pid := int(sample.Pid)
		if i, known := at[pid]; known && sample.TimeStamp >= latest[pid] && sample.SmUtil <= 100 {
			latest[pid], all[i].Utilization = sample.TimeStamp, float64(sample.SmUtil)/100
		}
	}
	for i, p := range all {
		if _, sampled := latest[p.PID]; !sampled && !clients[p.PID] { // of clients there are none, whatever they do
			all[i].Utilization = 0
		}
	}
	return all
}
