// Package features is what NVIDIA's GPU feature discovery (GFD) would say of a machine by labels of its Node, by which
// workloads select nodes. Names and values are those of GFD 0.20 with its MIG strategy "none", where no GPU is shared
// (NVIDIA/k8s-device-plugin, internal/lm).
package features

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Labels returns the labels of a machine as its driver lists the GPUs, none without GPUs and for simulated ones. GPUs that
// do not answer are not counted. Facts that the driver does not tell have no labels, nor have those whose value is none
// that a label can have.
func Labels(reading hardware.Reading) map[string]string {
	labels := map[string]string{}
	if len(reading.GPUs) == 0 {
		return labels
	}
	var memory int64
	var answering []hardware.GPU
	for i, device := range reading.Machine.GPUs {
		if device.MemoryMiB > 0 { // else it does not answer
			if answering = append(answering, reading.GPUs[i]); memory == 0 {
				memory = device.MemoryMiB
			}
		}
	}
	if len(answering) == 0 {
		return labels
	}
	labels[contract.GFDProductLabel] = clean(reading.Machine.Model)
	labels[contract.GFDCountLabel] = strconv.Itoa(len(answering))
	labels[contract.GFDReplicasLabel] = replicas(answering)
	labels[contract.GFDSharingStrategyLabel] = "none"
	labels[contract.GFDMemoryLabel] = strconv.FormatInt(memory, 10)
	labels[contract.GFDModeLabel] = mode(answering)
	labels[contract.GFDMachineLabel] = "unknown"
	if reading.MachineType != "" {
		labels[contract.GFDMachineLabel] = clean(reading.MachineType)
	}
	labels[contract.GFDMIGCapableLabel] = strconv.FormatBool(slices.ContainsFunc(answering, func(d hardware.GPU) bool { return d.MIG.Capable }))
	labels[contract.GFDMPSCapableLabel] = "false" // "true" starts NVIDIA's own control daemon of MPS
	maps.Copy(labels, capability(answering[0].ComputeCapability))
	maps.Copy(labels, driver(reading.DriverVersion))
	maps.Copy(labels, cuda(reading.CUDAVersion))
	if clique := clique(answering); clique != "" {
		labels[contract.NVLinkDomainLabel] = clique
	}
	// Node feature discovery leaves these out, too.
	maps.DeleteFunc(labels, func(_, value string) bool { return len(validation.IsValidLabelValue(value)) > 0 })
	return labels
}

// Discovered tells whether GFD writes the labels of a Node, by the Node's labels and annotations.
func Discovered(labels, annotations map[string]string) bool {
	if _, ok := labels[contract.GFDTimestampLabel]; ok {
		return true
	}
	for key, value := range annotations {
		if strings.HasSuffix(key, contract.NFDLabelsAnnotation) && strings.Contains(value, contract.GFDProductLabel) {
			return true
		}
	}
	return false
}

var unprintable = regexp.MustCompile("[^A-Za-z0-9-_. ]")

// clean makes a label's value of a name, as GFD does.
func clean(name string) string {
	return strings.Join(strings.Fields(unprintable.ReplaceAllString(name, "")), "-")
}

// replicas is how often each GPU is offered: GPUs that are split into MIG devices are not.
func replicas(gpus []hardware.GPU) string {
	if slices.ContainsFunc(gpus, func(d hardware.GPU) bool { return !d.MIG.Enabled }) {
		return "1"
	}
	return "0"
}

// mode is what the GPUs are made for, by their class on PCI.
func mode(gpus []hardware.GPU) string {
	words := map[string]string{"0x030000": "graphics", "0x030200": "compute"}
	class := gpus[0].PCIClass
	if words[class] == "" || slices.ContainsFunc(gpus, func(d hardware.GPU) bool { return d.PCIClass != class }) {
		return "unknown"
	}
	return words[class]
}

func capability(c hardware.ComputeCapability) map[string]string {
	if c.Major == 0 {
		return nil
	}
	return map[string]string{
		contract.GFDFamilyLabel:       family(c),
		contract.GFDComputeMajorLabel: strconv.Itoa(c.Major),
		contract.GFDComputeMinorLabel: strconv.Itoa(c.Minor),
	}
}

func family(c hardware.ComputeCapability) string {
	switch {
	case c.Major == 7 && c.Minor >= 5:
		return "turing"
	case c.Major == 8 && c.Minor >= 9:
		return "ada-lovelace"
	}
	families := map[int]string{
		1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell", 13: "rubin",
	}
	if name := families[c.Major]; name != "" {
		return name
	}
	return "undefined"
}

// driver are the labels of a driver's version: X.Y or X.Y.Z.
func driver(version string) map[string]string {
	parts := strings.Split(version, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return nil
	}
	revision := ""
	if len(parts) == 3 {
		revision = parts[2]
	}
	return map[string]string{
		contract.GFDOldDriverMajorLabel: parts[0], contract.GFDOldDriverMinorLabel: parts[1], contract.GFDOldDriverRevLabel: revision,
		contract.GFDDriverMajorLabel: parts[0], contract.GFDDriverMinorLabel: parts[1], contract.GFDDriverRevisionLabel: revision,
		contract.GFDDriverVersionLabel: version,
	}
}

func cuda(version hardware.CUDAVersion) map[string]string {
	if version.Major == 0 {
		return nil
	}
	major, minor := strconv.Itoa(version.Major), strconv.Itoa(version.Minor)
	return map[string]string{
		contract.GFDOldCUDAMajorLabel: major, contract.GFDOldCUDAMinorLabel: minor,
		contract.GFDCUDAMajorLabel: major, contract.GFDCUDAMinorLabel: minor,
		contract.GFDCUDAVersionLabel: fmt.Sprintf("%s.%s", major, minor),
	}
}

// clique is the NVLink domain that the GPUs have joined, "" unless it is one.
func clique(gpus []hardware.GPU) string {
	found := ""
	for _, device := range gpus {
		switch {
		case device.Clique == "" || device.Clique == found:
		case found != "":
			return ""
		default:
			found = device.Clique
		}
	}
	return found
}
