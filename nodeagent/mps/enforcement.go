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

// Enforcement tells whether parts of the GPUs of a machine can be enforced, and why not. One GPU that cannot be shared is
// enough: the scheduler may give out parts of it.
func (e *Enforcer) Enforcement(reading hardware.Reading) contract.GPUSharing {
	if err := missing(); err != nil {
		return contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: err.Error()}
	}
	var reasons []string
	for i, detail := range reading.GPUs {
		if reason := e.unfit(reading.Machine.GPUs[i].UUID, detail); reason != "" {
			reasons = append(reasons, fmt.Sprintf("GPU %d: %s", reading.Machine.GPUs[i].Index, reason))
		}
	}
	if len(reasons) > 0 {
		return contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: strings.Join(reasons, "; ")}
	}
	return contract.GPUSharing{Enforcement: contract.EnforcedByMPS}
}

// unfit says why MPS cannot share a GPU, "" when it can, or when the GPU does not answer, which is a matter of its health.
func (e *Enforcer) unfit(uuid string, detail hardware.GPU) string {
	switch {
	case detail.MIG.Enabled:
		return "it is split into MIG devices"
	case detail.ComputeCapability == (hardware.ComputeCapability{}):
		return ""
	case detail.ComputeCapability.Major < leastCapability:
		return fmt.Sprintf("its compute capability is %d.%d, and MPS limits clients from %d.0 on", detail.ComputeCapability.Major, detail.ComputeCapability.Minor, leastCapability)
	}
	e.modesMu.Lock()
	defer e.modesMu.Unlock()
	if e.settable[uuid] {
		return ""
	}
	// Whether the mode may be set shows when it is set to what it is.
	mode, err := e.Modes.ComputeMode(uuid)
	if err == nil {
		err = e.Modes.SetComputeMode(uuid, mode)
	}
	if err != nil {
		return err.Error()
	}
	e.settable[uuid] = true
	return ""
}
