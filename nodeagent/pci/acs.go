package pci

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Access Control Services of PCI Express: a switch that has them on sends what devices below it write to each other up to the root
// complex. PCI Express Base Specification 6.0, 7.7.12: the extended capability with the ID 000Dh, its control register 6 bytes behind its
// head, with P2P Request Redirect, P2P Completion Redirect and Upstream Forwarding in bits 2 to 4.
const (
	extendedConfig = 0x100
	acsID          = 0x000d
	acsControl     = 6
	redirects      = 1<<2 | 1<<3 | 1<<4
)

// Redirecting returns, by RDMA device, the PCI addresses of the bridges below a switch common with a GPU that redirect what the two send
// each other: GPUDirect RDMA takes the way over the CPU then. Linux shows the registers to who has the capability SYS_ADMIN; others know of none.
func Redirecting(sysfs string, gpus []gpu.GPU) (map[string][]string, error) {
	devices, err := rdmaDevices(sysfs)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for name, here := range devices {
		for _, there := range placesOf(sysfs, gpus) {
			if class := classBetween(here, there); class != gpu.PIX && class != gpu.PXB {
				continue
			}
			for _, bridge := range between(here, there) {
				if redirecting(filepath.Join(sysfs, "bus", "pci", "devices", bridge)) && !slices.Contains(found[name], bridge) {
					found[name] = append(found[name], bridge)
				}
			}
		}
		slices.Sort(found[name])
	}
	return found, nil
}

// between are the bridges on the way from a device to another one below what the two have in common.
func between(a, b place) (bridges []string) {
	common := 0
	for common < min(len(a.path), len(b.path)) && a.path[common] == b.path[common] {
		common++
	}
	for _, p := range []place{a, b} {
		bridges = append(bridges, p.path[common:max(common, len(p.path)-1)]...)
	}
	return bridges
}

// redirecting reports whether a bridge has Access Control Services that redirect, as its registers in sysfs say.
func redirecting(bridge string) bool {
	config, err := os.ReadFile(filepath.Join(bridge, "config"))
	if err != nil {
		return false
	}
	for at, seen := extendedConfig, 0; at >= extendedConfig && at+8 <= len(config) && seen < 64; seen++ {
		head := binary.LittleEndian.Uint32(config[at:])
		if head&0xffff == acsID {
			return binary.LittleEndian.Uint16(config[at+acsControl:])&redirects != 0
		}
		at = int(head >> 20)
	}
	return false
}
