package snapshot

import (
	"encoding/json"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// verdictCache remembers which shapes of gangs found no place, so that a long queue of equal
// gangs costs one look and not one for each of them. Whatever changes the view ends it.
type verdictCache struct {
	// unschedulable are shapes that have no place now, reclaimed what was said of those that nobody
	// leaves a place to either.
	unschedulable map[string]bool
	verdicts      map[string]cachedVerdict
	// infeasible tells of shapes whether they would not even fit if nothing else ran, as of a
	// version of the view.
	infeasible map[string]bool
	version    uint64
}

func newVerdictCache() verdictCache {
	return verdictCache{unschedulable: map[string]bool{}, verdicts: map[string]cachedVerdict{}, infeasible: map[string]bool{}}
}

// cachedVerdict is what was said of a gang.
type cachedVerdict struct {
	roles   []placement.Role
	verdict placement.Verdict
}

// changed forgets what was refused. It must be called after each change of the view that
// planning can see.
func (v *View) changed() {
	clear(v.verdicts.unschedulable)
	clear(v.verdicts.verdicts)
}

// signature describes a gang but for its names: gangs of one shape get the same answer. Of its ID it has
// what rules read. It is "" for a gang that has no equals: one of which pods run, or that has a reservation.
func (v *View) signature(g *placement.Gang) string {
	if len(g.Running) > 0 || v.jobs[Job{g.ID, g.Leaf}] > 0 || v.ReservationOf(g.ID) != nil {
		return ""
	}
	bare, members := *g, make([]int, len(g.Roles))
	bare.ID, bare.Planned, bare.Roles = "", nil, slices.Clone(g.Roles)
	for i := range bare.Roles {
		members[i] = len(bare.Roles[i].Members)
		bare.Roles[i].Members = nil
	}
	text, err := json.Marshal(struct {
		placement.Gang
		Namespace string
		OnItsOwn  bool
		Members   []int
	}{bare, placement.NamespaceOf(g.ID), g.OnItsOwn(), members})
	if err != nil {
		return ""
	}
	return string(text)
}

// CachedVerdict returns what was said of a gang's equals; ok is false when nothing was.
func (v *View) CachedVerdict(g *placement.Gang) (verdict placement.Verdict, ok bool) {
	if len(v.verdicts.verdicts) == 0 {
		return placement.Verdict{}, false
	}
	said, ok := v.verdicts.verdicts[v.signature(g)]
	if !ok {
		return placement.Verdict{}, false
	}
	return said.of(g), true
}

// CacheVerdict remembers what is said of a gang.
func (v *View) CacheVerdict(g *placement.Gang, verdict placement.Verdict) {
	if shape := v.signature(g); shape != "" {
		v.verdicts.verdicts[shape] = cachedVerdict{g.Roles, verdict}
	}
}

// CachedInfeasible reports whether a gang's equals would not even fit if nothing else ran, which
// is found out on the cluster without anything else.
func (v *View) CachedInfeasible(g *placement.Gang, find func(alone Cluster) bool) bool {
	if v.verdicts.version != v.version {
		clear(v.verdicts.infeasible)
		v.verdicts.version = v.version
	}
	shape := v.signature(g)
	if known, ok := v.verdicts.infeasible[shape]; ok {
		return known
	}
	var others []*placement.Pod
	for _, p := range v.pods {
		if p.Gang == "" || p.Gang != g.ID {
			others = append(others, p)
		}
	}
	infeasible := find(v.SeenAfter(others, nil, v.reservations))
	if shape != "" {
		v.verdicts.infeasible[shape] = infeasible
	}
	return infeasible
}

// CachedUnschedulable reports whether a gang's equals found no place.
func (v *View) CachedUnschedulable(g *placement.Gang) bool {
	return len(v.verdicts.unschedulable) > 0 && v.verdicts.unschedulable[v.signature(g)]
}

// CacheUnschedulable remembers that a gang found no place.
func (v *View) CacheUnschedulable(g *placement.Gang) {
	if shape := v.signature(g); shape != "" {
		v.verdicts.unschedulable[shape] = true
	}
}

// of is the verdict with the names of another gang of the same shape.
func (d *cachedVerdict) of(g *placement.Gang) placement.Verdict {
	names := map[string]string{}
	for i, role := range d.roles {
		for j, name := range role.Members {
			names[name] = g.Roles[i].Members[j]
		}
	}
	verdict := d.verdict
	verdict.Gang, verdict.Next = g.ID, names[verdict.Next]
	verdict.Partial = slices.Clone(verdict.Partial)
	for i := range verdict.Partial {
		verdict.Partial[i].Member = names[verdict.Partial[i].Member]
	}
	return verdict
}
