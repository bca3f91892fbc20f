//go:build cgo && linux

package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/pci"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/rdma"
)

// source reads the GPUs of this machine.
type source struct {
	lib *library
	log *slog.Logger
	// sysfs is the root of sysfs, from which the network devices are read.
	sysfs   string
	changed chan struct{}

	// mu is held while GPUs are read, however long that takes.
	mu sync.Mutex
	// history is what is remembered of GPUs, by identity.
	history map[string]*history

	// eventsMu is never held while the library is called.
	eventsMu sync.Mutex
	// events are the events that nobody has taken yet; blind says why they are not
	// followed, "" while they are.
	events []hardware.Signal
	blind  string
	// followed are the GPUs whose events are, nil before that has begun; unheard means that another has
	// answered since.
	followed map[string]bool
	unheard  bool
	// waiting is when NVML was called for events, zero while it is not.
	waiting time.Time
}

// Start returns the hardware of this machine, with sysfs where it is, and follows its events until ctx
// ends. A driver that is missing or not loaded yet is an error of Read, not of Start.
func Start(ctx context.Context, log *slog.Logger, sysfs string) (hardware.Source, error) {
	s := start(ctx, log, newLibrary())
	s.sysfs = sysfs
	return s, nil
}

func start(ctx context.Context, log *slog.Logger, lib *library) *source {
	s := newSource(log, lib)
	go s.followEvents(ctx)
	return s
}

func newSource(log *slog.Logger, lib *library) *source {
	return &source{
		lib: lib, log: log, sysfs: "/sys", changed: make(chan struct{}, 1),
		history: map[string]*history{},
	}
}

// Changed receives a value after a GPU has reported an event.
func (s *source) Changed() <-chan struct{} { return s.changed }

// Read reads all GPUs. Of a GPU that does not answer there is a signal.
func (s *source) Read(context.Context) (hardware.Reading, error) {
	release, err := s.lib.use()
	if err != nil {
		return hardware.Reading{}, err
	}
	reading, answering, ret := s.read()
	if ret != nvml.SUCCESS {
		err = fmt.Errorf("count the GPUs: %w", ret) // while NVML is there, which has the words
	}
	release()
	if driverIsGone(ret) {
		s.lib.close(ret)
	}
	if err != nil {
		return hardware.Reading{}, err
	}
	if s.lib.reloaded() {
		for _, entry := range reading.Machine.GPUs {
			reading.Signals = append(reading.Signals, hardware.Signal{GPU: hardware.ID(entry), Kind: hardware.WasReset})
		}
	}
	s.readSystem(&reading)
	reading.Blind = s.blindness(answering)
	return reading, nil
}

// readSystem reads what is not NVML's.
func (s *source) readSystem(reading *hardware.Reading) {
	var err error
	if reading.Machine.NICs, err = pci.NICs(s.sysfs, reading.Machine.GPUs); err != nil {
		s.log.Warn("network devices not read", "error", err)
	}
	if reading.Ports, err = rdma.Best(s.sysfs); err != nil {
		s.log.Warn("ports of network devices not read", "error", err)
	}
	if reading.Redirecting, err = pci.Redirecting(s.sysfs, reading.Machine.GPUs); err != nil {
		s.log.Warn("PCI bridges not read", "error", err)
	}
	reading.LockableKiB = rdma.LockableKiB()
	if reading.PCI, err = pci.GPUs(s.sysfs); err != nil {
		s.log.Warn("GPUs on the PCI bus not counted", "error", err)
	}
	for i, device := range reading.Machine.GPUs {
		if device.PCIBusID != "" {
			reading.GPUs[i].PCIClass = pci.Class(s.sysfs, device.PCIBusID)
		}
	}
	reading.MachineType = line(filepath.Join(s.sysfs, "class", "dmi", "id", "product_name"))
}

// line is the text of a file of one line, "" without it.
func line(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return clean(strings.TrimSpace(string(content)))
}

// read reads what NVML tells, and which GPUs answer, by identity.
func (s *source) read() (reading hardware.Reading, answering []string, ret nvml.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return reading, nil, ret
	}
	if version, ret := s.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		reading.DriverVersion = clean(version)
	}
	// The driver counts 12.4 as 12040.
	if version := s.count("nvmlSystemGetCudaDriverVersion", s.lib.SystemGetCudaDriverVersion); version > 0 {
		reading.CUDAVersion = hardware.CUDAVersion{Major: version / 1000, Minor: version % 1000 / 10}
	}
	f := facts{gpus: make([]gpuFacts, count), paths: make([][]gpu.Class, count)}
	devices := make([]nvml.Device, count)
	for i := range count {
		device, err := s.readGPU(i, &f.gpus[i])
		if err != nil {
			signal := hardware.Signal{GPU: hardware.ID(f.gpus[i].gpu), Kind: hardware.NoAnswer, Detail: err.Error()}
			if errors.Is(err, nvml.ERROR_GPU_IS_LOST) {
				signal.Kind = hardware.Lost
			}
			f.gpus[i].lost = true
			reading.Signals = append(reading.Signals, signal)
			continue
		}
		devices[i] = device
		answering = append(answering, hardware.ID(f.gpus[i].gpu))
		reading.Signals = append(reading.Signals, s.conditions(&f.gpus[i], device)...)
	}
	s.readPaths(&f, devices)
	reading.Machine = f.machine()
	for _, c := range f.gpus {
		reading.GPUs = append(reading.GPUs, c.detail)
	}
	return reading, answering, nvml.SUCCESS
}

// identify reads what tells a GPU from others, as far as it answers.
func identify(index int, device nvml.Device) (gpu.GPU, error) {
	entry := gpu.GPU{Index: index, NUMANode: -1}
	info, ret := device.GetPciInfo()
	if ret == nvml.SUCCESS {
		var err error
		if entry.PCIBusID, err = busID(text(info.BusId[:])); err != nil {
			return entry, err
		}
	}
	uuid, uuidRet := device.GetUUID()
	switch {
	case uuidRet != nvml.SUCCESS:
		return entry, fmt.Errorf("the GPU does not tell its UUID: %w", uuidRet)
	case ret != nvml.SUCCESS:
		return entry, fmt.Errorf("the GPU does not tell its PCI address: %w", ret)
	}
	entry.UUID = clean(uuid)
	return entry, nil
}

// readGPU reads one GPU; an error means that the GPU does not answer.
func (s *source) readGPU(index int, into *gpuFacts) (nvml.Device, error) {
	into.gpu = gpu.GPU{Index: index, NUMANode: -1}
	device, ret := s.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("the GPU does not answer: %w", ret)
	}
	entry, err := identify(index, device)
	into.gpu = entry
	if err != nil {
		return nil, err
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("the GPU does not tell its memory: %w", ret)
	}
	into.gpu.MemoryMiB = int64(memory.Total >> 20)
	into.gpu.NUMANode, into.gpu.CPUAffinity = s.numaNode(device), s.cpuAffinity(device)
	if name, ret := device.GetName(); ret == nvml.SUCCESS {
		into.model = clean(name)
	}
	into.nvlinks = s.readNVLinks(device)
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

// readNVLinks returns the GPU's active NVLinks.
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
		link := nvlinkFacts{generation: nvlinkGeneration(0)}
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

// readPaths reads the PCIe path of each pair of GPUs that answer, and how they reach
// each other's memory.
func (s *source) readPaths(f *facts, devices []nvml.Device) {
	canPath := s.lib.has("nvmlDeviceGetTopologyCommonAncestor")
	for i, device := range devices {
		f.paths[i] = make([]gpu.Class, len(devices))
		for j, other := range devices {
			if i == j || device == nil || other == nil || !canPath {
				continue
			}
			if level, ret := device.GetTopologyCommonAncestor(other); ret == nvml.SUCCESS {
				f.paths[i][j] = classOf(level)
			}
		}
	}
	if s.lib.has("nvmlDeviceGetP2PStatus") {
		f.p2p = gpu.P2P{
			Read: readP2P(devices, nvml.P2P_CAPS_INDEX_READ), Write: readP2P(devices, nvml.P2P_CAPS_INDEX_WRITE),
			NVLink: readP2P(devices, nvml.P2P_CAPS_INDEX_NVLINK), Atomics: readP2P(devices, nvml.P2P_CAPS_INDEX_ATOMICS),
		}
	}
}

// readP2P reads one way in which GPUs reach each other's memory, nil when the driver tells it of no pair.
func readP2P(devices []nvml.Device, way nvml.GpuP2PCapsIndex) [][]gpu.P2PStatus {
	rows := make([][]gpu.P2PStatus, len(devices))
	told := false
	for i, device := range devices {
		rows[i] = make([]gpu.P2PStatus, len(devices))
		rows[i][i] = gpu.P2PSelf
		for j, other := range devices {
			if i == j || device == nil || other == nil {
				continue
			}
			if status, ret := device.GetP2PStatus(other, way); ret == nvml.SUCCESS {
				rows[i][j], told = p2pStatuses[status], true
			}
		}
	}
	if !told {
		return nil
	}
	return rows
}

// p2pStatuses are the driver's; those that are not here are unknown.
var p2pStatuses = map[nvml.GpuP2PStatus]gpu.P2PStatus{
	nvml.P2P_STATUS_OK:                         gpu.P2POK,
	nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED:      gpu.P2PChipset,
	nvml.P2P_STATUS_GPU_NOT_SUPPORTED:          gpu.P2PGPU,
	nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: gpu.P2PTopology,
	nvml.P2P_STATUS_DISABLED_BY_REGKEY:         gpu.P2PDisabled,
	nvml.P2P_STATUS_NOT_SUPPORTED:              gpu.P2PNotSupported,
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
