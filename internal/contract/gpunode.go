package contract

import (
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
	// Model is the product name of the cards.
	Model string `json:"model,omitempty"`
	// DriverVersion is the NVIDIA driver's version, "" when simulated.
	DriverVersion string `json:"driverVersion,omitempty"`
	// NVLinkGBps is the bandwidth of one NVLink in GB/s, one direction, as a decimal string.
	NVLinkGBps string `json:"nvlinkGBps,omitempty"`
	// PCIeGeneration is 3, 4, 5; 0 when unknown.
	PCIeGeneration int        `json:"pcieGeneration,omitempty"`
	NVSwitch       bool       `json:"nvswitch,omitempty"`
	Cards          []CardInfo `json:"cards,omitempty"`
	// Links is the matrix of `nvidia-smi topo -m`, one row per card: "X NV1 NV2 SYS".
	Links []string `json:"links,omitempty"`
	// PCIeLinks is the PCIe path hidden under NVLinks, same form.
	PCIeLinks []string  `json:"pcieLinks,omitempty"`
	NICs      []NICInfo `json:"nics,omitempty"`
	// Conditions has the type Ready: the agent sees all cards of the node and all are healthy.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CardInfo is one card.
type CardInfo struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid,omitempty"`
	MemoryMiB   int64  `json:"memoryMiB,omitempty"`
	NUMANode    int    `json:"numaNode"`
	CPUAffinity string `json:"cpuAffinity,omitempty"`
	PCIBusID    string `json:"pciBusID,omitempty"`
	// Health is "Healthy" or "Unhealthy"; Reason and Since say why and since when for the latter.
	Health string       `json:"health"`
	Reason string       `json:"reason,omitempty"`
	Since  *metav1.Time `json:"since,omitempty"`
}

// NICInfo is one network device with its path class to each card, in card order.
type NICInfo struct {
	Name  string `json:"name"`
	Links string `json:"links,omitempty"`
}

// Health values of a card.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
)

// Machine turns the published status into the planner's hardware model.
func (s GPUNodeStatus) Machine() (gpu.Machine, error) { panic("to be written") }

// StatusOf turns a hardware model into a status; health times and conditions are the agent's to fill in.
func StatusOf(m gpu.Machine) GPUNodeStatus { panic("to be written") }
