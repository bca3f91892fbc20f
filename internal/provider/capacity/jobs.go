package capacity

import (
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Freed is what would be free on a node without one of the jobs on it. A job that is
// replaced gives back what it holds before it is created anew, so its new placement
// is planned on that.
type Freed struct {
	// Job is "namespace/name" of the gang.
	Job           string           `tfsdk:"job"`
	FreeCards     []int64          `tfsdk:"free_cards"`
	UsedShares    []Share          `tfsdk:"used_shares"`
	FreeMilliCPU  int64            `tfsdk:"free_milli_cpu"`
	FreeMemoryMiB int64            `tfsdk:"free_memory_mib"`
	FreePods      int64            `tfsdk:"free_pods"`
	Extended      map[string]int64 `tfsdk:"extended"`
	HostPorts     []string         `tfsdk:"host_ports"`
}

// Without returns the capacity as it is when a job has given back what it holds.
func (c Capacity) Without(job string) Capacity {
	c.Nodes = slices.Clone(c.Nodes)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		for _, f := range n.Jobs {
			if f.Job != job {
				continue
			}
			n.FreeCards, n.UsedShares = f.FreeCards, f.UsedShares
			n.FreeMilliCPU, n.FreeMemoryMiB, n.FreePods = f.FreeMilliCPU, f.FreeMemoryMiB, f.FreePods
			n.Extended, n.HostPorts = f.Extended, f.HostPorts
		}
	}
	return c.counted()
}

// live is what is free on a node that exists, now and without each of its jobs.
func live(n, template placement.Node, pods []placement.Pod) Node {
	out := occupied(n, template, pods)
	jobs := map[string]bool{}
	for _, p := range pods {
		if p.Gang != "" {
			jobs[p.Gang] = true
		}
	}
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		rest := slices.DeleteFunc(slices.Clone(pods), func(p placement.Pod) bool { return p.Gang == job })
		f := occupied(n, template, rest)
		out.Jobs = append(out.Jobs, Freed{
			Job: job, FreeCards: f.FreeCards, UsedShares: f.UsedShares,
			FreeMilliCPU: f.FreeMilliCPU, FreeMemoryMiB: f.FreeMemoryMiB, FreePods: f.FreePods,
			Extended: f.Extended, HostPorts: f.HostPorts,
		})
	}
	return out
}
