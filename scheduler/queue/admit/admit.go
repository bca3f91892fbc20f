// Package admit decides which queued jobs may start: a pure function of the quota
// tree, what is charged to it, and the lines of the queues.
//
// Jobs of one queue stand in the queue by priority, then by arrival. Queues take turns:
// the next job to be looked at is the head of the queue with the highest priority,
// then of that whose leaf uses the smallest part of its minimum (dominant share), then
// the job with the highest priority, then the oldest. It starts when the limits of its leaf and
// of every ancestor allow the whole job and one job more. Otherwise a queue with
// policy Priority goes on with the next job, and one with policy Block stops.
//
// A job that stays within its leaf's minimum starts also when only what others
// borrowed is in its way: the scheduler takes that back for it, as a whole gang.
package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Unit is a job that waits.
type Unit struct {
	// ID names the job, "namespace/name".
	ID       string
	Leaf     string
	Priority int32
	// Since and Sequence order jobs of one priority; the ID breaks ties.
	Since, Sequence int64
	Request         quota.Resources
	Preemptible     bool
}

// Queue is how a leaf's jobs stand in the queue.
type Queue struct {
	// Block lets nothing pass the first job that must wait.
	Block bool
	// Priority orders queues, highest first.
	Priority int32
}

// Holder is something charged to the tree that could be taken back.
type Holder struct {
	Leaf        string
	Request     quota.Resources
	Preemptible bool
}

// Decision is about one unit.
type Decision struct {
	Unit
	Start bool
	// Position in the line of those that still wait, from 1; 0 when it starts.
	Position int
	// Reason says why it waits.
	Reason string
}

// Decide charges every unit that may start to the tree, which must hold what runs
// already, and returns a decision for each unit: those that start first, in their
// order, then the lines of the queues by leaf. Every unit's leaf must be in the tree.
// A leaf without an entry in queues has policy Priority.
func Decide(tree *quota.Tree, queues map[string]Queue, waiting []Unit, holders []Holder) []Decision {
	d := &decider{tree: tree, holders: holders}
	byLeaf := map[string]*leafQueue{}
	for _, u := range waiting {
		l := byLeaf[u.Leaf]
		if l == nil {
			l = &leafQueue{Queue: queues[u.Leaf], leaf: u.Leaf}
			byLeaf[u.Leaf] = l
			d.queues = append(d.queues, l)
		}
		l.units = append(l.units, u)
	}
	slices.SortFunc(d.queues, func(a, b *leafQueue) int { return cmp.Compare(a.leaf, b.leaf) })
	for _, l := range d.queues {
		slices.SortFunc(l.units, queuedAt)
		l.share = d.shareOf(l)
	}
	for l := d.next(); l != nil; l = d.next() {
		d.decide(l)
	}
	for _, l := range d.queues {
		d.started = append(d.started, l.waits...)
	}
	return d.started
}

// leafQueue is the queue of one leaf.
type leafQueue struct {
	Queue
	leaf  string
	units []Unit
	// at is the unit to look at next.
	at    int
	share float64
	waits []Decision
	// rejected is the last unit that had to wait, after how many others had started, and why.
	rejected      Unit
	rejectedAfter int
	reason        string
}

// queuedAt is the order of units in one queue.
func queuedAt(a, b Unit) int {
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Since, b.Since), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.ID, b.ID))
}

type decider struct {
	tree    *quota.Tree
	holders []Holder
	queues  []*leafQueue
	started []Decision
}

// next returns the queue whose head is looked at next, nil when all were.
func (d *decider) next() *leafQueue {
	var best *leafQueue
	for _, l := range d.queues {
		if l.at < len(l.units) && (best == nil || before(l, best)) {
			best = l
		}
	}
	return best
}

func before(a, b *leafQueue) bool {
	order := cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.share, b.share), queuedAt(a.units[a.at], b.units[b.at]))
	return order < 0
}

// decide decides about the head of a line.
func (d *decider) decide(l *leafQueue) {
	u := l.units[l.at]
	l.at++
	if l.reason == "" || l.rejectedAfter != len(d.started) || u.Preemptible != l.rejected.Preemptible || !maps.Equal(u.Request, l.rejected.Request) {
		l.rejected, l.rejectedAfter, l.reason = u, len(d.started), d.obstacle(u)
	}
	if l.reason == "" {
		d.tree.Add(u.Leaf, u.Request, u.Preemptible)
		d.tree.AddJob(u.Leaf)
		d.started = append(d.started, Decision{Unit: u, Start: true})
		l.share = d.shareOf(l)
		return
	}
	l.wait(u, l.reason)
	if l.Block {
		for ; l.at < len(l.units); l.at++ {
			l.wait(l.units[l.at], fmt.Sprintf("nothing passes %s, which waits: %s", u.ID, l.reason))
		}
	}
	l.share = d.shareOf(l)
}

func (l *leafQueue) wait(u Unit, reason string) {
	l.waits = append(l.waits, Decision{Unit: u, Position: len(l.waits) + 1, Reason: reason})
}

// shareOf is the dominant share of the line's leaf in what its head asks for.
func (d *decider) shareOf(l *leafQueue) float64 {
	if l.at == len(l.units) {
		return 0
	}
	return d.tree.Share(l.leaf, l.units[l.at].Request)
}

// obstacle says which limit keeps a unit from starting, "" when none does.
func (d *decider) obstacle(u Unit) string {
	if e := d.tree.FitsJob(u.Leaf); e != nil {
		return e.String()
	}
	e := d.tree.Fits(u.Leaf, u.Request, u.Preemptible)
	if e == nil || d.reclaimable(u) {
		return ""
	}
	return e.String()
}

// reclaimable reports whether the unit is entitled to start and would fit if other
// leaves gave back what they borrow of what it asks for.
func (d *decider) reclaimable(u Unit) bool {
	if !d.tree.Entitled(u.Leaf, u.Request) {
		return false
	}
	after := d.tree.Clone()
	for _, h := range d.holders {
		if h.Preemptible && h.Leaf != u.Leaf && after.Borrows(h.Leaf, h.Request, u.Request) {
			after.Remove(h.Leaf, h.Request, h.Preemptible)
		}
	}
	return after.Fits(u.Leaf, u.Request, u.Preemptible) == nil
}
