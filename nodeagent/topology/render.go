package topology

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

// Reasons of the condition [contract.ConditionReady].
const (
	reasonAllHealthy = "AllGPUsHealthy"
	reasonUnhealthy  = "GPUsUnhealthy"
	reasonNoGPUs     = "NoGPUs"
	reasonUnreadable = "CannotReadHardware"
)

// Reasons of the condition [contract.RDMAReadyCondition].
const (
	reasonPortsActive = "RDMAPortsActive"
	reasonPortsDown   = "RDMAPortsDown"
	reasonNoPorts     = "NoRDMAPorts"
)

// statusOf renders a reading with the verdicts on its GPUs; maxNVLinks tells the most
// NVLinks that a GPU had.
func statusOf(reading hardware.Reading, verdicts []health.Verdict, maxNVLinks func(uuid string) int) contract.GPUNodeStatus {
	status := contract.StatusOf(reading.Machine)
	status.DriverVersion = reading.DriverVersion
	for i, nic := range status.NICs {
		port := reading.Ports[nic.Name]
		status.NICs[i].Port, status.NICs[i].GID, status.NICs[i].MTUBytes, status.NICs[i].Driver = port.State, port.GID, port.MTUBytes, port.Driver
		status.NICs[i].RedirectedBy = reading.Redirecting[nic.Name]
	}
	if len(status.NICs) > 0 {
		status.LockableKiB = reading.LockableKiB
	}
	for i, verdict := range verdicts {
		gpu := &status.GPUs[i]
		gpu.Health, gpu.Reason = contract.Healthy, verdict.Reason()
		if !verdict.Usable() {
			since := metav1.NewTime(verdict.Since).Rfc3339Copy()
			gpu.Health, gpu.Since = contract.Unhealthy, &since
		}
		for _, f := range verdict.Faults {
			gpu.Faults = append(gpu.Faults, contract.GPUFault{
				Code: f.Code, Class: f.Class.String(), Message: f.Message, Since: metav1.NewTime(f.Since).Rfc3339Copy(), Cured: f.Cured,
			})
		}
		if reading.GPUs == nil {
			continue // simulated
		}
		detail := reading.GPUs[i]
		gpu.State, gpu.Fabric = string(verdict.State), detail.Fabric
		gpu.MIG, gpu.PendingMIG, gpu.MIGDevices = detail.MIG.Enabled, pendingMIG(detail.MIG), migDevices(detail.MIG.Profiles)
		gpu.NVLinks, gpu.MaxNVLinks = detail.NVLinks, maxNVLinks(gpu.UUID)
		gpu.UncorrectableErrors = detail.UncorrectableErrors
		gpu.PCIe, gpu.BestPCIe = pcieText(detail.PCIe), pcieText(detail.BestPCIe)
	}
	return status
}

// needsReset tells whether a GPU waits for a reset or a reboot.
func needsReset(status contract.GPUNodeStatus) bool {
	return slices.ContainsFunc(status.GPUs, func(gpu contract.GPUInfo) bool {
		return slices.ContainsFunc(gpu.Faults, func(f contract.GPUFault) bool { return health.ClassOf(f.Class) >= health.NeedsReset && !f.Cured })
	})
}

// pendingMIG is the mode that a GPU will have, "" for the one that it has.
func pendingMIG(mig hardware.MIG) string {
	switch {
	case mig.Pending == mig.Enabled:
		return ""
	case mig.Pending:
		return contract.MIGEnabled
	}
	return contract.MIGDisabled
}

// migDevices counts MIG devices by their profile.
func migDevices(profiles []string) []contract.MIGDevices {
	var devices []contract.MIGDevices
	for _, profile := range slices.Sorted(slices.Values(profiles)) {
		if last := len(devices) - 1; last >= 0 && devices[last].Profile == profile {
			devices[last].Count++
			continue
		}
		devices = append(devices, contract.MIGDevices{Profile: profile, Count: 1})
	}
	return devices
}

// pcieText is "gen4 x16", without what is unknown.
func pcieText(p hardware.PCIe) string {
	var words []string
	if p.Generation > 0 {
		words = append(words, fmt.Sprintf("gen%d", p.Generation))
	}
	if p.Width > 0 {
		words = append(words, fmt.Sprintf("x%d", p.Width))
	}
	return strings.Join(words, " ")
}

// readyCondition is the condition of a status; unread says why the hardware cannot be
// read or used, nil when it can.
func readyCondition(status contract.GPUNodeStatus, unread error, now time.Time) metav1.Condition {
	var unusable []string
	for _, gpu := range status.GPUs {
		if gpu.Health != contract.Healthy {
			unusable = append(unusable, fmt.Sprintf("GPU %d: %s", gpu.Index, gpu.Reason))
		}
	}
	ready := metav1.Condition{Type: contract.ConditionReady, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy()}
	switch {
	case unread != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionUnknown, reasonUnreadable, unread.Error()
	case len(status.GPUs) == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonNoGPUs, "the driver lists no GPUs"
	case len(unusable) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonUnhealthy, strings.Join(unusable, "; ")
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, reasonAllHealthy, fmt.Sprintf("%d GPUs", len(status.GPUs))
	}
	return ready
}

// rdmaCondition is the condition of a machine's RDMA devices.
func rdmaCondition(nics []contract.NICInfo, now time.Time) metav1.Condition {
	known := 0
	var down []string
	for _, nic := range nics {
		if nic.Port != "" {
			known++
		}
		if why := nic.Unusable(); why != "" {
			down = append(down, nic.Name+" "+why)
		}
	}
	ready := metav1.Condition{Type: contract.RDMAReadyCondition, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy()}
	switch {
	case len(down) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonPortsDown, "the port of RDMA device "+strings.Join(down, "; of ")
	case known == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonNoPorts, "the machine has no RDMA device with a port, and had one"
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, reasonPortsActive, fmt.Sprintf("%d RDMA devices", known)
	}
	return ready
}
