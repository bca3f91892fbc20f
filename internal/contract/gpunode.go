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
	// P2P is whether each GPU reaches the memory of each other one; nil when unknown.
	P2P *P2PInfo `json:"p2p,omitempty"`
	// NoP2P means that the driver refuses peer-to-peer transfers to every pair of GPUs without NVLink. It is all that agents
	// said before P2P, and that programs of then read.
	NoP2P bool      `json:"noP2P,omitempty"`
	GPUs  []GPUInfo `json:"gpus,omitempty"`
	// Links is the matrix of `nvidia-smi topo -m`, one row per GPU: "X NV1 NV2 SYS".
	Links []string `json:"links,omitempty"`
	// PCIeLinks is the PCIe path hidden under NVLinks, same form.
	PCIeLinks []string  `json:"pcieLinks,omitempty"`
	NICs      []NICInfo `json:"nics,omitempty"`
	// LockableKiB is how much memory containers without the capability IPC_LOCK may lock, 0 for unlimited, or unknown.
	LockableKiB int64 `json:"lockableKiB,omitempty"`
	// Sharing says whether programs are kept within their parts of GPUs; nil from an agent that does not give out parts.
	Sharing *GPUSharing `json:"sharing,omitempty"`
	// BootID is the boot of the machine in which the GPUs were read, "" when unknown.
	BootID string `json:"bootID,omitempty"`
	// Agent is who publishes.
	Agent *AgentInfo `json:"agent,omitempty"`
	// Conditions has the type [ConditionReady].
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// P2PInfo has the matrices of `nvidia-smi topo -p2p`, one row per GPU: "X OK CNS". What is unknown is left out.
type P2PInfo struct {
	Read    []string `json:"read,omitempty"`
	Write   []string `json:"write,omitempty"`
	NVLink  []string `json:"nvlink,omitempty"`
	Atomics []string `json:"atomics,omitempty"`
}

// AgentInfo is the process of the node agent that publishes a GPUNode.
type AgentInfo struct {
	// Instance is another one for each process.
	Instance string `json:"instance"`
	Version  string `json:"version,omitempty"`
	// BootID is the boot of the machine in which the process runs, "" when unknown.
	BootID string `json:"bootID,omitempty"`
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
	// ClockSkew is how far a heartbeat may be ahead of its machine's clock: one that is further was written
	// before the clock was set right.
	ClockSkew = time.Minute
)

// Beats tells whether the agent's heartbeat is not older than a limit, by the clock of its machine.
func (a AgentInfo) Beats(now time.Time, limit time.Duration) bool {
	age := now.Sub(a.Heartbeat.Time)
	return -ClockSkew <= age && age <= limit
}

// Doubt says why nothing may be placed by what was published, "" when it may: the agent
// cannot read the GPUs, or is silent. A reader that was shown an earlier heartbeat knows better when it was written than
// the clock of the node, and puts that time in its place.
func (s GPUNodeStatus) Doubt(now time.Time) string {
	if unread := s.Unread(); unread != "" || s.Agent == nil {
		return unread
	}
	switch age, at := now.Sub(s.Agent.Heartbeat.Time), s.Agent.Heartbeat.UTC().Format(time.RFC3339); {
	case age > HeartbeatLimit:
		return "the node agent is silent since " + at
	case age < -HeartbeatLimit:
		return "the node agent may be silent: by the clock of the node, which is ahead of the one here, it was heard of at " + at
	}
	return ""
}

// Unread says why the agent does not know how its GPUs are now, "" when it knows.
func (s GPUNodeStatus) Unread() string {
	for _, c := range s.Conditions {
		if c.Type == ConditionReady && c.Status == metav1.ConditionUnknown {
			return "the node agent cannot read the GPUs: " + c.Message
		}
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
	// UncorrectableErrors are the memory errors that were counted since the GPU's last reset, nil when unknown.
	UncorrectableErrors *int64 `json:"uncorrectableErrors,omitempty"`
	// PCIe is the GPU's connection, as in "gen4 x16", and BestPCIe what it could be.
	PCIe     string `json:"pcie,omitempty"`
	BestPCIe string `json:"bestPCIe,omitempty"`
	// MIG means that the GPU is in MIG mode: not used as a whole GPU, whether or not it is split.
	MIG bool `json:"mig,omitempty"`
	// PendingMIG is the mode that the GPU will have after its next reset, [MIGEnabled] or [MIGDisabled]; "" for the one that it has.
	PendingMIG string `json:"pendingMIG,omitempty"`
	// MIGDevices are those into which the GPU is split.
	MIGDevices []MIGDevices `json:"migDevices,omitempty"`
	// Fabric is how far the GPU has joined its NVSwitch fabric, "" without one.
	Fabric string `json:"fabric,omitempty"`
}

// Values of [GPUInfo.PendingMIG].
const (
	MIGEnabled  = "Enabled"
	MIGDisabled = "Disabled"
)

// MIGDevices are the MIG devices of a GPU that have the same profile, such as "1g.10gb".
type MIGDevices struct {
	Profile string `json:"profile"`
	Count   int    `json:"count"`
}

// GPUSharing is how a node keeps programs within their parts of GPUs.
type GPUSharing struct {
	// Enforcement is [EnforcedByMPS], [NotEnforced] or [EnforcementUnknown]; Reason says why but for the first.
	Enforcement string `json:"enforcement"`
	Reason      string `json:"reason,omitempty"`
}

// Values of the enforcement of parts of GPUs.
const (
	// EnforcedByMPS: NVIDIA's Multi-Process Service limits memory and multiprocessors of each program.
	EnforcedByMPS = "MPS"
	// NotEnforced: each program may take the whole GPU.
	NotEnforced = "None"
	// EnforcementUnknown: a program is there that may.
	EnforcementUnknown = "Unknown"
)

// GPUFault is one thing that speaks against a GPU.
type GPUFault struct {
	// Code names the fault for programs: "XID79", "RowRemapFailed".
	Code string `json:"code"`
	// Class is what it does, and how it ends: Warning, Failing, NeedsReset, Broken.
	Class   string      `json:"class"`
	Message string      `json:"message"`
	Since   metav1.Time `json:"since"`
	// Cured means that a reset was seen after a fault that needs one.
	Cured bool `json:"cured,omitempty"`
}

// NICInfo is one network device with its path class to each GPU, in GPU order.
type NICInfo struct {
	Name  string `json:"name"`
	Links string `json:"links,omitempty"`
	// Port is the state of its port, [PortActive] when it can be used, "" when unknown.
	Port string `json:"port,omitempty"`
	// GID is the index of its first GID of RoCE v2, [NoGID] for none, "" when unknown.
	GID string `json:"gid,omitempty"`
	// MTUBytes is that of its network interface, 0 when unknown.
	MTUBytes int `json:"mtuBytes,omitempty"`
	// Driver is its kernel module, such as erdma, "" when unknown.
	Driver string `json:"driver,omitempty"`
	// RedirectedBy are the PCI addresses of bridges that send its traffic with GPUs below the same switch over the CPU, by Access Control
	// Services; none where nobody may read that.
	RedirectedBy []string `json:"redirectedBy,omitempty"`
}

// Unusable says why programs cannot use a device whose port is known, "" where they can, or it is not known.
func (n NICInfo) Unusable() string {
	switch {
	case n.Port != "" && n.Port != PortActive:
		return fmt.Sprintf("is %s, and not %s", n.Port, PortActive)
	case n.GID == NoGID:
		return "has no GID of RoCE v2: its network interface has no address, or its driver offers iWARP alone"
	}
	return ""
}

// NoGID says that a port has no GID of RoCE v2, so that nobody reaches it.
const NoGID = "none"

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
	if m.Links, err = parseRows("links", s.Links, gpu.ParseLink); err != nil {
		return gpu.Machine{}, err
	}
	if m.PCIeLinks, err = parseRows("pcieLinks", s.PCIeLinks, gpu.ParseLink); err != nil {
		return gpu.Machine{}, err
	}
	if m.P2P, err = s.p2p(); err != nil {
		return gpu.Machine{}, err
	}
	for _, nic := range s.NICs {
		links, err := parseRow(nic.Links, gpu.ParseLink)
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
		P2P:            p2pInfo(m.P2P),
		NoP2P:          m.RefusesP2P(),
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

// p2p is what an agent says of peer-to-peer transfers, or an earlier one said.
func (s GPUNodeStatus) p2p() (p gpu.P2P, err error) {
	switch {
	case s.P2P == nil && s.NoP2P:
		return gpu.NoP2P(len(s.GPUs)), nil
	case s.P2P == nil:
		return p, nil
	}
	for _, matrix := range []struct {
		name string
		rows []string
		into *[][]gpu.P2PStatus
	}{
		{"p2p.read", s.P2P.Read, &p.Read}, {"p2p.write", s.P2P.Write, &p.Write},
		{"p2p.nvlink", s.P2P.NVLink, &p.NVLink}, {"p2p.atomics", s.P2P.Atomics, &p.Atomics},
	} {
		if *matrix.into, err = parseRows(matrix.name, matrix.rows, gpu.ParseP2PStatus); err != nil {
			return gpu.P2P{}, err
		}
	}
	return p, nil
}

// p2pInfo is nil when nothing is known.
func p2pInfo(p gpu.P2P) *P2PInfo {
	info := P2PInfo{Read: formatRows(p.Read), Write: formatRows(p.Write), NVLink: formatRows(p.NVLink), Atomics: formatRows(p.Atomics)}
	if len(info.Read)+len(info.Write)+len(info.NVLink)+len(info.Atomics) == 0 {
		return nil
	}
	return &info
}

func parseRows[Cell any](name string, rows []string, parse func(string) (Cell, error)) ([][]Cell, error) {
	var matrix [][]Cell
	for i, row := range rows {
		cells, err := parseRow(row, parse)
		if err != nil {
			return nil, fmt.Errorf("%s row %d: %w", name, i, err)
		}
		matrix = append(matrix, cells)
	}
	return matrix, nil
}

// parseRow reads a row of a matrix: "X NV1 NV2 SYS".
func parseRow[Cell any](row string, parse func(string) (Cell, error)) ([]Cell, error) {
	var cells []Cell
	for text := range strings.FieldsSeq(row) {
		cell, err := parse(text)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

func formatRows[Cell fmt.Stringer](matrix [][]Cell) []string {
	var rows []string
	for _, cells := range matrix {
		rows = append(rows, formatRow(cells))
	}
	return rows
}

func formatRow[Cell fmt.Stringer](row []Cell) string {
	cells := make([]string, len(row))
	for i, cell := range row {
		cells[i] = cell.String()
	}
	return strings.Join(cells, " ")
}
