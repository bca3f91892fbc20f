package quota

import (
	"maps"
	"slices"
	"strings"
)

// Fits returns nil when a request may run in the leaf: used + requested ≤ max at
// the leaf and every ancestor, or ≤ min everywhere when it is not preemptible.
// The idle minimum that a sibling does not lend (LendLimit) counts as used. A leaf
// that does not exist has no limits.
func (t *Tree) Fits(leaf string, request Resources, preemptible bool) *Exceeded {
	return t.FitsWith(nil, leaf, request, preemptible)
}

// FitsWith is Fits with more usage ([Tree.Unused]), nil for none.
func (t *Tree) FitsWith(more *Tree, leaf string, request Resources, preemptible bool) *Exceeded {
	at := t.leaf(leaf)
	var first *Exceeded // by the resource's name
	for resource, amount := range request {
		if amount <= 0 || !t.governed[resource] || first != nil && first.Resource < resource {
			continue
		}
		if e := t.usage(more, resource).fits(at, amount, preemptible); e != nil {
			first = e
		}
	}
	return first
}

// usage is what is used of one resource, which the tree governs.
type usage struct {
	*Tree
	more           *Tree
	resource       string
	column, beside int
}

func (t *Tree) usage(more *Tree, resource string) usage {
	u := usage{Tree: t, more: more, resource: resource, column: t.columns[resource]}
	if more != nil {
		u.beside = more.columns[resource]
	}
	return u
}

func (u *usage) of(i int) int64 {
	amount := u.used[i*len(u.columns)+u.column]
	if u.more != nil {
		amount += u.more.used[i*len(u.more.columns)+u.beside]
	}
	return amount
}

func (u *usage) fixedOf(i int) int64 {
	amount := u.fixed[i*len(u.columns)+u.column]
	if u.more != nil {
		amount += u.more.fixed[i*len(u.more.columns)+u.beside]
	}
	return amount
}

// fits walks from the leaf to the root. below is what the child on the path takes of its
// parent once the request runs.
func (u usage) fits(leaf int, amount int64, preemptible bool) *Exceeded {
	from := none
	var below int64
	for i := leaf; i != none; from, i = i, u.nodes[i].parent {
		n := &u.nodes[i]
		if !preemptible {
			if limit, fixed := n.spec.Min[u.resource], u.fixedOf(i); fixed+amount > limit {
				return &Exceeded{
					Path: n.path, Resource: u.resource, Used: fixed, Reserved: fixed - u.fixed[i*len(u.columns)+u.column],
					Requested: amount, Limit: limit, Guaranteed: true,
				}
			}
		}
		used := u.of(i)
		after := used + amount
		if u.lends && from != none {
			after = below + used // of which stays what no child uses
			for _, c := range n.children {
				if after -= u.of(c); c != from {
					after += u.taken(c)
				}
			}
		}
		if high, ok := n.spec.Max[u.resource]; ok && after > high {
			return &Exceeded{
				Path: n.path, Resource: u.resource, Used: after - amount,
				Requested: amount, Limit: high, Held: after - amount - used, Reserved: used - u.usedOf(i, u.resource),
			}
		}
		below = after
	}
	return nil
}

// FitsJob returns nil when one more job may leave the queue for the leaf: the
// number of jobs stays within the limit of the leaf and every ancestor.
func (t *Tree) FitsJob(leaf string) *Exceeded { return t.FitsJobWith(nil, leaf) }

// FitsJobWith is FitsJob with more usage ([Tree.Unused]), nil for none.
func (t *Tree) FitsJobWith(more *Tree, leaf string) *Exceeded {
	for i := t.leaf(leaf); i != none; i = t.nodes[i].parent {
		n, jobs := &t.nodes[i], t.jobs[i]
		if more != nil {
			jobs += more.jobs[i]
		}
		if limit := n.spec.MaxJobs; limit > 0 && jobs >= limit {
			return &Exceeded{Path: n.path, Resource: Jobs, Used: jobs, Requested: 1, Limit: limit, Reserved: jobs - t.jobs[i]}
		}
	}
	return nil
}

// Entitled reports whether a request stays within the leaf's own minimum, so that
// it may take back what others borrowed.
func (t *Tree) Entitled(leaf string, request Resources) bool {
	i := t.leaf(leaf)
	if i == none {
		return false
	}
	for resource, amount := range request {
		if amount > 0 && t.governed[resource] && t.usedOf(i, resource)+amount > t.nodes[i].spec.Min[resource] {
			return false
		}
	}
	return true
}

// Unguaranteed lists, sorted, the resources of a request of which the leaf has no minimum and which alone keep it from being
// entitled to take back what other leaves borrow of an exceeded limit, of which it has a minimum. There are none where
// something else keeps it from that, or nobody borrows.
func (t *Tree) Unguaranteed(leaf string, request Resources, full Exceeded) (resources []string) {
	i := t.leaf(leaf)
	if i == none || full.Guaranteed || t.nodes[i].spec.Min[full.Resource] == 0 || !t.borrowed(full) {
		return nil
	}
	for resource, amount := range request {
		least := t.nodes[i].spec.Min[resource]
		switch {
		case amount <= 0 || !t.governed[resource] || t.usedOf(i, resource)+amount <= least:
		case least == 0:
			resources = append(resources, resource)
		default:
			return nil
		}
	}
	slices.Sort(resources)
	return resources
}

// borrowed reports whether a leaf uses more than its minimum of an exceeded limit.
func (t *Tree) borrowed(full Exceeded) bool {
	for i := range t.nodes {
		n := &t.nodes[i]
		below := n.path == full.Path || strings.HasPrefix(n.path, full.Path+"/")
		if below && len(n.children) == 0 && t.usedOf(i, full.Resource) > n.spec.Min[full.Resource] {
			return true
		}
	}
	return false
}

// Borrows reports whether the leaf uses more than its minimum of one of the
// resources that both the leaf's job and the preemptor's request use.
func (t *Tree) Borrows(leaf string, job, claim Resources) bool {
	i := t.leaf(leaf)
	if i == none {
		return false
	}
	for resource, amount := range job {
		if amount > 0 && claim[resource] > 0 && t.governed[resource] && t.usedOf(i, resource) > t.nodes[i].spec.Min[resource] {
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
	i := t.leaf(leaf)
	for resource, amount := range job {
		least := t.nodes[i].spec.Min[resource]
		if used := t.usedOf(i, resource); t.governed[resource] && used > least && used-amount < least {
			return false
		}
	}
	return true
}

// Share is the leaf's dominant share: the most that it uses of one of the resources
// in the request, in parts of its minimum; +Inf without a minimum. Resources that the tree
// does not name don't count: nobody borrows them.
func (t *Tree) Share(leaf string, request Resources) float64 {
	i := t.leaf(leaf)
	if i == none {
		return 0
	}
	share := 0.0
	for resource, amount := range request {
		if used := t.usedOf(i, resource); amount > 0 && t.governed[resource] && used > 0 {
			share = max(share, float64(used)/float64(t.nodes[i].spec.Min[resource]))
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

// taken is what a node that has a parent takes of it: what runs below it, or what it keeps.
func (u *usage) taken(i int) int64 {
	n := &u.nodes[i]
	sum := u.of(i)
	if len(n.children) > 0 {
		sum = 0
		for _, c := range n.children {
			sum += u.taken(c)
		}
	}
	return max(sum, n.kept(u.resource))
}

// Over returns the maximum that the leaf or an ancestor exceeds already, of the
// resources that the request uses; nil when there is none.
func (t *Tree) Over(leaf string, request Resources) *Exceeded {
	for _, resource := range slices.Sorted(maps.Keys(request)) {
		if request[resource] <= 0 {
			continue
		}
		for i := t.leaf(leaf); i != none; i = t.nodes[i].parent {
			n, used := &t.nodes[i], t.usedOf(i, resource)
			if high, ok := n.spec.Max[resource]; ok && used > high {
				return &Exceeded{Path: n.path, Resource: resource, Used: used, Limit: high}
			}
		}
	}
	return nil
}
