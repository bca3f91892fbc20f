//go:build cgo && linux

package nvml

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/pci"
)

// source reads the cards of this machine.
type source struct {
	lib *library
	log *slog.Logger
	// sysfs is the root of sysfs, from which the network devices are read.
	sysfs   string
	changed chan struct{}

	mu sync.Mutex
	// known is what cards last told of themselves, by NVML index: a lost card tells nothing.
	known map[int]gpu.Card
	// eccErrors are the cards' counts of uncorrectable errors, by NVML index.
	eccErrors map[int]uint64
	// events are the events since the last reading.
	events []hardware.Signal
}

// Start returns the hardware of this machine and follows its events until ctx
// ends. A driver that is missing or not loaded yet is an error of Read, not of Start.
func Start(ctx context.Context, log *slog.Logger) (hardware.Source, error) {
	return start(ctx, log, newLibrary()), nil
}

func start(ctx context.Context, log *slog.Logger, lib *library) *source {
	s := &source{
		lib: lib, log: log, sysfs: "/sys", changed: make(chan struct{}, 1),
		known: map[int]gpu.Card{}, eccErrors: map[int]uint64{},
	}
	go s.followEvents(ctx)
	return s
}

// Changed receives a value after a card has reported an event.
func (s *source) Changed() <-chan struct{} { return s.changed }

// Read reads all cards. A card that does not answer is in the reading as lost.
func (s *source) Read(context.Context) (hardware.Reading, error) {
	release, err := s.lib.use()
	if err != nil {
		return hardware.Reading{}, err
	}
	reading, ret := s.read()
	release()
	if driverIsGone(ret) {
		s.lib.close()
	}
	if ret != nvml.SUCCESS {
		return hardware.Reading{}, fmt.Errorf("count the cards: %w", ret)
	}
	if reading.Machine.NICs, err = pci.NICs(s.sysfs, reading.Machine.Cards); err != nil {
		s.log.Warn("network devices not read", "error", err)
	}
	return reading, nil
}

func (s *source) read() (reading hardware.Reading, ret nvml.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return reading, ret
	}
	if version, ret := s.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		reading.DriverVersion = version
	}
	f := facts{cards: make([]cardFacts, count), paths: make([][]gpu.Class, count)}
	devices := make([]nvml.Device, count)
	for i := range count {
		device, err := s.readCard(i, &f.cards[i])
		if err != nil {
			f.cards[i] = cardFacts{card: s.lost(i, err), lost: true}
			continue
		}
		devices[i] = device
		reading.Signals = append(reading.Signals, s.conditions(i, device)...)
	}
	s.readPaths(&f, devices)
	reading.Machine = f.machine()
	reading.Signals = append(reading.Signals, s.events...)
	s.events = nil
	return reading, nvml.SUCCESS
}

// lost describes a card that does not answer by what it said before.
func (s *source) lost(index int, cause error) gpu.Card {
	card, ok := s.known[index]
	if !ok {
		card = gpu.Card{Index: index, NUMANode: -1}
	}
	card.Unhealthy = cause.Error()
	return card
}

// readCard reads one card; an error means that the card does not answer.
func (s *source) readCard(index int, into *cardFacts) (nvml.Device, error) {
	device, ret := s.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("the card does not answer: %w", ret)
	}
	uuid, ret := device.GetUUID()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("the card does not tell its UUID: %w", ret)
	}
	pci, ret := device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("the card does not tell its PCI address: %w", ret)
	}
	bus, err := busID(text(pci.BusId[:]))
	if err != nil {
		return nil, err
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("the card does not tell its memory: %w", ret)
	}
	into.card = gpu.Card{
		Index: index, UUID: uuid, PCIBusID: bus, MemoryMiB: int64(memory.Total >> 20),
		NUMANode: s.numaNode(device), CPUAffinity: s.cpuAffinity(device),
	}
	if name, ret := device.GetName(); ret == nvml.SUCCESS {
		into.model = name
	}
	if s.lib.has("nvmlDeviceGetMaxPcieLinkGeneration") {
		if generation, ret := device.GetMaxPcieLinkGeneration(); ret == nvml.SUCCESS {
			into.pcieGen = generation
		}
	}
	into.nvlinks = s.readNVLinks(device)
	s.known[index] = into.card
	return device, nil
}

// Sizes of the masks that NVML fills: more CPUs and NUMA nodes than a machine has.
const (
	maxCPUs      = 2048
	maxNUMANodes = 64
)

func (s *source) numaNode(device nvml.Device) int {
	if !s.lib.has("nvmlDeviceGetMemoryAffinity") {
		return -1
	}
	mask, ret := device.GetMemoryAffinity(maxNUMANodes, nvml.AFFINITY_SCOPE_NODE)
	if ret != nvml.SUCCESS {
		return -1
	}
	return firstNode(mask)
}

func (s *source) cpuAffinity(device nvml.Device) string {
	if !s.lib.has("nvmlDeviceGetCpuAffinity") {
		return ""
	}
	mask, ret := device.GetCpuAffinity(maxCPUs)
	if ret != nvml.SUCCESS {
		return ""
	}
	return cpuList(mask)
}

// readNVLinks returns the card's active NVLinks.
func (s *source) readNVLinks(device nvml.Device) []nvlinkFacts {
	if !s.lib.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var links []nvlinkFacts
	for i := range nvml.NVLINK_MAX_LINKS {
		state, ret := device.GetNvLinkState(i)
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		var link nvlinkFacts
		if s.lib.has("nvmlDeviceGetNvLinkVersion") {
			if version, ret := device.GetNvLinkVersion(i); ret == nvml.SUCCESS {
				link.generation = nvlinkGeneration(version)
			}
		}
		if s.lib.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			kind, ret := device.GetNvLinkRemoteDeviceType(i)
			link.toSwitch = ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH
		}
		if s.lib.has("nvmlDeviceGetNvLinkRemotePciInfo_v2") || s.lib.has("nvmlDeviceGetNvLinkRemotePciInfo") {
			if pci, ret := device.GetNvLinkRemotePciInfo(i); ret == nvml.SUCCESS {
				if bus, err := busID(text(pci.BusId[:])); err == nil {
					link.remote = bus
				}
			}
		}
		links = append(links, link)
	}
	return links
}

// readPaths reads the PCIe path of each pair of cards that answer, and whether
// the driver lets pairs talk to each other.
func (s *source) readPaths(f *facts, devices []nvml.Device) {
	canP2P := s.lib.has("nvmlDeviceGetP2PStatus")
	canPath := s.lib.has("nvmlDeviceGetTopologyCommonAncestor")
	asked, refused := 0, 0
	for i, device := range devices {
		f.paths[i] = make([]gpu.Class, len(devices))
		for j, other := range devices {
			if i == j || device == nil || other == nil {
				continue
			}
			if canPath {
				if level, ret := device.GetTopologyCommonAncestor(other); ret == nvml.SUCCESS {
					f.paths[i][j] = classOf(level)
				}
			}
			if !canP2P || lanes(f.cards[i], f.cards[j]) > 0 {
				continue
			}
			if status, ret := device.GetP2PStatus(other, nvml.P2P_CAPS_INDEX_READ); ret == nvml.SUCCESS {
				asked++
				if refusedByCard(status) {
					refused++
				}
			}
		}
	}
	f.refusesP2P = asked > 0 && refused == asked
}

func classOf(level nvml.GpuTopologyLevel) gpu.Class {
	switch level {
	case nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE:
		return gpu.PIX
	case nvml.TOPOLOGY_MULTIPLE:
		return gpu.PXB
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return gpu.PHB
	case nvml.TOPOLOGY_NODE:
		return gpu.NODE
	case nvml.TOPOLOGY_SYSTEM:
		return gpu.SYS
	default:
		return gpu.None
	}
}

// refusedByCard tells refusals that hold for these cards anywhere; a chipset or a
// path that does not support it says nothing about other pairs.
func refusedByCard(status nvml.GpuP2PStatus) bool {
	return status == nvml.P2P_STATUS_GPU_NOT_SUPPORTED || status == nvml.P2P_STATUS_DISABLED_BY_REGKEY || status == nvml.P2P_STATUS_NOT_SUPPORTED
}

// text returns the string in a C array of characters.
func text(chars []int8) string {
	out := make([]byte, 0, len(chars))
	for _, c := range chars {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}
