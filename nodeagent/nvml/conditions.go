//go:build cgo && linux

package nvml

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// history is what is remembered of a GPU between readings.
type history struct {
	// eccErrors is the count of uncorrectable errors, known once it was read.
	eccErrors uint64
	known     bool
	// energy is what the GPU had used, in millijoules.
	energy uint64
	// action is what the driver asked for last.
	action nvml.DeviceGpuRecoveryAction
	// generation is the best PCI Express generation seen.
	generation int
}

// conditions returns what holds for a GPU now, and what was counted since the last reading.
func (s *source) conditions(c *gpuFacts, device nvml.Device) []hardware.Signal {
	id := hardware.ID(c.gpu)
	past := s.history[id]
	if past == nil {
		past = &history{}
		s.history[id] = past
	}
	var signals []hardware.Signal
	for _, look := range []func(nvml.Device, *history, *gpuFacts) *hardware.Signal{
		s.rowRemapFailed, s.rowRemapPending, s.pagesPending, s.recoveryAction, s.eccErrors, s.fabric, s.pcie, s.heat,
	} {
		if signal := look(device, past, c); signal != nil {
			signal.GPU = id
			signals = append(signals, *signal)
		}
	}
	c.detail.MIG = s.mig(device)
	if s.lib.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := device.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			c.detail.ComputeCapability = hardware.ComputeCapability{Major: major, Minor: minor}
		}
	}
	c.detail.NVLinks = len(c.nvlinks)
	return signals
}

func (s *source) mig(device nvml.Device) hardware.MIG {
	if !s.lib.has("nvmlDeviceGetMigMode") {
		return hardware.MIG{}
	}
	current, pending, ret := device.GetMigMode()
	if ret != nvml.SUCCESS {
		return hardware.MIG{}
	}
	mig := hardware.MIG{Capable: true, Enabled: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}
	if mig.Enabled {
		mig.Profiles = s.migProfiles(device)
	}
	return mig
}

func (s *source) migProfiles(device nvml.Device) (profiles []string) {
	if !s.lib.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	for i := range s.count("nvmlDeviceGetMaxMigDeviceCount", device.GetMaxMigDeviceCount) {
		part, ret := device.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // there are fewer than there could be
		}
		if name, ret := part.GetName(); ret == nvml.SUCCESS { // "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
			profiles = append(profiles, clean(name[strings.LastIndexByte(name, ' ')+1:]))
		}
	}
	return profiles
}

func (s *source) rowRemapFailed(device nvml.Device, _ *history, _ *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetRemappedRows") {
		return nil
	}
	if _, _, _, failed, ret := device.GetRemappedRows(); ret != nvml.SUCCESS || !failed {
		return nil
	}
	return &hardware.Signal{Kind: hardware.RowRemapFailed}
}

func (s *source) rowRemapPending(device nvml.Device, _ *history, _ *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetRemappedRows") {
		return nil
	}
	if _, _, pending, _, ret := device.GetRemappedRows(); ret != nvml.SUCCESS || !pending {
		return nil
	}
	return &hardware.Signal{Kind: hardware.RowRemapPending}
}

func (s *source) pagesPending(device nvml.Device, _ *history, _ *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		return nil
	}
	if pending, ret := device.GetRetiredPagesPendingStatus(); ret != nvml.SUCCESS || pending != nvml.FEATURE_ENABLED {
		return nil
	}
	return &hardware.Signal{Kind: hardware.PagesPending}
}

// Recovery actions that the bindings do not have yet: those of NVML 595 and 615.
const (
	recoverIMEXDomain nvml.DeviceGpuRecoveryAction = 5
	busReset          nvml.DeviceGpuRecoveryAction = 6
	systemReboot      nvml.DeviceGpuRecoveryAction = 7
)

// actions are what newer drivers ask for that resets the GPU, and otherActions what does not.
var (
	actions = map[nvml.DeviceGpuRecoveryAction]string{
		nvml.GPU_RECOVERY_ACTION_GPU_RESET:       "the driver asks for a reset of the GPU",
		nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:     "the driver asks for a reboot of the node",
		nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "the driver asks to drain and reset the GPU",
		busReset:                                 "the driver asks for a reset of the GPU's bus",
		systemReboot:                             "the driver asks for a reboot of the system",
	}
	otherActions = map[nvml.DeviceGpuRecoveryAction]string{
		nvml.GPU_RECOVERY_ACTION_DRAIN_P2P: "the driver asks to end all peer-to-peer work of the GPU",
		recoverIMEXDomain:                  "the driver asks to recover the IMEX domain of the GPU",
	}
)

// recoveryAction asks newer drivers whether they want the GPU reset, the node
// rebooted, or something else. When one does not want a reset any more, it has happened.
func (s *source) recoveryAction(device nvml.Device, past *history, c *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetFieldValues") {
		return nil
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if device.GetFieldValues(values) != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return nil
	}
	_, asked := actions[past.action]
	past.action = nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4]))
	number := uint64(past.action)
	words, asks := actions[past.action]
	c.detail.NoAction = past.action == nvml.GPU_RECOVERY_ACTION_NONE
	switch {
	case asks:
		return &hardware.Signal{Kind: hardware.ResetRequired, Number: number, Detail: words}
	case !c.detail.NoAction:
		words = cmp.Or(otherActions[past.action], fmt.Sprintf("the driver asks for recovery action %d", number))
		return &hardware.Signal{Kind: hardware.ActionRequired, Number: number, Detail: words}
	case asked:
		return &hardware.Signal{Kind: hardware.WasReset}
	}
	return nil
}

// eccErrors counts uncorrectable memory errors. The driver counts from the GPU's last
// reset: whether there are more at the first reading than an earlier agent has seen, others know. A lower count shows a reset where the count of
// energy is lower, too: people clear that of errors.
func (s *source) eccErrors(device nvml.Device, past *history, c *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetTotalEccErrors") {
		return nil
	}
	count, ret := device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	if ret != nvml.SUCCESS {
		return nil
	}
	c.detail.UncorrectableErrors = new(int64(min(count, math.MaxInt64)))
	restarted := s.restarted(device, past)
	before, known := past.eccErrors, past.known
	past.eccErrors, past.known = count, true
	switch {
	case known && count > before:
		signal := hardware.MemoryErrors(hardware.ID(c.gpu), count-before)
		return &signal
	case known && count < before && restarted:
		return &hardware.Signal{Kind: hardware.WasReset}
	}
	return nil
}

// restarted tells whether the GPU's count of energy has begun again since the last reading.
func (s *source) restarted(device nvml.Device, past *history) bool {
	if !s.lib.has("nvmlDeviceGetTotalEnergyConsumption") {
		return false
	}
	energy, ret := device.GetTotalEnergyConsumption()
	if ret != nvml.SUCCESS {
		return false
	}
	before := past.energy
	past.energy = energy
	return energy < before
}

// fabricStates are the words for how far a GPU has joined its NVSwitch fabric.
var fabricStates = map[uint8]string{
	nvml.GPU_FABRIC_STATE_NOT_STARTED: "NotStarted",
	nvml.GPU_FABRIC_STATE_IN_PROGRESS: "InProgress",
	nvml.GPU_FABRIC_STATE_COMPLETED:   "Completed",
}

func (s *source) fabric(device nvml.Device, _ *history, c *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetGpuFabricInfoV") {
		return nil
	}
	info, ret := device.GetGpuFabricInfoV().V2()
	if ret != nvml.SUCCESS {
		return nil
	}
	c.detail.Fabric = fabricStates[info.State]
	if info.State == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(info.Status) == nvml.SUCCESS && info.ClusterUuid != [16]uint8{} {
		u := info.ClusterUuid
		c.detail.Clique = fmt.Sprintf("%x-%x-%x-%x-%x.%d", u[:4], u[4:6], u[6:8], u[8:10], u[10:], info.CliqueId)
	}
	healthOf := func(shift, width uint32) uint32 { return info.HealthMask >> shift & width }
	switch {
	case c.detail.Fabric == "":
		return nil
	case info.State != nvml.GPU_FABRIC_STATE_COMPLETED:
		return &hardware.Signal{Kind: hardware.FabricNotReady, Detail: "the GPU has not joined its NVSwitch fabric: " + c.detail.Fabric + " (does the fabric manager run?)"}
	case nvml.Return(info.Status) != nvml.SUCCESS:
		return &hardware.Signal{Kind: hardware.FabricUnhealthy, Detail: fmt.Sprintf("the GPU could not join its NVSwitch fabric: error %d", info.Status)}
	case healthOf(nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY) == nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE,
		healthOf(nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ACCESS_TIMEOUT_RECOVERY) == nvml.GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_TRUE,
		healthOf(nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION) > nvml.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE:
		return &hardware.Signal{Kind: hardware.FabricUnhealthy}
	case healthOf(nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW) == nvml.GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE,
		healthOf(nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_RECOVERY) == nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_TRUE:
		return &hardware.Signal{Kind: hardware.FabricDegraded}
	}
	return nil
}

// maxPCIeWidth is the most lanes that PCI Express has.
const maxPCIeWidth = 32

// pcie reads the GPU's PCI Express connection. An idle GPU saves power by a slower
// one, so that only its width is judged then. What cannot be, as the ones that every register of a GPU reads that
// has fallen off the bus, is told and counts as unknown.
func (s *source) pcie(device nvml.Device, past *history, c *gpuFacts) *hardware.Signal {
	best := hardware.PCIe{
		Generation: s.count("nvmlDeviceGetMaxPcieLinkGeneration", device.GetMaxPcieLinkGeneration),
		Width:      s.count("nvmlDeviceGetMaxPcieLinkWidth", device.GetMaxPcieLinkWidth),
	}
	now := hardware.PCIe{
		Generation: s.count("nvmlDeviceGetCurrPcieLinkGeneration", device.GetCurrPcieLinkGeneration),
		Width:      s.count("nvmlDeviceGetCurrPcieLinkWidth", device.GetCurrPcieLinkWidth),
	}
	for _, connection := range []hardware.PCIe{best, now} {
		if connection.Generation > gpu.MaxPCIeGeneration || connection.Width > maxPCIeWidth {
			return &hardware.Signal{Kind: hardware.PCIeDegraded, Detail: fmt.Sprintf(
				"the driver tells a PCI Express connection that cannot be: gen%d x%d of gen%d x%d", now.Generation, now.Width, best.Generation, best.Width)}
		}
	}
	past.generation = max(past.generation, now.Generation)
	c.detail.PCIe, c.detail.BestPCIe = hardware.PCIe{Generation: past.generation, Width: now.Width}, best
	switch {
	case now.Width > 0 && now.Width < best.Width:
		return &hardware.Signal{Kind: hardware.PCIeDegraded, Detail: fmt.Sprintf("PCI Express is x%d of x%d wide", now.Width, best.Width)}
	case now.Generation > 0 && now.Generation < best.Generation && s.busy(device):
		return &hardware.Signal{Kind: hardware.PCIeDegraded, Detail: fmt.Sprintf("PCI Express runs at generation %d of %d under load", now.Generation, best.Generation)}
	}
	return nil
}

// count calls a function of the library if there is one; 0 is unknown.
func (s *source) count(symbol string, read func() (int, nvml.Return)) int {
	if !s.lib.has(symbol) {
		return 0
	}
	n, ret := read()
	if ret != nvml.SUCCESS {
		return 0
	}
	return n
}

// busyPercent is from which utilisation on a GPU is under load.
const busyPercent = 10

func (s *source) busy(device nvml.Device) bool {
	if !s.lib.has("nvmlDeviceGetUtilizationRates") {
		return false
	}
	used, ret := device.GetUtilizationRates()
	return ret == nvml.SUCCESS && used.Gpu >= busyPercent
}

// heat tells whether the GPU is so hot that it slows down. The words do not change with
// each degree, since what changes is published.
func (s *source) heat(device nvml.Device, _ *history, _ *gpuFacts) *hardware.Signal {
	if !s.lib.has("nvmlDeviceGetTemperature") || !s.lib.has("nvmlDeviceGetTemperatureThreshold") {
		return nil
	}
	limit, ret := device.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	if ret != nvml.SUCCESS || limit == 0 {
		return nil
	}
	if now, ret := device.GetTemperature(nvml.TEMPERATURE_GPU); ret != nvml.SUCCESS || now < limit {
		return nil
	}
	return &hardware.Signal{Kind: hardware.Overheated, Detail: fmt.Sprintf("the GPU is at %d °C or more and slows down", limit)}
}
