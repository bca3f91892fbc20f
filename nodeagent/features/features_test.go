package features_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/features"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// reading is a machine with two H100 as its driver lists them.
func reading() hardware.Reading {
	detail := hardware.GPU{PCIClass: "0x030200", ComputeCapability: hardware.ComputeCapability{Major: 9}, MIG: hardware.MIG{Capable: true}}
	return hardware.Reading{
		Machine:       gpu.Machine{Model: "NVIDIA H100 80GB HBM3", GPUs: []gpu.GPU{{MemoryMiB: 81559}, {Index: 1, MemoryMiB: 81559}}},
		GPUs:          []hardware.GPU{detail, detail},
		DriverVersion: "550.107.02", CUDAVersion: hardware.CUDAVersion{Major: 12, Minor: 4}, MachineType: "Alibaba Cloud ECS",
	}
}

// The names are those of tests/expected-output.txt of GFD, but for the timestamp, and for vgpu.present, which is of virtual GPUs.
func TestLabels(t *testing.T) {
	assert.Equal(t, map[string]string{
		"nvidia.com/cuda.driver.major":            "550",
		"nvidia.com/cuda.driver.minor":            "107",
		"nvidia.com/cuda.driver.rev":              "02",
		"nvidia.com/cuda.runtime.major":           "12",
		"nvidia.com/cuda.runtime.minor":           "4",
		"nvidia.com/cuda.driver-version.major":    "550",
		"nvidia.com/cuda.driver-version.minor":    "107",
		"nvidia.com/cuda.driver-version.revision": "02",
		"nvidia.com/cuda.driver-version.full":     "550.107.02",
		"nvidia.com/cuda.runtime-version.major":   "12",
		"nvidia.com/cuda.runtime-version.minor":   "4",
		"nvidia.com/cuda.runtime-version.full":    "12.4",
		"nvidia.com/gpu.machine":                  "Alibaba-Cloud-ECS",
		"nvidia.com/gpu.count":                    "2",
		"nvidia.com/gpu.replicas":                 "1",
		"nvidia.com/gpu.sharing-strategy":         "none",
		"nvidia.com/gpu.product":                  "NVIDIA-H100-80GB-HBM3",
		"nvidia.com/gpu.memory":                   "81559",
		"nvidia.com/gpu.family":                   "hopper",
		"nvidia.com/gpu.mode":                     "compute",
		"nvidia.com/mig.capable":                  "true",
		"nvidia.com/gpu.compute.major":            "9",
		"nvidia.com/gpu.compute.minor":            "0",
		"nvidia.com/mps.capable":                  "false",
	}, features.Labels(reading()))
}

func TestLabelsThatDiffer(t *testing.T) {
	all := features.Labels(reading())
	for name, test := range map[string]struct {
		change func(*hardware.Reading)
		// want are the labels that differ, "-" for one that is not there.
		want map[string]string
	}{
		"a GPU does not answer": {func(r *hardware.Reading) { r.Machine.GPUs[0].MemoryMiB, r.GPUs[0] = 0, hardware.GPU{} }, map[string]string{contract.GFDCountLabel: "1"}},
		"all GPUs in MIG mode":  {func(r *hardware.Reading) { r.GPUs[0].MIG.Enabled, r.GPUs[1].MIG.Enabled = true, true }, map[string]string{contract.GFDReplicasLabel: "0"}},
		"one GPU in MIG mode":   {func(r *hardware.Reading) { r.GPUs[0].MIG.Enabled = true }, nil},
		"no MIG":                {func(r *hardware.Reading) { r.GPUs[0].MIG, r.GPUs[1].MIG = hardware.MIG{}, hardware.MIG{} }, map[string]string{contract.GFDMIGCapableLabel: "false"}},
		"a screen":              {func(r *hardware.Reading) { r.GPUs[0].PCIClass, r.GPUs[1].PCIClass = "0x030000", "0x030000" }, map[string]string{contract.GFDModeLabel: "graphics"}},
		"one with a screen":     {func(r *hardware.Reading) { r.GPUs[0].PCIClass = "0x030000" }, map[string]string{contract.GFDModeLabel: "unknown"}},
		"no machine type":       {func(r *hardware.Reading) { r.MachineType = "" }, map[string]string{contract.GFDMachineLabel: "unknown"}},
		"a short version":       {func(r *hardware.Reading) { r.DriverVersion = "550.107" }, map[string]string{contract.GFDOldDriverRevLabel: "", contract.GFDDriverRevisionLabel: "", contract.GFDDriverVersionLabel: "550.107"}},
		"no label's value":      {func(r *hardware.Reading) { r.MachineType = "To be filled by O.E.M." }, map[string]string{contract.GFDMachineLabel: "-"}},
		"signs":                 {func(r *hardware.Reading) { r.Machine.Model = "NVIDIA  Graphics (TM)/Device" }, map[string]string{contract.GFDProductLabel: "NVIDIA-Graphics-TMDevice"}},
		"an NVLink domain": {func(r *hardware.Reading) { r.GPUs[0].Clique, r.GPUs[1].Clique = "u.1", "u.1" },
			map[string]string{contract.NVLinkDomainLabel: "u.1"}},
		"two NVLink domains": {func(r *hardware.Reading) { r.GPUs[0].Clique, r.GPUs[1].Clique = "u.1", "u.2" }, nil},
		"an old driver": {func(r *hardware.Reading) { r.CUDAVersion, r.DriverVersion = hardware.CUDAVersion{}, "" }, map[string]string{
			contract.GFDOldDriverMajorLabel: "-", contract.GFDOldDriverMinorLabel: "-", contract.GFDOldDriverRevLabel: "-",
			contract.GFDDriverMajorLabel: "-", contract.GFDDriverMinorLabel: "-", contract.GFDDriverRevisionLabel: "-", contract.GFDDriverVersionLabel: "-",
			contract.GFDOldCUDAMajorLabel: "-", contract.GFDOldCUDAMinorLabel: "-", contract.GFDCUDAMajorLabel: "-", contract.GFDCUDAMinorLabel: "-", contract.GFDCUDAVersionLabel: "-",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(all)
			for key, value := range test.want {
				if want[key] = value; value == "-" {
					delete(want, key)
				}
			}
			r := reading()
			test.change(&r)
			assert.Equal(t, want, features.Labels(r))
		})
	}
}

func TestNoLabels(t *testing.T) {
	simulated, lost := reading(), reading()
	simulated.GPUs = nil
	lost.Machine.GPUs[0].MemoryMiB, lost.Machine.GPUs[1].MemoryMiB = 0, 0
	assert.Empty(t, features.Labels(simulated))
	assert.Empty(t, features.Labels(lost))
	assert.Empty(t, features.Labels(hardware.Reading{}))
}

func TestFamily(t *testing.T) {
	for capability, want := range map[hardware.ComputeCapability]string{
		{Major: 6}: "pascal", {Major: 7}: "volta", {Major: 7, Minor: 5}: "turing", {Major: 8, Minor: 6}: "ampere", {Major: 8, Minor: 9}: "ada-lovelace",
		{Major: 10, Minor: 3}: "blackwell", {Major: 12}: "blackwell", {Major: 13}: "rubin", {Major: 99}: "undefined",
	} {
		r := reading()
		r.GPUs[0].ComputeCapability = capability
		assert.Equal(t, want, features.Labels(r)[contract.GFDFamilyLabel], "%v", capability)
	}
}

func TestDiscovered(t *testing.T) {
	assert.False(t, features.Discovered(features.Labels(reading()), map[string]string{"nfd.node.kubernetes.io/feature-labels": "cpu-model.id"}))
	assert.True(t, features.Discovered(map[string]string{"nvidia.com/gfd.timestamp": "1724632719"}, nil))
	assert.True(t, features.Discovered(nil, map[string]string{"nfd.node.kubernetes.io/feature-labels": "cpu-model.id,nvidia.com/gpu.product"}))
	assert.True(t, features.Discovered(nil, map[string]string{"second.nfd.node.kubernetes.io/feature-labels": "nvidia.com/gpu.product"}))
}
