package job

import (
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// rdmaVariables set NCCL up for eRDMA (ACK: "Submit eRDMA-accelerated PyTorch distributed training jobs
// by using Arena"). NCCL takes the name of a device for the beginning of one.
var rdmaVariables = map[string]string{
	"NCCL_SOCKET_IFNAME": "eth0",
	"NCCL_NET_GDR_LEVEL": "1",
	"NCCL_P2P_LEVEL":     "5",
	"NCCL_ALGO":          "Ring",
	"NCCL_DEBUG":         "INFO",
	"NCCL_IB_HCA":        "erdma",
	"NCCL_IB_TIMEOUT":    "23",
	"NCCL_IB_RETRY_CNT":  "10",
}

// lockMemory is the capability with which a process registers as much memory as it likes for RDMA.
const lockMemory corev1.Capability = "IPC_LOCK"

// AsksForRDMA reports whether a role does.
func (s Spec) AsksForRDMA() bool {
	return slices.ContainsFunc(s.RoleNames(), func(name string) bool { return s.Roles[name].RDMA })
}

// variables are those of a role's container. All roles of a job that uses RDMA set NCCL up alike,
// the launcher as well, which may hand them on.
func (s Spec) variables(r Role) map[string]string {
	if !s.RDMADefaults {
		return r.Env
	}
	return merge(rdmaVariables, r.Env)
}

// tellsNCCL is what has NCCL write what it uses, as a variable or in a command, such as behind mpirun's -x.
var tellsNCCL = regexp.MustCompile(`(?i)\bNCCL_DEBUG=["']?(INFO|TRACE)\b`)

// TellsNCCL reports whether the logs of a role tell what NCCL uses: its replicas have GPUs, or it launches what runs on those that
// have, and NCCL is to write so much.
func (s Spec) TellsNCCL(role string) bool {
	tells := func(role string) bool {
		r := s.Roles[role]
		said := slices.Concat(r.Command, r.Args, []string{"NCCL_DEBUG=" + s.variables(r)["NCCL_DEBUG"]})
		return slices.ContainsFunc(said, tellsNCCL.MatchString)
	}
	if s.Framework == MPI {
		return role == contract.ReplicaLauncher && slices.ContainsFunc(s.RoleNames(), tells)
	}
	return !s.Late(role) && tells(role)
}

// security is the security context of a role's container.
func (s Spec) security(r Role) *corev1.SecurityContext {
	if !s.RDMADefaults || !r.RDMA {
		return nil
	}
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{lockMemory}}}
}

// completeRDMA leaves out variables that say what the job has anyway.
func (s *Spec) completeRDMA() {
	if s.RDMADefaults = s.RDMADefaults && s.AsksForRDMA(); !s.RDMADefaults {
		return
	}
	for name, r := range s.Roles {
		r.Env = maps.Clone(r.Env)
		maps.DeleteFunc(r.Env, func(key, value string) bool { return rdmaVariables[key] == value && value != "" })
		if len(r.Env) == 0 {
			r.Env = nil
		}
		s.Roles[name] = r
	}
}

// hasRDMADefaults reports whether a role's container has what [Spec.RDMADefaults] gives it.
func hasRDMADefaults(c corev1.Container, r Role) bool {
	if r.RDMA && (c.SecurityContext == nil || c.SecurityContext.Capabilities == nil || !slices.Contains(c.SecurityContext.Capabilities.Add, lockMemory)) {
		return false
	}
	for name := range rdmaVariables {
		if _, ok := r.Env[name]; !ok {
			return false
		}
	}
	return true
}
