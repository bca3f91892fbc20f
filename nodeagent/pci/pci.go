// Package pci finds the RDMA network devices of a machine and how far each is
// from the GPUs on PCI Express, from Linux's sysfs.
package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

// NICs returns the RDMA network devices under a sysfs tree, normally "/sys", with
// the path class to each GPU, in GPU order; [gpu.None] to a GPU whose PCI
// address is unknown. A machine without such devices has none.
func NICs(sysfs string, gpus []gpu.GPU) ([]gpu.NIC, error) {
	devices, err := rdmaDevices(sysfs)
	if err != nil {
		return nil, err
	}
	places := placesOf(sysfs, gpus)
	var nics []gpu.NIC
	for name, here := range devices {
		nic := gpu.NIC{Name: name, Links: make([]gpu.Link, len(gpus))}
		for i, device := range places {
			nic.Links[i].Class = classBetween(here, device)
		}
		nics = append(nics, nic)
	}
	slices.SortFunc(nics, func(a, b gpu.NIC) int { return natural.Compare(a.Name, b.Name) })
	return nics, nil
}

// rdmaDevices are where the RDMA devices are, by name; none without devices.
func rdmaDevices(sysfs string) (map[string]place, error) {
	folder := filepath.Join(sysfs, "class", "infiniband")
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	devices := map[string]place{}
	for _, entry := range entries {
		devices[entry.Name()] = locate(filepath.Join(folder, entry.Name(), "device"))
	}
	return devices, nil
}

// placesOf are where GPUs are, in their order.
func placesOf(sysfs string, gpus []gpu.GPU) []place {
	places := make([]place, len(gpus))
	for i, device := range gpus {
		if device.PCIBusID != "" {
			places[i] = locate(filepath.Join(sysfs, "bus", "pci", "devices", strings.ToLower(device.PCIBusID)))
		}
	}
	return places
}

// place is where a device is.
type place struct {
	// path has the host bridge, the bridges on the way, and the device; empty when unknown.
	path []string
	// numa is the device's NUMA node, -1 when unknown.
	numa int
}

// locate finds the place of a device from its link in sysfs.
func locate(link string) place {
	unknown := place{numa: -1}
	target, err := filepath.EvalSymlinks(link)
	if err != nil {
		return unknown
	}
	_, below, ok := strings.Cut(target, "/devices/")
	if !ok || !strings.HasPrefix(below, "pci") {
		return unknown
	}
	p := place{numa: -1}
	for _, name := range strings.Split(below, "/") {
		if len(p.path) > 0 && strings.Count(name, ":") != 2 {
			break // what is behind the PCI device, such as virtio2
		}
		p.path = append(p.path, name)
	}
	if text, err := os.ReadFile(filepath.Join(target, "numa_node")); err == nil {
		if node, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			p.numa = node
		}
	}
	return p
}

// classBetween returns the path class as `nvidia-smi topo -m` defines it: PIX
// within one switch, PXB over several, PHB over the host bridge, NODE between host
// bridges of one NUMA node, SYS between NUMA nodes.
func classBetween(a, b place) gpu.Class {
	if len(a.path) == 0 || len(b.path) == 0 {
		return gpu.None
	}
	common := 0
	for common < min(len(a.path), len(b.path)) && a.path[common] == b.path[common] {
		common++
	}
	switch {
	case common == 0 && a.numa >= 0 && a.numa == b.numa:
		return gpu.NODE
	case common == 0:
		return gpu.SYS
	case common == 1:
		return gpu.PHB
	case max(len(a.path), len(b.path))-common <= 2: // a port of the common switch, and the device
		return gpu.PIX
	default:
		return gpu.PXB
	}
}

// GPUs returns the PCI addresses of NVIDIA's GPUs under a sysfs tree, normally "/sys", in
// the form of [gpu.GPU.PCIBusID], whether or not the driver could start them. GPUs that
// were given to another driver, such as one for virtual machines, are not the agent's.
func GPUs(sysfs string) ([]string, error) {
	folder := filepath.Join(sysfs, "bus", "pci", "devices")
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	var found []string
	for _, entry := range entries {
		device := filepath.Join(folder, entry.Name())
		class := content(device, "class")
		if content(device, "vendor") != "0x10de" || !strings.HasPrefix(class, "0x0300") && !strings.HasPrefix(class, "0x0302") {
			continue
		}
		if driver, err := os.Readlink(filepath.Join(device, "driver")); err == nil && filepath.Base(driver) != "nvidia" {
			continue
		}
		found = append(found, strings.ToUpper(entry.Name()))
	}
	return found, nil
}

// Class returns the class of the PCI device at an address, in the form of [gpu.GPU.PCIBusID], as a sysfs tree has it, such as
// "0x030200"; "" when it is unknown.
func Class(sysfs, address string) string {
	return content(filepath.Join(sysfs, "bus", "pci", "devices", strings.ToLower(address)), "class")
}

// content is the text of a file of a device, "" without it.
func content(device, file string) string {
	text, err := os.ReadFile(filepath.Join(device, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
