// Package rdma reads the ports of RDMA devices, Alibaba Cloud's eRDMA among them, from sysfs, and what keeps programs from using them.
package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Port is one port of a device. What the driver does not tell is empty, 0 or nil.
type Port struct {
	// Device is the device's name, such as erdma_0, Number that of the port, which begins with 1.
	Device string
	Number int
	hardware.Port
	// Received and Sent are the bytes that the port has counted.
	Received, Sent *float64
}

// Active reports whether the port can be used.
func (p Port) Active() bool { return p.State == contract.PortActive }

// Best returns a port of each device under a sysfs tree, by device: of several ports one that is
// active, else the first. A device whose driver tells no state is not among them.
func Best(sysfs string) (map[string]hardware.Port, error) {
	ports, err := Ports(sysfs)
	if err != nil {
		return nil, err
	}
	best := map[string]hardware.Port{}
	for _, p := range ports {
		if p.State != "" && (best[p.Device].State == "" || p.Active()) {
			best[p.Device] = p.Port
		}
	}
	return best, nil
}

// Ports returns the ports of all devices under a sysfs tree, normally "/sys"; none without devices.
func Ports(sysfs string) ([]Port, error) {
	folder := filepath.Join(sysfs, "class", "infiniband")
	devices, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	var ports []Port
	for _, device := range devices {
		numbers, err := os.ReadDir(filepath.Join(folder, device.Name(), "ports"))
		if err != nil {
			continue // it has just gone
		}
		for _, entry := range numbers {
			number, err := strconv.Atoi(entry.Name())
			if err != nil {
				continue
			}
			at := filepath.Join(folder, device.Name(), "ports", entry.Name())
			p := Port{
				Device: device.Name(), Number: number, Received: counter(folder, device.Name(), at, received), Sent: counter(folder, device.Name(), at, sent),
			}
			p.State, p.Driver = state(at), driver(filepath.Join(folder, device.Name()))
			p.GID, p.MTUBytes = address(sysfs, at)
			if !ofHost(at, filepath.Join(folder, device.Name())) {
				p.MTUBytes = 0 // an interface of that name is the pod's
			}
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b Port) int {
		if order := natural.Compare(a.Device, b.Device); order != 0 {
			return order
		}
		return a.Number - b.Number
	})
	return ports, nil
}

// ofHost reports whether a port is seen in the host's network namespace: Linux shows the counters of a device in that alone
// (drivers/infiniband/core/sysfs.c), and a sysfs tree has the network interfaces of its own.
func ofHost(port, device string) bool {
	return slices.ContainsFunc([]string{port, device}, func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, "hw_counters"))
		return err == nil
	})
}

// state reads a file such as "4: ACTIVE".
func state(port string) string {
	_, name, _ := strings.Cut(line(filepath.Join(port, "state")), ":")
	return strings.TrimSpace(name)
}

// driver is the kernel module that drives a device, "" when unknown.
func driver(device string) string {
	target, err := os.Readlink(filepath.Join(device, "device", "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// roce is the type of the GIDs that eRDMA and NCCL use, as the kernel names it.
const roce = "RoCE v2"

// address returns the first GID of RoCE v2 in the table of a port ([hardware.Port]), one of IPv4 before others, and the MTU of its
// network interface. A port of InfiniBand has no such types, and neither is known.
func address(sysfs, port string) (gid string, mtuBytes int) {
	entries, err := os.ReadDir(filepath.Join(port, "gids"))
	if line(filepath.Join(port, "link_layer")) != "Ethernet" || err != nil || len(entries) == 0 {
		return "", 0
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return natural.Compare(a.Name(), b.Name()) })
	gid = contract.NoGID
	for _, entry := range entries {
		value, err := netip.ParseAddr(line(filepath.Join(port, "gids", entry.Name())))
		if err != nil || value.IsUnspecified() || line(filepath.Join(port, "gid_attrs", "types", entry.Name())) != roce {
			continue
		}
		if gid == contract.NoGID || value.Is4In6() {
			gid = entry.Name()
			mtuBytes = mtu(filepath.Join(sysfs, "class", "net", line(filepath.Join(port, "gid_attrs", "ndevs", gid))))
		}
		if value.Is4In6() {
			break
		}
	}
	return gid, mtuBytes
}

// mtu is that of a network interface, 0 when it is unknown.
func mtu(device string) int {
	bytes, err := strconv.ParseUint(line(filepath.Join(device, "mtu")), 10, 31)
	if err != nil {
		return 0
	}
	return int(bytes)
}

// line is the text of a file of one line, "" without it.
func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// count is how drivers call a count: a file, and how many bytes each of it is.
type count struct {
	file  string
	bytes float64
}

// The eRDMA driver of the kernel counts bytes in files without the prefix hw_, Alibaba Cloud's own with it
// (erdma_verbs.c, erdma_stats.c); InfiniBand's counters are in units of four bytes.
var (
	received = []count{{"hw_counters/rx_bytes_cnt", 1}, {"hw_counters/hw_rx_bytes_cnt", 1}, {"counters/port_rcv_data", 4}}
	sent     = []count{{"hw_counters/tx_bytes_cnt", 1}, {"hw_counters/hw_tx_bytes_cnt", 1}, {"counters/port_xmit_data", 4}}
)

// counter reads the first of those counts that a port has, or its device.
func counter(folder, device, port string, counts []count) *float64 {
	for _, c := range counts {
		for _, at := range []string{port, filepath.Join(folder, device)} {
			if n, err := strconv.ParseUint(line(filepath.Join(at, c.file)), 10, 64); err == nil {
				bytes := float64(n) * c.bytes
				return &bytes
			}
		}
	}
	return nil
}
