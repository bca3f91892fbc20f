package quota

import (
	"maps"
	"slices"
)

// Fits returns nil when a request may run in the leaf: used + requested ≤ max at
// the leaf and every ancestor, or ≤ min everywhere when it is not preemptible.
// The idle minimum that a sibling does not lend (LendLimit) counts as used. A leaf
// that does not exist has no limits.
func (t *Tree) Fits(leaf string, request Resources, preemptible bool) *Exceeded {
	for _, resource := range slices.Sorted(maps.Keys(request)) {
		amount := request[resource]
		if amount <= 0 || !t.governed[resource] {
			continue
		}
		if e := t.fitsOne(t.leaf(leaf), resource, amount, preemptible); e != nil {
			return e
		}
	}
	return nil
}

// fitsOne walks from the leaf to the root. below is what the child on the path
// takes of its parent once the request runs.
func (t *Tree) fitsOne(n *node, resource string, amount int64, preemptible bool) *Exceeded {
	var from *node
	var below int64
	for ; n != nil; from, n = n, n.parent {
		if !preemptible {
			if limit := n.spec.Min[resource]; n.fixed[resource]+amount > limit {
				return &Exceeded{
					Path: n.path, Resource: resource, Used: n.fixed[resource],
					Requested: amount, Limit: limit, Guaranteed: true,
				}
			}
		}
		after := n.used[resource] + amount
		if from != nil {
			after = below
			for _, c := range n.children {
				if c != from {
					after += c.taken(resource)
				}
			}
		}
		if limit, ok := n.spec.Max[resource]; ok && after > limit {
			return &Exceeded{
				Path: n.path, Resource: resource, Used: after - amount,
				Requested: amount, Limit: limit, Held: after - amount - n.used[resource],
			}
		}
		below = max(after, n.kept(resource))
	}
	return nil
}

// kept is the part of a node's minimum that it does not lend.
func (n *node) kept(resource string) int64 {
	lend, limited := n.spec.LendLimit[resource]
	if !limited {
		return 0
	}
	return n.spec.Min[resource] - lend
}

// taken is what a node takes of its parent: what runs below it, or what it keeps.
func (n *node) taken(resource string) int64 {
	sum := n.used[resource]
	if len(n.children) > 0 {
		sum = 0
		for _, c := range n.children {
			sum += c.taken(resource)
		}
	}
	return max(sum, n.kept(resource))
}
