package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

// Held is what one job takes of a node, or what everything takes that belongs to no job.
// What is nil is none.
type Held struct {
	// Job is "namespace/name" of the gang, nil for what belongs to none.
	Job *string `tfsdk:"job"`
	// GPUs are whole GPUs by NVML index, "0-3,6".
	GPUs *string `tfsdk:"gpus"`
	// UnrecordedGPUs counts GPUs of which nobody wrote down which they are, as in mode
	// "default", where the device plugin picks them.
	UnrecordedGPUs *int64 `tfsdk:"unrecorded_gpus"`
	// Shares are parts of GPUs, "0: 4 GiB, 25 %".
	Shares    []string         `tfsdk:"shares"`
	MilliCPU  *int64           `tfsdk:"milli_cpu"`
	MemoryMiB *int64           `tfsdk:"memory_mib"`
	Pods      *int64           `tfsdk:"pods"`
	Extended  map[string]int64 `tfsdk:"extended"`
	// HostPorts are ports of the node, "TCP/23456".
	HostPorts []string `tfsdk:"host_ports"`
}

// Without returns the capacity as it is when jobs have given back what they hold.
func (c Capacity) Without(jobs ...string) Capacity {
	theirs := func(h Held) bool { return h.Job != nil && slices.Contains(jobs, *h.Job) }
	if !slices.ContainsFunc(c.Nodes, func(n Node) bool { return slices.ContainsFunc(n.Held, theirs) }) {
		return c
	}
	c.planned, c.Nodes = nil, slices.Clone(c.Nodes)
	for i := range c.Nodes {
		c.Nodes[i].Held = slices.DeleteFunc(slices.Clone(c.Nodes[i].Held), theirs)
	}
	return c.counted()
}

// held adds up what pods take, by job.
func held(gpus *gpu.Table, pods []placement.Pod) []Held {
	byJob := map[string][]placement.Pod{}
	for _, p := range pods {
		byJob[p.Gang] = append(byJob[p.Gang], p)
	}
	var all []Held
	for _, job := range slices.Sorted(maps.Keys(byJob)) {
		all = append(all, taken(job, gpus, byJob[job]))
	}
	return all
}

func taken(job string, gpus *gpu.Table, pods []placement.Pod) Held {
	var own gpu.Set
	var sum placement.Resources
	var unrecorded int
	var shares []placement.GPUShare
	h := Held{Job: differing(job, "")}
	for _, p := range pods {
		r := p.Request
		sum.MilliCPU += r.MilliCPU
		sum.MemoryBytes += r.MemoryBytes
		for name, amount := range r.Extended {
			if h.Extended == nil {
				h.Extended = map[string]int64{}
			}
			h.Extended[name] += amount
		}
		own |= p.Own
		shares = append(shares, p.Shares...)
		switch recorded := p.Own != 0 || len(p.Shares) > 0; {
		case recorded:
		case r.Shared():
			shares = append(shares, everywhere(r, gpus)...)
		default:
			unrecorded += r.GPUs
		}
		h.HostPorts = append(h.HostPorts, r.HostPorts...)
	}
	slices.Sort(h.HostPorts)
	h.GPUs = differing(assignment.Ranges(indexes(own, gpus)), "")
	h.UnrecordedGPUs = differing(int64(unrecorded), 0)
	h.Shares = shareTexts(shares, gpus)
	h.MilliCPU, h.MemoryMiB = differing(sum.MilliCPU, 0), differing((sum.MemoryBytes+mib-1)/mib, 0)
	h.Pods = differing(int64(len(pods)), 0)
	return h
}

// everywhere is a shared request of which nobody wrote down which GPUs it has: each
// healthy one may be one of them. Without a table there are none.
func everywhere(r placement.Request, gpus *gpu.Table) (shares []placement.GPUShare) {
	if gpus == nil {
		return nil
	}
	for _, device := range gpus.Machine().Healthy().GPUs() {
		part := r.PerGPU()
		part.GPU = device
		shares = append(shares, part)
	}
	return shares
}

func indexes(set gpu.Set, gpus *gpu.Table) []int64 {
	var out []int64
	for _, i := range inventory.Indexes(set, gpus) {
		out = append(out, int64(i))
	}
	return out
}

func shareTexts(shares []placement.GPUShare, gpus *gpu.Table) []string {
	slices.SortFunc(shares, func(a, b placement.GPUShare) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.MemoryGiB, b.MemoryGiB), cmp.Compare(a.CorePercent, b.CorePercent))
	})
	var texts []string
	for _, s := range shares {
		index := indexes(gpu.SetOf(s.GPU), gpus)[0]
		if s.CorePercent == 0 {
			texts = append(texts, fmt.Sprintf("%d: %d GiB", index, s.MemoryGiB))
		} else {
			texts = append(texts, fmt.Sprintf("%d: %d GiB, %d %%", index, s.MemoryGiB, s.CorePercent))
		}
	}
	return texts
}

// share reads what shareTexts wrote; the GPU is an NVML index.
func share(text string) (s placement.GPUShare, err error) {
	if n, _ := fmt.Sscanf(text, "%d: %d GiB, %d %%", &s.GPU, &s.MemoryGiB, &s.CorePercent); n >= 2 {
		return s, nil
	}
	return s, fmt.Errorf("%q is not a part of a GPU such as \"0: 4 GiB, 25 %%\"", text)
}

// forgetGPUs counts the GPUs that jobs hold, where nodes go over to a mode in which the device plugin picks
// them: jobs of the mode before give theirs back, and nobody says before whom.
func (c Capacity) forgetGPUs() {
	for i := range c.Nodes {
		held := slices.Clone(c.Nodes[i].Held)
		for j, h := range held {
			if whole, err := assignment.FromRanges(value(h.GPUs)); err == nil && len(whole) > 0 {
				held[j].GPUs, held[j].UnrecordedGPUs = nil, differing(value(h.UnrecordedGPUs)+int64(len(whole)), 0)
			}
		}
		c.Nodes[i].Held = held
	}
}

// gpus are the GPUs of which the job has something, by NVML index.
func (h Held) gpus() []int64 {
	all, err := assignment.FromRanges(value(h.GPUs))
	if err != nil {
		return nil // the planner says so
	}
	for _, text := range h.Shares {
		if s, err := share(text); err == nil {
			all = append(all, int64(s.GPU))
		}
	}
	return all
}

// occupants are the pods that stand for what a job holds of a node. positions gives the
// place of a GPU in the node's table by its NVML index.
func (h Held) occupants(node placement.Node, positions map[int]int) ([]placement.Pod, error) {
	pod := placement.Pod{ID: "held on " + node.Name + " by " + value(h.Job), Node: node.Name}
	pod.Request.MilliCPU, pod.Request.MemoryBytes = value(h.MilliCPU), value(h.MemoryMiB)*mib
	pod.Request.Extended, pod.Request.HostPorts = h.Extended, h.HostPorts
	own, err := assignment.FromRanges(value(h.GPUs))
	if err != nil {
		return nil, err
	}
	for _, index := range own {
		position, ok := positions[int(index)]
		if !ok {
			return nil, fmt.Errorf("there is no GPU %d", index)
		}
		pod.Own |= gpu.SetOf(position)
	}
	for _, text := range h.Shares {
		s, err := share(text)
		if err != nil {
			return nil, err
		}
		position, ok := positions[s.GPU]
		if !ok {
			return nil, fmt.Errorf("there is no GPU %d", s.GPU)
		}
		s.GPU = position
		pod.Shares = append(pod.Shares, s)
		pod.Request.MemoryGiB += s.MemoryGiB
		pod.Request.CorePercent += s.CorePercent
	}
	if pod.Request.GPUs = pod.Own.Len() + len(pod.Shares); pod.Request.GPUs > 0 {
		pod.Request.Mode = node.Mode
	}
	pods := []placement.Pod{pod}
	if n := value(h.UnrecordedGPUs); n > 0 {
		// The planner takes such GPUs from wherever they may be.
		rest := placement.Pod{ID: pod.ID + " unrecorded", Node: node.Name}
		rest.Request.Mode, rest.Request.GPUs = placement.ModeDefault, int(n)
		pods = append(pods, rest)
	}
	return pods, nil
}
