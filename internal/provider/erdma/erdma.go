// Package erdma holds how the controller of eRDMA devices gives these to pods, and which nodes go with that.
package erdma

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
)

// AllDevices is the setting of the controller by which a pod gets all devices of its node.
var AllDevices = []string{"agent", "allocateAllDevices"}

// ByNUMANode reports whether the controller gives a pod one device, by the NUMA node of its CPUs, where its
// configuration is config, as JSON has it. It does so unless it is told otherwise, and it takes nodes that pin CPUs
// (ACK: "Submit eRDMA-accelerated PyTorch distributed training jobs by using Arena").
func ByNUMANode(config map[string]any) bool {
	agent, _ := config[AllDevices[0]].(map[string]any)
	return agent[AllDevices[1]] != true
}

// HasDevices reports whether nodes of one of these instance types have eRDMA devices, as far as the catalogue knows.
func HasDevices(instanceTypes []string) bool {
	return slices.ContainsFunc(instanceTypes, func(name string) bool {
		it, ok := catalog.Lookup(name)
		return ok && it.ERDMADevices > 0
	})
}

// Pins reports whether nodes that join a pool pin CPUs, whichever of the two settings says so.
func Pins(p acs.NodePoolSpec) bool {
	kubelet := p.NodeConfig.Kubelet
	return p.KubernetesConfig.CPUPolicy == acs.CPUPolicyStatic || kubelet != nil && kubelet.CPUManagerPolicy == acs.CPUPolicyStatic
}
