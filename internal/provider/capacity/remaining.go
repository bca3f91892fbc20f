package capacity

import (
	"maps"
	"reflect"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Remaining returns the capacity of the pool when size of its existing nodes stay, of which
// someone else chooses the others: the nodes have the names of planned ones then. ok is false
// where the nodes are not alike, so that it depends on the choice. What jobs hold makes no
// difference when all jobs leave.
func (p Pool) Remaining(existing Capacity, size int, jobsLeave bool) (c Capacity, ok bool, err error) {
	if size > 0 && size < len(existing.Nodes) {
		if !existing.alike(jobsLeave) {
			return Capacity{}, false, nil
		}
		existing = existing.unnamed()
	}
	c, err = p.Planned(existing, size)
	return c, true, err
}

// alike reports whether the nodes differ in nothing but their names, and in what jobs hold.
func (c Capacity) alike(exceptJobs bool) bool {
	as := func(n Node) Node {
		n.Name = ""
		n.Held = slices.DeleteFunc(append([]Held{}, n.Held...), func(h Held) bool { return exceptJobs && h.Job != nil })
		return n
	}
	return !slices.ContainsFunc(c.Nodes, func(n Node) bool { return !reflect.DeepEqual(as(n), as(c.Nodes[0])) })
}

// unnamed gives the nodes the names of planned ones, which do not get the labels that all have
// alike otherwise.
func (c Capacity) unnamed() Capacity {
	c.Nodes = slices.Clone(c.Nodes)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		labels := maps.Clone(c.LiveLabels)
		if labels == nil {
			labels = map[string]*string{}
		}
		maps.Copy(labels, n.Labels)
		n.Name, n.Labels = placement.PlannedName(c.Pool, i), labels
	}
	c.LiveLabels = nil
	return c
}
