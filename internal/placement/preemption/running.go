package preemption

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// RunningGang is what runs of a gang. The pods of a gang that are going already are
// one, those that are not another.
type RunningGang struct {
	placement.Victim
	pods        []*placement.Pod
	preemptible bool
	// terminating means that pods of the gang are going already that it needs.
	terminating bool
	// surplus is how many members that the gang does not need are victims of their own, beside
	// this one, rank the position of such a one among them.
	surplus, rank int
	// gain is how many members of the packer's gang its end makes room for, no more than
	// are needed, share the dominant share of its leaf.
	gain              int
	share             float64
	startedAt, endsAt int64
}

// RunningGangs returns what is going already, and the other gangs of which every pod may
// be taken. Pods that are overdue are in neither: nobody knows whether they ever go.
func RunningGangs(v *snapshot.View, gang string, takes func(*placement.Pod) bool) (leaving, others []*RunningGang) {
	type part struct {
		gang    string
		leaving bool
	}
	index := map[part]*RunningGang{}
	stays := map[string]bool{}
	evicted := v.EvictedBeside(gang)
	going := func(pod *placement.Pod) bool { return pod.Leaving || evicted[pod.ID] }
	for _, pod := range v.Cluster().Pods {
		if pod.Overdue {
			continue
		}
		id, leaves := cmp.Or(pod.Gang, pod.ID), going(pod)
		if !leaves && (id == gang || !takes(pod)) {
			stays[id] = true
			continue
		}
		r := index[part{id, leaves}]
		if r == nil {
			r = &RunningGang{
				Victim:      placement.Victim{Gang: id, Leaf: pod.Leaf, Priority: pod.Priority, Leaving: leaves},
				preemptible: true, endsAt: pod.EndsAt,
			}
			index[part{id, leaves}] = r
		}
		r.add(pod)
	}
	for _, r := range index {
		switch {
		case r.Leaving:
			r.Surplus = v.RunsOn(r.Gang, going)
			leaving = append(leaving, r)
		case !stays[r.Gang]:
			r.terminating = index[part{r.Gang, true}] != nil && !v.RunsOn(r.Gang, going)
			others = append(others, r)
		}
	}
	slices.SortFunc(leaving, func(a, b *RunningGang) int { return natural.Compare(a.Gang, b.Gang) })
	return leaving, others
}

// Loses reports whether members of a gang are among those that are leaving.
func Loses(leaving []*RunningGang, gang string) bool {
	return slices.ContainsFunc(leaving, func(r *RunningGang) bool { return r.Gang == gang })
}

// sortVictims sorts gangs so that those come first that are to go first when the
// packer's gang takes their places. The tree says how much the leaves use.
func sortVictims(v *snapshot.View, list []*RunningGang, p *packing.Packer, tree *quota.Tree) {
	charge := p.Charge(p.Needed)
	weigh(v, list, p)
	for _, r := range list {
		if tree != nil {
			r.share = tree.Share(r.Leaf, charge)
		}
	}
	slices.SortFunc(list, func(a, b *RunningGang) int {
		return cmp.Or(
			trueFirst(a.terminating, b.terminating),
			cmp.Compare(a.Priority, b.Priority),
			trueFirst(a.Surplus, b.Surplus),
			cmp.Compare(b.gain, a.gain),
			cmp.Compare(len(a.pods), len(b.pods)),
			cmp.Compare(b.share, a.share),
			cmp.Compare(b.startedAt, a.startedAt),
			natural.Compare(a.Gang, b.Gang),
			cmp.Compare(b.rank, a.rank),
		)
	})
}

// SortEnds sorts gangs so that those come first that the packer's gang had best wait for.
// Their age says nothing about their end, and would change the choice when it gets known.
func SortEnds(v *snapshot.View, list []*RunningGang, p *packing.Packer) {
	weigh(v, list, p)
	slices.SortFunc(list, func(a, b *RunningGang) int {
		byEnd := cmp.Compare(a.endsAt, b.endsAt)
		if a.endsAt == 0 || b.endsAt == 0 {
			byEnd = cmp.Compare(b.endsAt, a.endsAt)
		}
		return cmp.Or(
			byEnd,
			trueFirst(a.terminating, b.terminating),
			cmp.Compare(b.gain, a.gain),
			cmp.Compare(len(a.pods), len(b.pods)),
			natural.Compare(a.Gang, b.Gang),
		)
	})
}

// trueFirst orders what is so before what is not.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// weigh finds out how much each gang's end gains.
func weigh(v *snapshot.View, list []*RunningGang, p *packing.Packer) {
	for _, r := range list {
		r.gain = min(gain(v, p, r), p.Needed)
	}
}

func (r *RunningGang) add(pod *placement.Pod) {
	r.pods = append(r.pods, pod)
	i, _ := slices.BinarySearch(r.Pods, pod.ID)
	r.Pods = slices.Insert(r.Pods, i, pod.ID)
	r.Priority = max(r.Priority, pod.Priority)
	r.preemptible = r.preemptible && pod.Preemptible
	r.startedAt = max(r.startedAt, pod.Start())
	if pod.EndsAt == 0 || r.endsAt == 0 {
		r.endsAt = 0
	} else {
		r.endsAt = max(r.endsAt, pod.EndsAt)
	}
}

// gain counts the members of the biggest shape that the end of a gang makes room for.
func gain(v *snapshot.View, p *packing.Packer, r *RunningGang) int {
	if len(p.Classes) == 0 {
		return 0
	}
	request := p.Classes[0].Request
	freed := map[*capacity.Node]*capacity.Usage{}
	for _, pod := range r.pods {
		n := v.State(pod.Node)
		if n == nil || p.Admits(n) == 0 {
			continue
		}
		if freed[n] == nil {
			used := n.Used.Clone()
			freed[n] = &used
		}
		freed[n].Charge(pod, -1)
	}
	gain := 0
	for n, used := range freed {
		gain += n.WhenUsed(*used).Fits(request, capacity.Unlimited) - n.Capacity().Fits(request, capacity.Unlimited)
	}
	return gain
}

// VictimsOf returns the gangs as those that go for another, nil for none.
func VictimsOf(gangs []*RunningGang) []placement.Victim {
	var victims []placement.Victim
	for _, r := range gangs {
		victims = append(victims, r.Victim)
	}
	return victims
}

// PodsOf returns the pods of the gangs.
func PodsOf(gangs []*RunningGang) []*placement.Pod {
	var pods []*placement.Pod
	for _, r := range gangs {
		pods = append(pods, r.pods...)
	}
	return pods
}
