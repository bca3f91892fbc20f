// Package rdma reads the ports of RDMA devices, Alibaba Cloud's eRDMA among them, from sysfs.
package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

// Port is one port of a device. What the driver does not tell is empty, or nil.
type Port struct {
	// Device is the device's name, such as erdma_0, Number that of the port, which begins with 1.
	Device string
	Number int
	// State is the port's as InfiniBand names it: DOWN, INIT, ARMED or ACTIVE, which `ibv_devinfo` calls PORT_ACTIVE.
	State string
	// Received and Sent are the bytes that the port has counted.
	Received, Sent *float64
}

// Active reports whether the port can be used.
func (p Port) Active() bool { return p.State == contract.PortActive }

// States returns the states of the ports of all devices under a sysfs tree, by device: of several ports one that is
// active, else the first. A device whose driver tells none is not among them.
func States(sysfs string) (map[string]string, error) {
	ports, err := Ports(sysfs)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, p := range ports {
		if p.State != "" && (states[p.Device] == "" || p.Active()) {
			states[p.Device] = p.State
		}
	}
	return states, nil
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
			ports = append(ports, Port{
				Device: device.Name(), Number: number, State: state(at), Received: counter(folder, device.Name(), at, received), Sent: counter(folder, device.Name(), at, sent),
			})
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

// state reads a file such as "4: ACTIVE".
func state(port string) string {
	text, err := os.ReadFile(filepath.Join(port, "state"))
	if err != nil {
		return ""
	}
	_, name, _ := strings.Cut(string(text), ":")
	return strings.TrimSpace(name)
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
			text, err := os.ReadFile(filepath.Join(at, c.file))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
				bytes := float64(n) * c.bytes
				return &bytes
			}
		}
	}
	return nil
}
