// Command gpusets compares the choice of GPU sets with that of
// github.com/NVIDIA/go-gpuallocator, the best-effort policy of NVIDIA's device
// plugin, run from its own module.
//
//	go run ./internal/gpu/gpuset -all -json dgx1-v100.json > answers.jsonl
//	cd bench/gpusets && go run . dgx1-v100.json answers.jsonl
//
// It reads a topology file and what gpuset answers for it. Both are asked for
// every set of free GPUs and every k, and for every sequence of jobs of 1, 2 and
// 4 GPUs that fills the machine.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gpusets:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: gpusets topology.json answers.jsonl")
	}
	devices, err := readDevices(args[0])
	if err != nil {
		return err
	}
	ours, err := readAnswers(args[1])
	if err != nil {
		return err
	}
	peer := newPeer(devices)

	fmt.Fprintf(stdout, "%s: every set of free GPUs\n", args[0])
	fmt.Fprintf(stdout, "%4s %8s %22s %16s %16s\n", "K", "STATES", "PEER BELOW THE BEST", "PEER MEAN GB/S", "OUR MEAN GB/S")
	for k := 2; k < len(devices); k++ {
		states, below, peerSum, ourSum := 0, 0, 0.0, 0.0
		for free := range uint(1) << len(devices) {
			if bits.OnesCount(free) < k {
				continue
			}
			states++
			peerGBps, ourGBps := ours.ring(peer.choose(free, k)), ours.ring(ours.choose(free, k))
			if peerGBps < ourGBps {
				below++
			}
			peerSum += peerGBps
			ourSum += ourGBps
		}
		share := strconv.FormatFloat(100*float64(below)/float64(states), 'f', 1, 64) + " %"
		fmt.Fprintf(stdout, "%4d %8d %22s %16.1f %16.1f\n", k, states, share, peerSum/float64(states), ourSum/float64(states))
	}

	sequences := arrivals(len(devices), []int{1, 2, 4})
	fmt.Fprintf(stdout, "sum of ring bandwidth over %d sequences of jobs of 1, 2 and 4 GPUs, mean GB/s: peer %.1f, ours %.1f\n",
		len(sequences), mean(ours, peer.choose, sequences), mean(ours, ours.choose, sequences))
	return nil
}

// arrivals returns every sequence of the sizes that fills n GPUs exactly.
func arrivals(n int, sizes []int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var sequences [][]int
	for _, k := range sizes {
		if k <= n {
			for _, rest := range arrivals(n-k, sizes) {
				sequences = append(sequences, append([]int{k}, rest...))
			}
		}
	}
	return sequences
}

// mean returns the sum of ring bandwidth over the jobs of a sequence, on average over the sequences.
func mean(rings answers, choose func(free uint, k int) uint, sequences [][]int) float64 {
	sum := 0.0
	for _, sequence := range sequences {
		free := rings.full
		for _, k := range sequence {
			set := choose(free, k)
			sum += rings.ring(set)
			free &^= set
		}
	}
	return sum / float64(len(sequences))
}

// answers are those of the program gpuset.
type answers struct {
	full uint
	sets map[question]uint
	gbps map[question]float64
}

type question struct {
	free uint
	k    int
}

func readAnswers(path string) (answers, error) {
	file, err := os.Open(path)
	if err != nil {
		return answers{}, err
	}
	defer file.Close()
	a := answers{sets: map[question]uint{}, gbps: map[question]float64{}}
	for decoder := json.NewDecoder(file); ; {
		var line struct {
			Free, GPUs []uint
			K          int
			GBps       float64
		}
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return answers{}, fmt.Errorf("%s: %w", path, err)
		}
		q := question{mask(line.Free), line.K}
		a.full |= q.free
		a.sets[q], a.gbps[q] = mask(line.GPUs), line.GBps
	}
}

func mask(gpus []uint) uint {
	var m uint
	for _, gpu := range gpus {
		m |= 1 << gpu
	}
	return m
}

func (a answers) choose(free uint, k int) uint { return a.sets[question{free, k}] }

// ring returns the bandwidth of a set: that of choosing all of it.
func (a answers) ring(set uint) float64 { return a.gbps[question{set, bits.OnesCount(set)}] }

// peer asks the best-effort policy. It remembers the answers, of which a
// comparison needs each many times.
type peer struct {
	devices []*gpuallocator.Device
	policy  gpuallocator.Policy
	known   map[question]uint
}

func newPeer(devices []*gpuallocator.Device) *peer {
	return &peer{devices: devices, policy: gpuallocator.NewBestEffortPolicy(), known: map[question]uint{}}
}

func (p *peer) choose(free uint, k int) uint {
	q := question{free, k}
	set, ok := p.known[q]
	if !ok {
		var available []*gpuallocator.Device
		for i, device := range p.devices {
			if free&(1<<i) != 0 {
				available = append(available, device)
			}
		}
		for _, device := range p.policy.Allocate(available, nil, k) {
			set |= 1 << device.Index
		}
		p.known[q] = set
	}
	return set
}

// readDevices makes the devices that the peer's own NVML reading would make of the
// machine: for each pair the PCIe path, and the NVLinks between the two unless
// they go to a switch, which it does not recognise.
func readDevices(path string) ([]*gpuallocator.Device, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var machine struct {
		NVSwitch         bool
		GPUs             []struct{ NUMA int }
		Links, PCIeLinks [][]string
	}
	if err := json.Unmarshal(data, &machine); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	devices := make([]*gpuallocator.Device, len(machine.GPUs))
	for i := range devices {
		devices[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
		devices[i].UUID = fmt.Sprintf("GPU-%d", i)
	}
	for i, device := range devices {
		for j, other := range devices {
			if i == j {
				continue
			}
			path := machine.Links[i][j]
			lanes, isNVLink := strings.CutPrefix(path, "NV")
			if isNVLink {
				path = "SYS"
				if machine.GPUs[i].NUMA == machine.GPUs[j].NUMA {
					path = "NODE"
				}
				if machine.PCIeLinks != nil {
					path = machine.PCIeLinks[i][j]
				}
			}
			device.Links[j] = append(device.Links[j], pcieLink(other, path))
			if isNVLink && !machine.NVSwitch {
				count, err := strconv.Atoi(lanes)
				if err != nil {
					return nil, fmt.Errorf("%s: link %q: %w", path, machine.Links[i][j], err)
				}
				device.Links[j] = append(device.Links[j], nvLink(other, count))
			}
		}
	}
	return devices, nil
}

// The peer's link types are an internal package's constants: 1 to 5 are the PCIe
// paths from SYS to PIX, 6 is one board, and from 7 on they count NVLinks.

func pcieLink(other *gpuallocator.Device, path string) gpuallocator.P2PLink {
	link := gpuallocator.P2PLink{GPU: other}
	for _, name := range []string{"SYS", "NODE", "PHB", "PXB", "PIX"} {
		link.Type++
		if name == path {
			break
		}
	}
	return link
}

func nvLink(other *gpuallocator.Device, count int) gpuallocator.P2PLink {
	link := gpuallocator.P2PLink{GPU: other, Type: 6}
	for range count {
		link.Type++
	}
	return link
}
