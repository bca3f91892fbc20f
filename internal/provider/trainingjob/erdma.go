package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

// erdmaFindings says that nobody sets up the eRDMA devices of nodes that do not exist yet, which
// the catalogue counts as set up.
func (r *trainingJob) erdmaFindings(ctx context.Context, m model, spec job.Spec) []preflight.Finding {
	node := m.plannedERDMA(ctx, spec)
	if node == "" || r.setsUpERDMA(ctx) {
		return nil
	}
	return []preflight.Finding{{Warning: true, Attribute: "roles", Summary: "eRDMA devices will be missing", Detail: fmt.Sprintf(
		"Replicas of job %s ask for an eRDMA device and are planned on node %s, which does not exist yet. Cluster %s lacks the add-on %s, which sets up the devices of nodes that join after it: "+
			"the node will have none, and the job will wait. Declare a gpuplan_erdma_controller, and name it in depends_on of the node pool, so that it comes first.",
		spec.ID(), node, r.Session.ClusterID, contract.ERDMAController)}}
}

// enoughKiB is how much memory a container may lock so that nobody is warned: NCCL registers 4 MiB for each channel of a connection
// (NCCL_BUFFSIZE), which are a few GiB for eight GPUs.
const enoughKiB = 64 << 20

// portFindings warns of nodes that a job with eRDMA may use, and whose devices have no port that can be used, or where it may not lock
// memory, or does not get from a device to a GPU but over the CPU.
func (r *trainingJob) portFindings(ctx context.Context, spec job.Spec, on offer) (findings []preflight.Finding) {
	if !spec.AsksForRDMA() {
		return nil
	}
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		return nil // nobody knows
	}
	published := map[string]contract.GPUNodeStatus{}
	for _, hardware := range snapshot.GPUNodes {
		published[hardware.Name] = hardware.Status
	}
	var none, down, locked, redirected []string
	for _, node := range given(snapshot, on) {
		if node == nil {
			continue
		}
		status := published[node.Name]
		if noDevice(status) {
			none = append(none, node.Name)
		} else if portDown(status.NICs) != "" {
			down = append(down, node.Name)
		}
		if status.LockableKiB > 0 && status.LockableKiB < enoughKiB && !spec.RDMADefaults {
			locked = append(locked, node.Name)
		}
		if redirectedBy(status.NICs) != "" {
			redirected = append(redirected, node.Name)
		}
	}
	if len(none) > 0 {
		findings = append(findings, preflight.Finding{Warning: true, Attribute: "roles", Summary: "eRDMA device is missing", Detail: fmt.Sprintf(
			"Replicas of job %s use eRDMA. On node %s, which they may use, the node agent finds no RDMA device, so that they run over TCP there, or not at all.%s "+
				"Look whether the kernel module is loaded (`lsmod`, `ibv_devices`), or keep the job from it.", spec.ID(), none[0], more(none))})
	}
	if len(down) > 0 {
		findings = append(findings, preflight.Finding{Warning: true, Attribute: "roles", Summary: "eRDMA port is not active", Detail: fmt.Sprintf(
			"Replicas of job %s use eRDMA. On node %s, which they may use, the port of device %s, so that they run over TCP there, or not at all.%s "+
				"Look at the node's driver and network interface (`ibv_devinfo`, `eadm ver`), or keep the job from it.", spec.ID(), down[0], portDown(published[down[0]].NICs), more(down))})
	}
	if len(locked) > 0 {
		findings = append(findings, preflight.Finding{Warning: true, Attribute: "rdma_defaults", Summary: "eRDMA needs locked memory", Detail: fmt.Sprintf(
			"Replicas of job %s use eRDMA. On node %s, which they may use, a container may lock %d KiB of memory. Buffers beyond that cannot be registered, so that they may fail there, or run over TCP.%s "+
				"With rdma_defaults the replicas get the capability IPC_LOCK, to which the limit does not apply; or lift the limit of the node's container runtime (LimitMEMLOCK=infinity).",
			spec.ID(), locked[0], published[locked[0]].LockableKiB, more(locked))})
	}
	if len(redirected) > 0 {
		findings = append(findings, preflight.Finding{Warning: true, Attribute: "roles", Summary: "RDMA takes the way over the CPU", Detail: fmt.Sprintf(
			"Replicas of job %s use RDMA. On node %s, which they may use, %s, so that GPUDirect RDMA is slow there, or hangs.%s "+
				"Switch Access Control Services off in the machine's firmware, or for the bridge (`setpci`).", spec.ID(), redirected[0], redirectedBy(published[redirected[0]].NICs), more(redirected))})
	}
	return findings
}

// more says of how many other nodes the same is so as of the first.
func more(nodes []string) string {
	if len(nodes) < 2 {
		return ""
	}
	return fmt.Sprintf(" The same is so of %d more.", len(nodes)-1)
}

// noDevice tells whether an agent that reads real hardware has found no RDMA device.
func noDevice(status contract.GPUNodeStatus) bool {
	return status.DriverVersion != "" && len(status.NICs) == 0
}

// portDown is a device with what is wrong with its port, when the ports of all devices are known and none can be used; "" otherwise.
func portDown(nics []contract.NICInfo) string {
	if len(nics) == 0 || slices.ContainsFunc(nics, func(nic contract.NICInfo) bool { return nic.Unusable() == "" }) {
		return ""
	}
	return nics[0].Name + " " + nics[0].Unusable()
}

// redirectedBy is a device with the bridge that redirects what it and GPUs send each other, "" for none.
func redirectedBy(nics []contract.NICInfo) string {
	for _, nic := range nics {
		if len(nic.RedirectedBy) > 0 {
			return fmt.Sprintf("the PCI bridge %s redirects what device %s and GPUs below the same switch send each other to the CPU (Access Control Services)", nic.RedirectedBy[0], nic.Name)
		}
	}
	return ""
}

// plannedERDMA is a node that does not exist yet on which a replica is planned that asks for an
// eRDMA device, "" for none.
func (m model) plannedERDMA(ctx context.Context, spec job.Spec) string {
	var unread diag.Diagnostics
	for _, a := range placementOf(ctx, m.PlannedPlacement, &unread) {
		role, _, _ := strings.Cut(a.Member, "-")
		if spec.Roles[role].RDMA && strings.HasSuffix(a.Node, "]") { // planned by pool and ordinal
			return a.Node
		}
	}
	return ""
}

// setsUpERDMA reports whether the cluster has what sets up eRDMA devices once the plan is
// carried out, or nobody can tell.
func (r *trainingJob) setsUpERDMA(ctx context.Context) bool {
	if installed, known := r.Session.Ledger.Program(contract.ERDMAController); known {
		return installed
	}
	if kube, err := r.Session.Kube(); err == nil { // its chart may have been installed without the service
		if _, served, err := kube.Served(ctx, contract.ERDMADeviceGroup, contract.ERDMADeviceKind); err == nil && served {
			return true
		}
	}
	installed, err := r.Session.HasAddon(ctx, contract.ERDMAController)
	return err != nil || installed
}
