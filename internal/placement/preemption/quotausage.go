package preemption

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// quotaUsage keeps the usage of the quota tree in line with what a dry run evicts: that of the
// cluster, and what it changes by with reservations in their places.
type quotaUsage struct {
	now *laterQuota
	// waiting are the changes with reservations that wait for pods of a victim, by
	// [placement.Victim.Gang]: the others stay as they are.
	waiting map[string][]*laterQuota
}

// laterQuota counts who has gone when reservations are in their places, none for now.
type laterQuota struct {
	// tree is the quota tree for now, else what its usage changes by.
	tree *quota.Tree
	// away are the pods that have gone whoever is evicted.
	away map[string]*placement.Pod
	// left counts the pods of each job that have gone, pods those that run.
	left, pods map[snapshot.Job]int
	known      map[*RunningGang]charges
}

// newQuotaUsage begins with the trees of a cluster, which it changes.
func newQuotaUsage(v *snapshot.View, c snapshot.Cluster, kept []*snapshot.Reserved) *quotaUsage {
	open := func(tree *quota.Tree, reservations ...*snapshot.Reserved) *laterQuota {
		l := &laterQuota{tree: tree, pods: c.Jobs, left: map[snapshot.Job]int{}, away: v.AwaitedBy(reservations...), known: map[*RunningGang]charges{}}
		for _, pod := range l.away {
			l.left[snapshot.JobOf(pod)]++
		}
		return l
	}
	u := &quotaUsage{now: open(c.Quota), waiting: map[string][]*laterQuota{}}
	for i, more := range c.Later {
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
func (u *quotaUsage) change(r *RunningGang, sign int) {
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

// charges are what a victim is charged.
type charges struct {
	list []charged
	// pods are the pods of its job, or none when it is in no gang, by leaf.
	pods []podsOfJob
	// jobs are the leaves in which its job comes or goes with it.
	jobs []string
}

type podsOfJob struct {
	job  snapshot.Job
	pods int
}

type charged struct {
	leaf        string
	preemptible bool
	amounts     quota.Resources
}

// change notes that a victim comes (sign 1) or goes (sign -1), and returns what it is charged.
func (l *laterQuota) change(r *RunningGang, sign int) charges {
	c, ok := l.known[r]
	if !ok {
		c = l.chargesOf(r)
		l.known[r] = c
	}
	for _, of := range c.pods {
		before := l.left[of.job] == l.pods[of.job]
		l.left[of.job] -= sign * of.pods
		if before != (l.left[of.job] == l.pods[of.job]) {
			c.jobs = append(c.jobs, of.job.Leaf)
		}
	}
	return c
}

// chargesOf sums up what the pods of a victim are charged that are not away.
func (l *laterQuota) chargesOf(r *RunningGang) charges {
	var c charges
	for _, pod := range r.pods {
		if l.away[pod.ID] != nil {
			continue
		}
		if pod.Gang != "" {
			i := slices.IndexFunc(c.pods, func(of podsOfJob) bool { return of.job == snapshot.JobOf(pod) })
			if i < 0 {
				i = len(c.pods)
				c.pods = append(c.pods, podsOfJob{job: snapshot.JobOf(pod)})
			}
			c.pods[i].pods++
		}
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
	for _, leaf := range c.jobs {
		count(leaf)
	}
}
