package placement

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// runningGang is what runs of a gang. The pods of a gang that are going already are
// one, those that are not another.
type runningGang struct {
	Victim
	pods        []*Pod
	preemptible bool
	// terminating means that pods of the gang are going already that it needs.
	terminating bool
	// surplus is how many members that the gang does not need are victims of their own, beside
	// this one, turn the place of such a one among them.
	surplus, rank int
	// gain is how many members of the planner's gang its end makes room for, no more than
	// are needed, share the
	// dominant share of its leaf.
	gain              int
	share             float64
	startedAt, endsAt int64
}

// runningGangs returns what is going already, and the other gangs of which every pod may
// be taken. Pods that are overdue are in neither: nobody knows whether they ever go.
func (v *View) runningGangs(gang string, takes func(*Pod) bool) (leaving, others []*runningGang) {
	type part struct {
		gang    string
		leaving bool
	}
	index := map[part]*runningGang{}
	stays := map[string]bool{}
	evicted := v.evicted()
	going := func(pod *Pod) bool { return pod.Leaving || evicted[pod.ID] }
	for _, pod := range v.cluster().pods {
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
			r = &runningGang{
				Victim:      Victim{Gang: id, Leaf: pod.Leaf, Priority: pod.Priority, Leaving: leaves},
				preemptible: true, endsAt: pod.EndsAt,
			}
			index[part{id, leaves}] = r
		}
		r.add(pod)
	}
	for _, r := range index {
		switch {
		case r.Leaving:
			r.Surplus = v.runsOn(r.Gang, going)
			leaving = append(leaving, r)
		case !stays[r.Gang]:
			r.terminating = index[part{r.Gang, true}] != nil && !v.runsOn(r.Gang, going)
			others = append(others, r)
		}
	}
	slices.SortFunc(leaving, func(a, b *runningGang) int { return CompareNatural(a.Gang, b.Gang) })
	return leaving, others
}

// loses reports whether members of a gang are among those that are leaving.
func loses(leaving []*runningGang, gang string) bool {
	return slices.ContainsFunc(leaving, func(r *runningGang) bool { return r.Gang == gang })
}

// sortVictims sorts gangs so that those come first that are to go first when the
// planner's gang takes their places. The tree says how much the leaves use.
func (v *View) sortVictims(list []*runningGang, p *planner, tree *quota.Tree) {
	reservation := p.charge(p.needed)
	v.weigh(list, p)
	for _, r := range list {
		if tree != nil {
			r.share = tree.Share(r.Leaf, reservation)
		}
	}
	slices.SortFunc(list, func(a, b *runningGang) int {
		return cmp.Or(
			trueFirst(a.terminating, b.terminating),
			cmp.Compare(a.Priority, b.Priority),
			trueFirst(a.Surplus, b.Surplus),
			cmp.Compare(b.gain, a.gain),
			cmp.Compare(len(a.pods), len(b.pods)),
			cmp.Compare(b.share, a.share),
			cmp.Compare(b.startedAt, a.startedAt),
			CompareNatural(a.Gang, b.Gang),
			cmp.Compare(b.rank, a.rank),
		)
	})
}

// sortEnds sorts gangs so that those come first that the planner's gang had best wait for.
// Their age says nothing about their end, and would change the choice when it gets known.
func (v *View) sortEnds(list []*runningGang, p *planner) {
	v.weigh(list, p)
	slices.SortFunc(list, func(a, b *runningGang) int {
		byEnd := cmp.Compare(a.endsAt, b.endsAt)
		if a.endsAt == 0 || b.endsAt == 0 {
			byEnd = cmp.Compare(b.endsAt, a.endsAt)
		}
		return cmp.Or(
			byEnd,
			trueFirst(a.terminating, b.terminating),
			cmp.Compare(b.gain, a.gain),
			cmp.Compare(len(a.pods), len(b.pods)),
			CompareNatural(a.Gang, b.Gang),
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
func (v *View) weigh(list []*runningGang, p *planner) {
	for _, r := range list {
		r.gain = min(v.gain(p, r), p.needed)
	}
}

func (r *runningGang) add(pod *Pod) {
	r.pods = append(r.pods, pod)
	i, _ := slices.BinarySearch(r.Pods, pod.ID)
	r.Pods = slices.Insert(r.Pods, i, pod.ID)
	r.Priority = max(r.Priority, pod.Priority)
	r.preemptible = r.preemptible && pod.Preemptible
	r.startedAt = max(r.startedAt, pod.start())
	if pod.EndsAt == 0 || r.endsAt == 0 {
		r.endsAt = 0
	} else {
		r.endsAt = max(r.endsAt, pod.EndsAt)
	}
}

// gain counts the members of the biggest shape that the end of a gang makes room for.
func (v *View) gain(p *planner, r *runningGang) int {
	if len(p.classes) == 0 {
		return 0
	}
	request := p.classes[0].request
	freed := map[*node]*usage{}
	for _, pod := range r.pods {
		n := v.state(pod.Node)
		if n == nil || p.admits(n) == 0 {
			continue
		}
		if freed[n] == nil {
			used := n.used.clone()
			freed[n] = &used
		}
		freed[n].charge(pod, -1)
	}
	gain := 0
	for n, used := range freed {
		gain += n.whenUsed(*used).fits(request, unlimited) - n.capacity().fits(request, unlimited)
	}
	return gain
}

// podsOf returns the pods of the gangs.
func podsOf(gangs []*runningGang) []*Pod {
	var pods []*Pod
	for _, r := range gangs {
		pods = append(pods, r.pods...)
	}
	return pods
}
