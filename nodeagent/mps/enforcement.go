package mps

import (
	"fmt"
	"os"
	"path/filepath"
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

// Unenforced tells of an agent that gives out parts of GPUs and does not enforce them that nobody does, unless ACK's cGPU is on the
// machine, which has a folder in procfs: whether that does is not known.
func Unenforced(procfs string) func(hardware.Reading) contract.GPUSharing {
	return func(hardware.Reading) contract.GPUSharing {
		if _, err := os.Stat(filepath.Join(procfs, "cgpu_km")); err == nil {
			return contract.GPUSharing{Enforcement: contract.EnforcementUnknown, Reason: "cGPU is on the machine, and the node agent does not know whether it enforces them"}
		}
		return contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: "the node agent was not told to enforce them (mps)"}
	}
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
