package contract

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// GPUNode is the cluster-scoped object, named after its node, in which the node
// agent publishes the hardware. It has no spec.
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            GPUNodeStatus `json:"status,omitempty"`
}

// GPUNodeStatus is the hardware of one node as the agent sees it now.
type GPUNodeStatus struct {
	// Wiring names a known wiring such as "dgx1-v100", "" when unknown.
	Wiring string `json:"wiring,omitempty"`
	// Model is the product name of the GPUs.
	Model string `json:"model,omitempty"`
	// DriverVersion is the NVIDIA driver's version, "" when simulated.
	DriverVersion string `json:"driverVersion,omitempty"`
	// NVLinkGBps is the bandwidth of one NVLink in GB/s, one direction, as a decimal string.
	NVLinkGBps string `json:"nvlinkGBps,omitempty"`
	// PCIeGeneration is 3, 4, 5; 0 when unknown.
	PCIeGeneration int  `json:"pcieGeneration,omitempty"`
	NVSwitch       bool `json:"nvswitch,omitempty"`
	// NoP2P means that the driver refuses peer-to-peer transfers over PCIe.
	NoP2P bool      `json:"noP2P,omitempty"`
	GPUs  []GPUInfo `json:"gpus,omitempty"`
	// Links is the matrix of `nvidia-smi topo -m`, one row per GPU: "X NV1 NV2 SYS".
	Links []string `json:"links,omitempty"`
	// PCIeLinks is the PCIe path hidden under NVLinks, same form.
	PCIeLinks []string  `json:"pcieLinks,omitempty"`
	NICs      []NICInfo `json:"nics,omitempty"`
	// Sharing says whether programs are kept within their parts of GPUs; nil from an agent that does not share GPUs.
	Sharing *GPUSharing `json:"sharing,omitempty"`
	// BootID is another one after each boot of the machine, "" when unknown.
	BootID string `json:"bootID,omitempty"`
	// Agent is who publishes.
	Agent *AgentInfo `json:"agent,omitempty"`
	// Conditions has the type [ConditionReady].
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentInfo is the process of the node agent that publishes a GPUNode.
type AgentInfo struct {
	// Instance is another one for each process.
	Instance string `json:"instance"`
	Version  string `json:"version,omitempty"`
	// Started is when the process started: of two, the later one publishes.
	Started metav1.Time `json:"started"`
	// Heartbeat is when the status was written last, at least every [HeartbeatInterval].
	Heartbeat metav1.Time `json:"heartbeat"`
}

const (
	// HeartbeatInterval is how often an agent writes when nothing changes.
	HeartbeatInterval = 10 * time.Minute
	// HeartbeatLimit is how old a heartbeat may be: two were missed, and time to write one.
	HeartbeatLimit = 25 * time.Minute
)

// Doubt says why nothing may be placed by what was published, "" when it may: the agent
// cannot read the GPUs, or is silent.
func (s GPUNodeStatus) Doubt(now time.Time) string {
	for _, c := range s.Conditions {
		if c.Type == ConditionReady && c.Status == metav1.ConditionUnknown {
			return "the node agent cannot read the GPUs: " + c.Message
		}
	}
	if s.Agent != nil && now.Sub(s.Agent.Heartbeat.Time) > HeartbeatLimit {
		return "the node agent is silent since " + s.Agent.Heartbeat.UTC().Format(time.RFC3339)
	}
	return ""
}

// GPUInfo is one GPU.
type GPUInfo struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid,omitempty"`
	MemoryMiB   int64  `json:"memoryMiB,omitempty"`
	NUMANode    int    `json:"numaNode"`
	CPUAffinity string `json:"cpuAffinity,omitempty"`
	PCIBusID    string `json:"pciBusID,omitempty"`
	// Health is [Healthy] or [Unhealthy]; Reason says why for the latter, and what the
	// GPU is under suspicion of, in the order of Faults. Since is when it became unhealthy.
	Health string       `json:"health"`
	Reason string       `json:"reason,omitempty"`
	Since  *metav1.Time `json:"since,omitempty"`
	// State is the agent's: Healthy, Suspect, Unhealthy or Recovering; "" when simulated.
	State string `json:"state,omitempty"`
	// Faults are all that speaks against the GPU, the worst first.
	Faults []GPUFault `json:"faults,omitempty"`
	// NVLinks are the active ones, of MaxNVLinks that the GPU once had.
	NVLinks    int `json:"nvlinks,omitempty"`
	MaxNVLinks int `json:"maxNVLinks,omitempty"`
	// PCIe is the GPU's connection, as in "gen4 x16", and BestPCIe what it could be.
	PCIe     string `json:"pcie,omitempty"`
	BestPCIe string `json:"bestPCIe,omitempty"`
	// MIG means that the GPU is split into MIG devices.
	MIG bool `json:"mig,omitempty"`
	// Fabric is how far the GPU has joined its NVSwitch fabric, "" without one.
	Fabric string `json:"fabric,omitempty"`
}

// GPUSharing is how a node keeps programs within their parts of GPUs.
type GPUSharing struct {
	// Enforcement is [EnforcedByMPS] or [NotEnforced]; Reason says why for the latter.
	Enforcement string `json:"enforcement"`
	Reason      string `json:"reason,omitempty"`
}

// Values of the enforcement of parts of GPUs.
const (
	// EnforcedByMPS: NVIDIA's Multi-Process Service limits memory and multiprocessors of each program.
	EnforcedByMPS = "MPS"
	// NotEnforced: each program may take the whole GPU.
	NotEnforced = "None"
)

// GPUFault is one thing that speaks against a GPU.
type GPUFault struct {
	// Code names the fault for programs: "XID79", "RowRemapFailed".
	Code string `json:"code"`
	// Class is what it does, and how it ends: Warning, Failing, NeedsReset, Broken.
	Class   string      `json:"class"`
	Message string      `json:"message"`
	Since   metav1.Time `json:"since"`
}

// NICInfo is one network device with its path class to each GPU, in GPU order.
type NICInfo struct {
	Name  string `json:"name"`
	Links string `json:"links,omitempty"`
	// Port is the state of its port, [PortActive] when it can be used, "" when unknown.
	Port string `json:"port,omitempty"`
}

// PortActive is the state of an RDMA port that can be used; `ibv_devinfo` calls it PORT_ACTIVE.
const PortActive = "ACTIVE"

// Health values of a GPU.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
)

// ConditionReady is the condition of a GPUNode that is True while the agent sees
// all GPUs of the node and all are healthy, and Unknown while it cannot read them.
const ConditionReady = "Ready"

// Machine turns the published status into the planner's hardware model. It fails
// when the status cannot be used: see [gpu.Machine.Validate].
func (s GPUNodeStatus) Machine() (gpu.Machine, error) {
	m := gpu.Machine{
		Name:           s.Wiring,
		Model:          s.Model,
		PCIeGeneration: s.PCIeGeneration,
		NVSwitch:       s.NVSwitch,
		NoP2P:          s.NoP2P,
	}
	var err error
	if s.NVLinkGBps != "" {
		if m.NVLinkGBps, err = strconv.ParseFloat(s.NVLinkGBps, 64); err != nil {
			return gpu.Machine{}, fmt.Errorf("nvlinkGBps %q is not a number of GB/s", s.NVLinkGBps)
		}
	}
	for _, c := range s.GPUs {
		m.GPUs = append(m.GPUs, c.gpu())
	}
	if m.Links, err = parseRows("links", s.Links); err != nil {
		return gpu.Machine{}, err
	}
	if m.PCIeLinks, err = parseRows("pcieLinks", s.PCIeLinks); err != nil {
		return gpu.Machine{}, err
	}
	for _, nic := range s.NICs {
		links, err := parseRow(nic.Links)
		if err != nil {
			return gpu.Machine{}, fmt.Errorf("links of network device %s: %w", nic.Name, err)
		}
		m.NICs = append(m.NICs, gpu.NIC{Name: nic.Name, Links: links})
	}
	if err := m.Validate(); err != nil {
		return gpu.Machine{}, err
	}
	return m, nil
}

// StatusOf turns a hardware model into a status; health times and conditions are the agent's to fill in.
func StatusOf(m gpu.Machine) GPUNodeStatus {
	s := GPUNodeStatus{
		Wiring:         m.Name,
		Model:          m.Model,
		PCIeGeneration: m.PCIeGeneration,
		NVSwitch:       m.NVSwitch,
		NoP2P:          m.NoP2P,
		Links:          formatRows(m.Links),
		PCIeLinks:      formatRows(m.PCIeLinks),
	}
	if m.NVLinkGBps != 0 {
		s.NVLinkGBps = strconv.FormatFloat(m.NVLinkGBps, 'f', -1, 64)
	}
	for _, c := range m.GPUs {
		s.GPUs = append(s.GPUs, gpuInfo(c))
	}
	for _, nic := range m.NICs {
		s.NICs = append(s.NICs, NICInfo{Name: nic.Name, Links: formatRow(nic.Links)})
	}
	return s
}

func gpuInfo(c gpu.GPU) GPUInfo {
	info := GPUInfo{
		Index:       c.Index,
		UUID:        c.UUID,
		MemoryMiB:   c.MemoryMiB,
		NUMANode:    c.NUMANode,
		CPUAffinity: c.CPUAffinity,
		PCIBusID:    c.PCIBusID,
		Health:      Healthy,
	}
	if c.Unhealthy != "" {
		info.Health, info.Reason = Unhealthy, c.Unhealthy
	}
	return info
}

func (c GPUInfo) gpu() gpu.GPU {
	device := gpu.GPU{
		Index:       c.Index,
		UUID:        c.UUID,
		MemoryMiB:   c.MemoryMiB,
		NUMANode:    c.NUMANode,
		CPUAffinity: c.CPUAffinity,
		PCIBusID:    c.PCIBusID,
	}
	if c.Health != Healthy {
		device.Unhealthy = c.Reason
		if device.Unhealthy == "" {
			device.Unhealthy = "no reason given"
		}
	}
	return device
}

func parseRows(name string, rows []string) ([][]gpu.Link, error) {
	var matrix [][]gpu.Link
	for i, row := range rows {
		links, err := parseRow(row)
		if err != nil {
			return nil, fmt.Errorf("%s row %d: %w", name, i, err)
		}
		matrix = append(matrix, links)
	}
	return matrix, nil
}

// parseRow reads a row of the matrix: "X NV1 NV2 SYS".
func parseRow(row string) ([]gpu.Link, error) {
	var links []gpu.Link
	for cell := range strings.FieldsSeq(row) {
		link, err := gpu.ParseLink(cell)
		if err != nil {
			return nil, err
		}
		links = append(links, link)
	}
	return links, nil
}

func formatRows(matrix [][]gpu.Link) []string {
	var rows []string
	for _, links := range matrix {
		rows = append(rows, formatRow(links))
	}
	return rows
}

func formatRow(links []gpu.Link) string {
	cells := make([]string, len(links))
	for i, link := range links {
		cells[i] = link.String()
	}
	return strings.Join(cells, " ")
}
