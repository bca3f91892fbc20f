// Package nccl reads what NVIDIA's collective communication library says of itself in the log of a program: over what it
// sends, and between which GPUs how.
package nccl

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Use is what a program's NCCL has said that it uses. What a log says may be cut off, or another program's.
type Use struct {
	// Network is over what it sends between nodes, once it has decided: Socket is TCP, IB is RDMA of any kind, anything else a plugin;
	// "" where it has not said.
	Network string
	// Devices are those of Network, name, port and link layer of RDMA devices (erdma_0:1/RoCE), interfaces for TCP (eth0), sorted.
	Devices []string
	// Channels are the ways of its channels, sorted: P2P/… from GPU to GPU, SHM/… through the host's memory, NET/… over the network, with
	// GDRDMA where that reads the GPU's memory itself.
	Channels []string
}

// Socket is the network that is TCP.
const Socket = "Socket"

// sharedMemory is what NCCL calls the way that older versions call direct shared memory.
const sharedMemory = "SHM/direct"

// Lines of NCCL 2.4 to 2.31 (init.cc, plugin/net.cc, transport/net_ib, net_socket.cc, p2p.cc, shm.cc, net.cc), after "NCCL INFO ":
//
//	NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
//	NET/Socket : Using [0]eth0:10.0.0.1<0>
//	Using network IB
//	Assigned NET plugin IB to comm
//	Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
//	Channel 01 : 7[e3000] -> 8[1b000] [send] via NET/IB/0(7)/GDRDMA
//	Channel 00 : 2[89000] -> 3[b2000] via direct shared memory
//	Ring 00 : 3 -> 10 [send] via NET/IB/0/GDRDMA
var (
	network = regexp.MustCompile(`NCCL INFO (?:Using network|Assigned NET plugin) ([\w.-]{1,64})`)
	found   = regexp.MustCompile(`NCCL INFO NET/(\w{1,64}) ?: Using (.*)`)
	device  = regexp.MustCompile(`\[\d+\](?:\{[^}]*\} ?)?([\w.-]{1,64}(?::\d{1,3}/\w{1,16})?)`)
	channel = regexp.MustCompile(`NCCL INFO (?:Channel|Ring) [\d/]+ ?: .{1,128} via ((?:P2P|SHM)/\w{1,32}|direct shared memory|(NET/\w{1,64})/\d+(?:\(\d+\))?(/GDRDMA)?)`)
)

// most bounds how many devices and ways are kept.
const most = 64

// Read reads a log to its end, or to an error that is not its end. Lines of more than 64 KiB count as several.
func Read(log io.Reader) (Use, error) {
	var chosen string
	devices, channels := map[string]map[string]bool{}, map[string]bool{}
	add := func(to map[string]bool, text string) {
		if len(to) < most {
			to[text] = true
		}
	}
	lines := bufio.NewReaderSize(log, 64<<10)
	for {
		text, _, err := lines.ReadLine()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return use(chosen, devices, channels), err
		}
		line := string(text)
		if m := network.FindStringSubmatch(line); m != nil {
			chosen = m[1]
		}
		if m := found.FindStringSubmatch(line); m != nil {
			if devices[m[1]] == nil && len(devices) < most {
				devices[m[1]] = map[string]bool{}
			}
			for _, d := range device.FindAllStringSubmatch(m[2], -1) {
				if of := devices[m[1]]; of != nil {
					add(of, d[1])
				}
			}
		}
		if m := channel.FindStringSubmatch(line); m != nil {
			way := m[1]
			switch {
			case m[2] != "": // the device's number is no part of it
				way = m[2] + m[3]
			case !strings.Contains(way, "/"):
				way = sharedMemory
			}
			add(channels, way)
		}
	}
}

func use(chosen string, devices map[string]map[string]bool, channels map[string]bool) Use {
	u := Use{Network: chosen, Channels: slices.Sorted(maps.Keys(channels))}
	for _, way := range u.Channels { // before 2.5 nothing else tells
		if over, ok := strings.CutPrefix(way, "NET/"); ok && u.Network == "" {
			u.Network, _, _ = strings.Cut(over, "/")
		}
	}
	u.Devices = slices.Sorted(maps.Keys(devices[u.Network]))
	return u
}
