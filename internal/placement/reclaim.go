package placement

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Victim is a running gang that must go, as a whole.
type Victim struct {
	// Gang is the gang's ID, or the pod's for a pod on its own.
	Gang     string
	Leaf     string
	Priority int32
	// Pods are the IDs of its pods, sorted.
	Pods []string
}

// Reclaim is Plan for a gang that may take places from others. When the gang fits
// without, it takes none; otherwise the result names the victims, and nobody needs to
// go unless the whole gang has its place after that.
//
// A gang that stays within the minimum of its leaf may take from gangs of other
// leaves that borrow, that is, whose leaf uses more than its minimum of something the
// gang asks for; a gang that borrows itself may take from gangs of lower priority in
// its own leaf (the rules of ACK's PreemptionAlgorithm ElasticQuota). Only gangs that
// are preemptible go, whole gangs only, lowest priority first, of equal ones those
// first that free the most places, then those whose leaf borrows most, then the
// youngest; no victim is taken that the others make superfluous.
//
// Nobody is taken from in turn: a victim of another leaf is by construction not
// entitled to its place, because its leaf used more than its minimum with it; a
// victim of the same leaf has a lower priority. So what is reclaimed stays, unless
// amounts in the tree, or what runs, change.
func (v *View) Reclaim(g Gang) Result {
	p := newPlanner(v.cluster(), g)
	if result, done := p.place(); done {
		return result
	}
	if p.invalid() == nil && v.quota != nil && v.quota.HasLeaf(g.Leaf) {
		if result, ok := v.reclaim(p); ok {
			return result
		}
	}
	return Result{Verdict: p.explain()}
}

func (v *View) reclaim(p *planner) (Result, bool) {
	claim := p.charge(p.needed)
	entitled := v.quota.Entitled(p.gang.Leaf, claim)
	var candidates []*runningGang
	for _, r := range v.runningGangs(p) {
		if r.preemptible && (entitled && r.Leaf != p.gang.Leaf || !entitled && r.Leaf == p.gang.Leaf && r.Priority < p.gang.Priority) {
			candidates = append(candidates, r)
		}
	}
	if entitled {
		candidates = borrowers(v.quota.Clone(), candidates, claim)
	}
	attempt := func(victims []*runningGang) (Result, bool) {
		q := newPlanner(v.changed(podsOf(victims), nil), p.gang)
		q.elastic = false
		return q.place()
	}
	victims, ok := fewest(candidates, func(victims []*runningGang) bool {
		_, fits := attempt(victims)
		return fits
	})
	if !ok {
		return Result{}, false
	}
	result, _ := attempt(victims)
	for _, r := range victims {
		result.Victims = append(result.Victims, r.Victim)
	}
	return result, true
}

// borrowers keeps the candidates whose leaf still borrows when those before them have gone.
func borrowers(tree *quota.Tree, candidates []*runningGang, claim quota.Resources) []*runningGang {
	var list []*runningGang
	for _, r := range candidates {
		if tree.Borrows(r.Leaf, r.charge, claim) {
			tree.Remove(r.Leaf, r.charge, r.preemptible)
			list = append(list, r)
		}
	}
	return list
}

// fewest returns a set of candidates that is enough, none of which can be left out:
// the shortest beginning of the list that is enough, less those that it does without,
// the last ones first.
func fewest(candidates []*runningGang, enough func([]*runningGang) bool) ([]*runningGang, bool) {
	if !enough(candidates) {
		return nil, false
	}
	n := sort.Search(len(candidates), func(n int) bool { return enough(candidates[:n]) })
	chosen := slices.Clone(candidates[:n])
	for i := len(chosen) - 2; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(chosen), i, i+1); enough(without) {
			chosen = without
		}
	}
	return chosen, true
}

// runningGang is what runs of a gang.
type runningGang struct {
	Victim
	pods        []*Pod
	charge      quota.Resources
	preemptible bool
	// gain is how many members of the planner's gang its end makes room for, share the
	// dominant share of its leaf.
	gain              int
	share             float64
	startedAt, endsAt int64
}

// runningGangs returns all other gangs that run, in the order of victims.
func (v *View) runningGangs(p *planner) []*runningGang {
	index := map[string]*runningGang{}
	claim := p.charge(p.needed)
	for _, pod := range v.pods {
		id := cmp.Or(pod.Gang, pod.ID)
		if id == p.gang.ID {
			continue
		}
		r := index[id]
		if r == nil {
			r = &runningGang{
				Victim: Victim{Gang: id, Leaf: pod.Leaf, Priority: pod.Priority},
				charge: quota.Resources{}, preemptible: true, endsAt: pod.EndsAt,
			}
			index[id] = r
		}
		r.pods = append(r.pods, pod)
		r.Pods = append(r.Pods, pod.ID)
		r.Priority = max(r.Priority, pod.Priority)
		r.preemptible = r.preemptible && pod.Preemptible
		r.startedAt = max(r.startedAt, pod.StartedAt)
		if pod.EndsAt == 0 || r.endsAt == 0 {
			r.endsAt = 0
		} else {
			r.endsAt = max(r.endsAt, pod.EndsAt)
		}
		for name, amount := range pod.Request.Charge() {
			r.charge[name] += amount
		}
	}
	list := make([]*runningGang, 0, len(index))
	for _, r := range index {
		slices.Sort(r.Pods)
		r.gain = v.gain(p, r)
		if v.quota != nil {
			r.share = v.quota.Share(r.Leaf, claim)
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *runningGang) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.gain, a.gain),
			cmp.Compare(b.share, a.share),
			cmp.Compare(b.startedAt, a.startedAt),
			compareNatural(a.Gang, b.Gang),
		)
	})
	return list
}

// gain counts the members of the biggest shape that the end of a gang makes room for.
func (v *View) gain(p *planner, r *runningGang) int {
	if len(p.classes) == 0 {
		return 0
	}
	request := p.classes[0].request
	freed := map[*node]*usage{}
	for _, pod := range r.pods {
		n := v.nodes[pod.Node]
		if n == nil || !n.present || p.admits(n) == 0 {
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
		after := node{Node: n.Node, used: *used}
		gain += after.capacity().fits(request, unlimited) - n.free.fits(request, unlimited)
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
