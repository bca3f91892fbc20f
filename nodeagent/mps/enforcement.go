package mps

import (
	"fmt"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// leastCapability is the first compute capability, Volta's, whose clients can have limits (NVIDIA, "Multi-Process Service":
// execution resource provisioning).
const leastCapability = 7

// leastCUDA is the first version of CUDA whose MPS limits memory (NVIDIA, "Multi-Process Service": set_default_device_pinned_mem_limit).
var leastCUDA = hardware.CUDAVersion{Major: 11, Minor: 5}

// Enforcement tells whether parts of the GPUs of a machine can be enforced, and why not. One GPU that cannot be shared is
// enough: the scheduler may give out parts of it.
func (e *Enforcer) Enforcement(reading hardware.Reading) contract.GPUSharing {
	if err := missing(); err != nil {
		return contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: err.Error()}
	}
	version := reading.CUDAVersion
	if version != (hardware.CUDAVersion{}) && (version.Major < leastCUDA.Major || version.Major == leastCUDA.Major && version.Minor < leastCUDA.Minor) {
		return contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: fmt.Sprintf(
			"driver %s has CUDA %d.%d, and MPS limits memory from %d.%d on", reading.DriverVersion, version.Major, version.Minor, leastCUDA.Major, leastCUDA.Minor)}
	}
	var uuids, reasons []string
	for i, detail := range reading.GPUs {
		if detail.ComputeCapability != (hardware.ComputeCapability{}) && unfit(detail) == "" {
			uuids = append(uuids, reading.Machine.GPUs[i].UUID)
		}
	}
	unsettable := e.unsettable(uuids)
	for i, detail := range reading.GPUs {
		device := reading.Machine.GPUs[i]
		reason := unfit(detail)
		if fault := unsettable[device.UUID]; fault != nil {
			reason = fault.Error()
		}
		if reason == "" {
			reason = e.refusal(device.UUID)
		}
		if reason != "" {
			reasons = append(reasons, fmt.Sprintf("GPU %d: %s", device.Index, reason))
		}
	}
	if len(reasons) > 0 {
		return contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: strings.Join(reasons, "; ")}
	}
	return contract.GPUSharing{Enforcement: contract.EnforcedByMPS}
}

// unfit says why MPS cannot share such a GPU, "" when it can, or when the GPU does not answer, which is a matter of its health.
func unfit(detail hardware.GPU) string {
	switch {
	case detail.MIG.Enabled:
		return "it is split into MIG devices"
	case detail.ComputeCapability != (hardware.ComputeCapability{}) && detail.ComputeCapability.Major < leastCapability:
		return fmt.Sprintf("its compute capability is %d.%d, and MPS limits clients from %d.0 on", detail.ComputeCapability.Major, detail.ComputeCapability.Minor, leastCapability)
	}
	return ""
}

// refusal is what a daemon of the GPU has answered when it was told limits, "" when it took them, or there was none.
func (e *Enforcer) refusal(uuid string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.gpus[uuid]; d != nil {
		return d.refusal
	}
	return ""
}
