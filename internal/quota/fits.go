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
			if limit := t.scaled(n.spec.Min[resource]); n.fixed[resource]+amount > limit {
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
		if high, ok := n.spec.Max[resource]; ok && after > t.scaled(high) {
			return &Exceeded{
				Path: n.path, Resource: resource, Used: after - amount,
				Requested: amount, Limit: t.scaled(high), Held: after - amount - n.used[resource],
			}
		}
		below = after
	}
	return nil
}

// scaled is a limit with the oversell rate.
func (t *Tree) scaled(limit int64) int64 { return limit * t.oversell / 100 }

// FitsJob returns nil when one more job may leave the queue for the leaf: the
// number of jobs stays within the limit of the leaf and every ancestor.
func (t *Tree) FitsJob(leaf string) *Exceeded {
	for n := t.leaf(leaf); n != nil; n = n.parent {
		if limit := n.spec.MaxJobs; limit > 0 && n.jobs >= limit {
			return &Exceeded{Path: n.path, Resource: Jobs, Used: n.jobs, Requested: 1, Limit: limit}
		}
	}
	return nil
}

// Entitled reports whether a request stays within the leaf's own minimum, so that
// it may take back what others borrowed.
func (t *Tree) Entitled(leaf string, request Resources) bool {
	n := t.leaf(leaf)
	if n == nil {
		return false
	}
	for resource, amount := range request {
		if amount > 0 && t.governed[resource] && n.used[resource]+amount > n.spec.Min[resource] {
			return false
		}
	}
	return true
}

// Borrows reports whether the leaf uses more than its minimum of one of the
// resources that both the leaf's job and the preemptor's request use.
func (t *Tree) Borrows(leaf string, job, claim Resources) bool {
	n := t.leaf(leaf)
	if n == nil {
		return false
	}
	for resource, amount := range job {
		if amount > 0 && claim[resource] > 0 && t.governed[resource] && n.used[resource] > n.spec.Min[resource] {
			return true
		}
	}
	return false
}

// Spares reports whether the leaf borrows, and would use its whole minimum still of what it
// borrows if the job went.
func (t *Tree) Spares(leaf string, job, claim Resources) bool {
	if !t.Borrows(leaf, job, claim) {
		return false
	}
	n := t.leaf(leaf)
	for resource, amount := range job {
		least := n.spec.Min[resource]
		if used := n.used[resource]; t.governed[resource] && used > least && used-amount < least {
			return false
		}
	}
	return true
}

// Share is the leaf's dominant share: the most that it uses of one of the resources
// in the request, in parts of its minimum; +Inf without a minimum. Resources that the tree
// does not name don't count: nobody borrows them.
func (t *Tree) Share(leaf string, request Resources) float64 {
	n := t.leaf(leaf)
	if n == nil {
		return 0
	}
	share := 0.0
	for resource, amount := range request {
		if amount > 0 && t.governed[resource] && n.used[resource] > 0 {
			share = max(share, float64(n.used[resource])/float64(n.spec.Min[resource]))
		}
	}
	return share
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

// Over returns the maximum that the leaf or an ancestor exceeds already, of the
// resources that the request uses; nil when there is none.
func (t *Tree) Over(leaf string, request Resources) *Exceeded {
	for _, resource := range slices.Sorted(maps.Keys(request)) {
		if request[resource] <= 0 {
			continue
		}
		for n := t.leaf(leaf); n != nil; n = n.parent {
			if high, ok := n.spec.Max[resource]; ok && n.used[resource] > t.scaled(high) {
				return &Exceeded{Path: n.path, Resource: resource, Used: n.used[resource], Limit: t.scaled(high)}
			}
		}
	}
	return nil
}
