package capacity

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// lost is why a GPU is not used that the instance type has and the node does not show.
const lost = "the node agent does not find it"

// node says in what a node that exists, with these pods on it, differs from a fresh one.
func (p Pool) node(n, template placement.Node, pods []placement.Pod) Node {
	out := Node{
		Name:         n.Name,
		Taints:       p.ownTaints(n, template),
		Labels:       p.ownLabels(n, template),
		NVLinkDomain: differing(n.NVLinkDomain, ""),
		HeadroomMiB:  differing(n.HeadroomMiB, 0),
		MilliCPU:     differing(n.Allocatable.MilliCPU, template.Allocatable.MilliCPU),
		MemoryMiB:    differing(n.Allocatable.MemoryBytes/mib, template.Allocatable.MemoryBytes/mib),
		Pods:         differing(n.Allocatable.Pods, template.Allocatable.Pods),
		Held:         held(cmp.Or(n.GPUs, template.GPUs), pods), // a node that does not offer its GPUs is planned with the template's
	}
	if n.Unschedulable {
		out.Unschedulable = &n.Unschedulable
	}
	if !maps.Equal(n.Allocatable.Extended, template.Allocatable.Extended) {
		out.Extended = maps.Clone(n.Allocatable.Extended)
	}
	if n.GPUs != nil { // otherwise the node does not offer its GPUs at the moment
		out.GPUMemoryMiB = differing(smallest(n.GPUs), smallest(template.GPUs))
		out.SickGPUs, out.Links = hardware(n.GPUs.Machine(), template.GPUs)
	}
	return out
}

// smallest is the memory of the smallest GPU in MiB, 0 without GPUs.
func smallest(gpus *gpu.Table) (mib int64) {
	if gpus == nil {
		return 0
	}
	for i, device := range gpus.Machine().GPUs {
		if i == 0 || device.MemoryMiB < mib {
			mib = device.MemoryMiB
		}
	}
	return mib
}

// ownTaints are those that are not the pool's. Those of the pool that a node lacks are
// given back to it before a job is placed.
func (p Pool) ownTaints(n, template placement.Node) []string {
	var own []string
	for _, t := range n.Taints {
		if !slices.Contains(template.Taints, t) && (!n.Unschedulable || t.Key != corev1.TaintNodeUnschedulable) {
			own = append(own, t.String())
		}
	}
	slices.Sort(own)
	return own
}

// ownLabels are those beside or instead of the pool's, apart from those that the provider
// gives back to the node before a job is placed.
func (p Pool) ownLabels(n, template placement.Node) map[string]*string {
	own := map[string]*string{}
	for key, text := range n.Labels {
		if key != corev1.LabelHostname || text != n.Name {
			own[key] = &text
		}
	}
	for key, text := range template.Labels {
		if have, ok := n.Labels[key]; !ok {
			own[key] = nil
		} else if have == text {
			delete(own, key)
		}
	}
	return p.beside(own)
}

// beside leaves out the labels that the provider gives to the pool's nodes, nil for none.
func (p Pool) beside(labels map[string]*string) map[string]*string {
	rest, repaired := maps.Clone(labels), p.OwnLabels()
	maps.Copy(repaired, p.Labels)
	for key := range repaired {
		if !p.AsIs {
			delete(rest, key)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// shared takes the labels out of nodes that all of them have alike.
func shared(nodes []Node) map[string]*string {
	if len(nodes) < 2 {
		return nil // nothing to share
	}
	common := maps.Clone(nodes[0].Labels)
	same := func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	for _, n := range nodes[1:] {
		maps.DeleteFunc(common, func(key string, text *string) bool {
			other, ok := n.Labels[key]
			return !ok || !same(text, other)
		})
	}
	if len(common) == 0 {
		return nil
	}
	for i := range nodes {
		rest := maps.Clone(nodes[i].Labels)
		maps.DeleteFunc(rest, func(key string, _ *string) bool { _, ok := common[key]; return ok })
		if nodes[i].Labels = rest; len(rest) == 0 {
			nodes[i].Labels = nil
		}
	}
	return common
}

// hardware says which GPUs of the reference must not be used, and what the links are
// when they are not the reference's.
func hardware(m gpu.Machine, reference *gpu.Table) (sick map[string]string, links []string) {
	note := func(index int, reason string) {
		if sick == nil {
			sick = map[string]string{}
		}
		sick[strconv.Itoa(index)] = reason
	}
	full := m
	if reference != nil {
		full = completed(m, reference.Machine())
	}
	for _, device := range full.GPUs {
		if device.Unhealthy != "" {
			note(device.Index, device.Unhealthy)
		}
	}
	rows := contract.StatusOf(full).Links
	if reference != nil && slices.Equal(rows, contract.StatusOf(reference.Machine()).Links) {
		return sick, nil
	}
	return sick, rows
}

// completed puts the GPUs that a machine has lost back where the reference has them,
// as GPUs that must not be used.
func completed(m, reference gpu.Machine) gpu.Machine {
	at := map[int]int{}
	for i, device := range m.GPUs {
		at[device.Index] = i
	}
	full := reference
	full.GPUs = slices.Clone(reference.GPUs)
	full.Links = make([][]gpu.Link, len(reference.Links))
	known := 0
	for i := range full.GPUs {
		full.Links[i] = slices.Clone(reference.Links[i])
		position, ok := at[full.GPUs[i].Index]
		if !ok {
			full.GPUs[i].Unhealthy = lost
			continue
		}
		known++
		full.GPUs[i].Unhealthy = m.GPUs[position].Unhealthy
		for k := range full.GPUs {
			if other, ok := at[full.GPUs[k].Index]; ok {
				full.Links[i][k] = m.Links[position][other]
			}
		}
	}
	if known < len(m.GPUs) {
		return m // other hardware than the instance type's
	}
	return full
}

// taint reads what [placement.Taint.String] wrote.
func taint(text string) placement.Taint {
	rest, effect, _ := cutLast(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	return placement.Taint{Key: key, Value: value, Effect: effect}
}

func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// differing is nil for the value that a fresh node has.
func differing[T comparable](have, fresh T) *T {
	if have == fresh {
		return nil
	}
	return &have
}

// value is what a pointer points at, or the zero value.
func value[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}

// given is what a pointer points at, or what a fresh node has.
func given[T any](p *T, fresh T) T {
	if p == nil {
		return fresh
	}
	return *p
}
