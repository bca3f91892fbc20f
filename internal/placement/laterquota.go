package placement

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// quotaAfter returns the quota tree when pods have gone.
func (v *View) quotaAfter(gone map[string]*Pod) *quota.Tree {
	tree, left := v.quota.Clone(), map[string]int{}
	for _, p := range gone {
		v.takeOff(tree, p, left)
	}
	return tree
}

// takeOff takes off what a pod is charged that goes, and its gang's job with the last pod;
// left counts the pods of each gang that have gone.
func (v *View) takeOff(tree *quota.Tree, p *Pod, left map[string]int) {
	tree.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
	if p.Gang == "" {
		return
	}
	left[p.Gang]++
	if left[p.Gang] == v.gangs[p.Gang] {
		tree.RemoveJob(p.Leaf)
	}
}

// laterUsage returns what the usage of the quota tree changes by, beside pods that have gone, when
// reservations are in their places: it may be negative.
func (v *View) laterUsage(gone map[string]*Pod, reservations ...*reserved) *quota.Tree {
	more, left := v.quota.Unused(), map[string]int{}
	for _, p := range gone {
		left[p.Gang]++
	}
	for id, p := range v.awaitedBy(reservations...) {
		if gone[id] == nil {
			v.takeOff(more, p, left)
		}
	}
	for _, h := range reservations {
		for _, p := range h.pods() {
			more.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
		}
		if v.gangs[h.Gang.ID] == 0 {
			more.AddJob(h.Gang.Leaf)
		}
	}
	return more
}

// quotaUsage keeps the usage of the quota tree in line with what a dry run evicts: that of the
// cluster, and what it changes by with reservations in their places.
type quotaUsage struct {
	now *laterQuota
	// waiting are the changes with reservations that wait for pods of a victim, by
	// [Victim.Gang]: the others stay as they are.
	waiting map[string][]*laterQuota
}

// laterQuota counts who has gone when reservations are in their places, none for now.
type laterQuota struct {
	// tree is the quota tree for now, else what its usage changes by.
	tree *quota.Tree
	// away are the pods that have gone whoever is evicted.
	away map[string]*Pod
	// left counts the pods of each gang that have gone, pods those that run.
	left, pods map[string]int
	known      map[*runningGang]charges
}

// newQuotaUsage begins with the trees of a cluster, which it changes.
func (v *View) newQuotaUsage(c cluster, kept []*reserved) *quotaUsage {
	open := func(tree *quota.Tree, reservations ...*reserved) *laterQuota {
		l := &laterQuota{tree: tree, pods: c.gangs, left: map[string]int{}, away: v.awaitedBy(reservations...), known: map[*runningGang]charges{}}
		for _, pod := range l.away {
			l.left[pod.Gang]++
		}
		return l
	}
	u := &quotaUsage{now: open(c.quota), waiting: map[string][]*laterQuota{}}
	for i, more := range c.later {
		reservations := kept
		if i < len(kept) {
			reservations = kept[i : i+1]
		}
		l := open(more, reservations...)
		waits := map[string]bool{}
		for _, pod := range l.away {
			waits[cmp.Or(pod.Gang, pod.ID)] = true
		}
		for id := range waits {
			u.waiting[id] = append(u.waiting[id], l)
		}
	}
	return u
}

// change charges a victim (sign 1) or takes off what it is charged (sign -1).
func (u *quotaUsage) change(r *runningGang, sign int) {
	if u == nil {
		return
	}
	now := u.now.change(r, sign)
	now.charge(u.now.tree, sign)
	for _, l := range u.waiting[r.Gang] {
		charged := l.change(r, sign)
		charged.charge(l.tree, sign)
		now.charge(l.tree, -sign)
	}
}

// charges are what a victim is charged, in its leaf.
type charges struct {
	leaf string
	list []charged
	pods int
	// job means that its job comes or goes with it.
	job bool
}

type charged struct {
	leaf        string
	preemptible bool
	amounts     quota.Resources
}

// change notes that a victim comes (sign 1) or goes (sign -1), and returns what it is charged.
func (l *laterQuota) change(r *runningGang, sign int) charges {
	c, ok := l.known[r]
	if !ok {
		c = l.chargesOf(r)
		l.known[r] = c
	}
	if gang := r.pods[0].Gang; gang != "" && c.pods > 0 {
		before := l.left[gang] == l.pods[gang]
		l.left[gang] -= sign * c.pods
		c.job = before != (l.left[gang] == l.pods[gang])
	}
	return c
}

// chargesOf sums up what the pods of a victim are charged that are not away.
func (l *laterQuota) chargesOf(r *runningGang) charges {
	c := charges{leaf: r.pods[0].Leaf}
	for _, pod := range r.pods {
		if l.away[pod.ID] != nil {
			continue
		}
		c.pods++
		i := slices.IndexFunc(c.list, func(o charged) bool { return o.leaf == pod.Leaf && o.preemptible == pod.Preemptible })
		if i < 0 {
			i = len(c.list)
			c.list = append(c.list, charged{leaf: pod.Leaf, preemptible: pod.Preemptible, amounts: quota.Resources{}})
		}
		for name, amount := range pod.Request.Charge() {
			c.list[i].amounts[name] += amount
		}
	}
	return c
}

// charge charges (sign 1) or takes off (sign -1).
func (c *charges) charge(tree *quota.Tree, sign int) {
	add, count := tree.Remove, tree.RemoveJob
	if sign > 0 {
		add, count = tree.Add, tree.AddJob
	}
	for _, charged := range c.list {
		add(charged.leaf, charged.amounts, charged.preemptible)
	}
	if c.job {
		count(c.leaf)
	}
}
