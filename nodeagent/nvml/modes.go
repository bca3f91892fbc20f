//go:build cgo && linux

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Modes reads and sets compute modes of the GPUs of this machine.
type Modes struct{ lib *library }

// NewModes returns the modes of this machine. A driver that is missing or not loaded yet is an error of its methods.
func NewModes() *Modes { return &Modes{lib: newLibrary()} }

var computeModes = map[nvml.ComputeMode]hardware.ComputeMode{
	nvml.COMPUTEMODE_DEFAULT:           hardware.DefaultMode,
	nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  hardware.ExclusiveThread,
	nvml.COMPUTEMODE_PROHIBITED:        hardware.Prohibited,
	nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: hardware.ExclusiveProcess,
}

// ComputeMode returns the mode of a GPU.
func (m *Modes) ComputeMode(uuid string) (mode hardware.ComputeMode, err error) {
	err = m.device(uuid, func(device nvml.Device) nvml.Return {
		found, ret := device.GetComputeMode()
		mode = computeModes[found]
		return ret
	})
	if err != nil {
		return "", fmt.Errorf("read the compute mode of GPU %s: %w", uuid, err)
	}
	if mode == "" {
		return "", fmt.Errorf("the driver has a compute mode of GPU %s that this program does not know", uuid)
	}
	return mode, nil
}

// SetComputeMode sets the mode of a GPU, which takes root. It stays until the driver is loaded again or the GPU is reset.
func (m *Modes) SetComputeMode(uuid string, mode hardware.ComputeMode) error {
	for number, name := range computeModes {
		if name != mode {
			continue
		}
		if err := m.device(uuid, func(device nvml.Device) nvml.Return { return device.SetComputeMode(number) }); err != nil {
			return fmt.Errorf("set the compute mode of GPU %s to %s (does the node agent run as root?): %w", uuid, mode, err)
		}
		return nil
	}
	return fmt.Errorf("%q is not a compute mode", mode)
}

// device calls a GPU by its UUID.
func (m *Modes) device(uuid string, call func(nvml.Device) nvml.Return) error {
	release, err := m.lib.use()
	if err != nil {
		return err
	}
	device, ret := m.lib.DeviceGetHandleByUUID(uuid)
	if ret == nvml.SUCCESS {
		ret = call(device)
	}
	if ret != nvml.SUCCESS {
		err = fmt.Errorf("%w", ret) // while NVML is there, which has the words
	}
	release()
	if driverIsGone(ret) {
		m.lib.close(ret)
	}
	return err
}
