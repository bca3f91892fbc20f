// Package packing looks for the nodes and GPUs of one gang on a cluster: it counts how many
// members of each shape a node can hold, chooses the tightest network domain that has room for
// all of them, and hands them out.
package packing

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Packer is one attempt to place a gang.
type Packer struct {
	snapshot.Cluster
	Gang placement.Gang
	// Classes are the distinct shapes of the members to place, the biggest first.
	Classes []Class
	// order is the order in which classes are packed on a node: indexes of classes.
	order []int
	// Due are the members to place, in the gang's order; Total counts them.
	Due   []batch
	Total int
	// Rules are the distinct sets of static constraints.
	Rules []admission.Rules
	// running are the members that run already, by node; reserved counts those of a class
	// on a node for the classes that limit it.
	running  map[string][]placement.Assignment
	reserved map[string][]int
	// Needed is how many of members must be placed; more are placed while there is room.
	// required are those of each class that subgroups get before all others, nil without subgroups, certain those of
	// which they need so many whichever they get.
	Needed            int
	required, certain []int
	// parts are the subgroups that lack members, before the members due before the required were put first.
	parts  []part
	before []batch
	// Live counts the running members of the roles that are planned.
	Live int
	// Elastic tells to place more than needed where there is room.
	Elastic bool
	// perNode is the most members that one node takes, for a gang that spreads.
	perNode int
	// linked means that the gang's GPUs may be in one NVLink domain of several nodes.
	linked bool
	// choice picks the GPUs of shares, nil for the tightest.
	choice capacity.Choice
	// trials are what nodes were found to take, by what tells them apart.
	trials map[Key]*capacity.Packing
	// memory holds the trials of a single member that are remembered, nil for other gangs.
	memory map[*capacity.Capacity]*capacity.Packing
	// Topology is what the gang's rules make of the nodes, once it was looked at.
	Topology *Topology
	// Among are the rules about which pods are near each other, nil for none; wishes are these
	// with the soft ones, nil for none of those.
	Among, wishes *among
	// late is what those who start once the members run will be charged, nil when there are none.
	late quota.Resources
	// Filled is the selection for all members that the quota tree allows.
	Filled *Selection
	// Spots are where an earlier plan put the members, nil when any place will do.
	Spots map[string]Spot
	// spotted are their GPUs by node and class, once they were looked at.
	spotted map[spotKey][]gpu.Set
}

// Class is a group of members with the same request and the same constraints.
type Class struct {
	Request *placement.Request
	Rules   int
	// role and perNode are set when the role limits its members per node.
	role    string
	perNode int
	// apart is that of the role.
	apart string
	// spec is a role of the class.
	spec *placement.Role
}

// batch is members of one role to place, in order.
type batch struct {
	Names []string
	Class int
	// role is the index of the gang's role.
	role int
}

// NewPacker begins an attempt to place a gang on a cluster.
func NewPacker(c snapshot.Cluster, g placement.Gang) *Packer {
	p := &Packer{Cluster: c, Gang: g, running: map[string][]placement.Assignment{}, perNode: capacity.Unlimited, Elastic: true}
	runs := make(map[string]string, len(g.Running))
	for _, a := range g.Running {
		runs[a.Member] = a.Node
		p.running[a.Node] = append(p.running[a.Node], a)
	}
	if c.Workload != nil {
		p.choice = c.Workload
	}
	total := p.addMembers(runs, false)
	if p.Total == 0 {
		// The others run: those that come late are due.
		total += p.addMembers(runs, true)
	} else {
		p.late = p.Gang.LateCharge()
	}
	minimum := total
	if g.Minimum > 0 {
		minimum = min(g.Minimum, total)
	}
	p.Live = total - p.Total
	p.Needed = max(minimum-p.Live, g.More)
	p.sortClasses()
	p.needFirst(runs)
	p.countReserved(runs)
	p.Among = p.terms(false)
	if slices.ContainsFunc(p.Classes, func(c Class) bool {
		return slices.ContainsFunc(c.spec.Spreads, func(s placement.TopologySpread) bool { return s.Soft })
	}) {
		p.wishes = p.terms(true)
	}
	p.linked = c.Linked && total > 1 && slices.ContainsFunc(p.Classes, func(c Class) bool { return c.Request.Mode.Whole() })
	if p.Workload != nil && p.Total == 1 && p.Classes[0].perNode == 0 && !g.Spread {
		p.memory = p.Workload.TrialsOf(p.Classes[0].Request)
	}
	return p
}

// countReserved counts the running members per node that limit those of a class: of its
// role, or of all roles that are kept apart from it.
func (p *Packer) countReserved(runs map[string]string) {
	for i, c := range p.Classes {
		for _, role := range p.Gang.Roles {
			if (c.perNode == 0 || role.Name != c.role) && (c.apart == "" || role.Apart != c.apart) {
				continue
			}
			for _, name := range role.Members {
				if node, ok := runs[name]; ok {
					if p.reserved == nil {
						p.reserved = map[string][]int{}
					}
					if p.reserved[node] == nil {
						p.reserved[node] = make([]int, len(p.Classes))
					}
					p.reserved[node][i]++
				}
			}
		}
	}
}

// addMembers collects the late or the other members that do not run yet, and
// returns the number of all of these roles' members.
func (p *Packer) addMembers(runs map[string]string, late bool) (total int) {
	for i := range p.Gang.Roles {
		role := &p.Gang.Roles[i]
		if role.Late != late {
			continue
		}
		total += len(role.Members)
		names := role.Members
		if len(runs) > 0 {
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := runs[name]; return ok })
		}
		if len(names) > 0 {
			p.Due = append(p.Due, batch{Names: names, Class: p.class(role), role: i})
			p.Total += len(names)
		}
	}
	return total
}

// class returns the index of the role's class and makes it when it is new.
func (p *Packer) class(role *placement.Role) int {
	r := admission.RulesOf(role)
	ruleSet := slices.IndexFunc(p.Rules, func(o admission.Rules) bool { return r.Equal(&o) })
	if ruleSet < 0 {
		ruleSet = len(p.Rules)
		p.Rules = append(p.Rules, r)
	}
	c := Class{Request: &role.Request, Rules: ruleSet, apart: role.Apart, spec: role}
	if role.MaxPerNode > 0 || len(role.NodeLimits) > 0 || len(p.Gang.Limits) > 0 {
		c.role, c.perNode = role.Name, role.MaxPerNode
	}
	for i, o := range p.Classes {
		if o.Rules == c.Rules && o.role == c.role && o.apart == c.apart && reflect.DeepEqual(*o.Request, role.Request) && beside(o.spec, role) {
			return i
		}
	}
	p.Classes = append(p.Classes, c)
	return len(p.Classes) - 1
}

// sortClasses puts the biggest shapes first: on every node they are packed first.
func (p *Packer) sortClasses() {
	order := make([]int, len(p.Classes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return placement.CompareSize(p.Classes[b].Request, p.Classes[a].Request)
	})
	sorted := make([]Class, len(order))
	rank := make([]int, len(order))
	for to, from := range order {
		sorted[to] = p.Classes[from]
		rank[from] = to
	}
	p.Classes = sorted
	p.order = make([]int, len(sorted))
	for i := range p.order {
		p.order[i] = i
	}
	for i := range p.Due {
		p.Due[i].Class = rank[p.Due[i].Class]
	}
}

// Place returns the result when the gang fits.
func (p *Packer) Place() (placement.Result, bool) {
	chosen, ok := p.Find()
	if !ok {
		return placement.Result{}, false
	}
	return placement.Result{
		Placement: p.placement(chosen),
		Verdict:   placement.Verdict{Fits: true, Gang: p.Gang.ID, Asked: p.Asked(), Fit: p.Live + chosen.Placed, Members: p.members()},
	}, true
}

// Find selects nodes for the gang when it fits.
func (p *Packer) Find() (Selection, bool) {
	if p.Invalid() != nil {
		return Selection{}, false
	}
	limit := p.Allowed()
	if limit < p.Needed {
		return Selection{}, false
	}
	if !p.Elastic {
		limit = p.Needed
	}
	chosen := p.Choose(p.Wanted(limit))
	if p.Elastic {
		filled := chosen
		p.Filled = &filled
	}
	if !p.enough(chosen) && (p.Needed < limit || len(p.Gang.Subgroups) > 0) && (len(p.Classes) > 1 || p.Among != nil) {
		if chosen = p.chooseNeeded(); p.enough(chosen) {
			chosen = p.chooseMore(chosen, limit)
		}
	}
	if !p.enough(chosen) {
		if p.Elastic && p.Filled.Placed >= p.Needed {
			p.Filled = &chosen // not those that are needed
		}
		return Selection{}, false
	}
	return chosen, true
}

// Feasible reports whether a gang fits on a cluster, whatever its place. The topology is that
// of the gang's rules, nil when they were not looked at.
func Feasible(c snapshot.Cluster, t *Topology, g placement.Gang) bool {
	p := NewPacker(c, g)
	p.Topology = t
	if p.Invalid() != nil || p.LeafMissing(&p.Gang) {
		return false
	}
	limit := p.Allowed()
	return limit >= p.Needed && (p.enough(p.Choose(p.Wanted(limit))) || len(g.Subgroups) > 0 && p.enough(p.chooseNeeded()))
}

// Asked is the number of members that must run together, running ones included.
func (p *Packer) Asked() int { return p.Live + p.Needed }

// members is how many members there are of an elastic gang, 0 of any other.
func (p *Packer) members() int {
	if !p.Elastic {
		return 0
	}
	return p.Live + p.Total
}

// Wanted returns the number of members of each class among the first n.
func (p *Packer) Wanted(n int) []int {
	want := make([]int, len(p.Classes))
	for _, b := range p.Due {
		take := min(n, len(b.Names))
		want[b.Class] += take
		n -= take
	}
	return want
}

// Invalid returns a reason when a request is one that no node can serve.
func (p *Packer) Invalid() *placement.Reason {
	if len(p.Rules) > maxRules {
		return &placement.Reason{Code: placement.InvalidRequest, Text: fmt.Sprintf(
			"the gang has %d different sets of selectors and tolerations; at most %d are planned", len(p.Rules), maxRules)}
	}
	for i := range p.Gang.Roles {
		role := &p.Gang.Roles[i]
		if text := role.Request.Problem(); text != "" {
			return &placement.Reason{Code: placement.InvalidRequest, Text: fmt.Sprintf("role %s %s", role.Name, text)}
		}
	}
	return nil
}

// Late reports whether there are some that start once the members run, and will be charged as well.
func (p *Packer) Late() bool { return p.late != nil }

// Charge returns what the first n members are charged in the quota tree together, with those who
// start once they run: a gang that has no quota left for these would hold its GPUs and wait.
func (p *Packer) Charge(n int) quota.Resources { return p.chargeOf(p.Wanted(n)) }

// chargeOf returns what so many members of each class are charged, with those who come late.
func (p *Packer) chargeOf(want []int) quota.Resources {
	sum := quota.Resources{}
	maps.Copy(sum, p.late)
	for class, members := range want {
		for name, amount := range p.Classes[class].Request.Charge() {
			sum[name] += int64(members) * amount
		}
	}
	return sum
}

// OverQuota returns the limit that the first n members exceed together.
func (p *Packer) OverQuota(n int) *quota.Exceeded {
	if n == 0 {
		return nil
	}
	return p.Exceeded(&p.Gang, p.Charge(n))
}

// Allowed returns how many members, from the first on, the quota tree allows at
// once. The charge grows with each member, so the search may halve.
func (p *Packer) Allowed() int {
	if p.LeafMissing(&p.Gang) {
		return 0
	}
	total := p.Total
	if p.OverQuota(total) == nil {
		return total
	}
	return sort.Search(total, func(n int) bool { return p.OverQuota(n+1) != nil })
}

// Spot is the place of a planned member.
type Spot struct {
	Node *capacity.Node
	GPUs gpu.Set
}

// beside reports whether two roles have the same rules about pods near them, and the same
// wishes.
func beside(r *placement.Role, o *placement.Role) bool {
	return reflect.DeepEqual(r.Labels, o.Labels) && reflect.DeepEqual(r.Neighbors, o.Neighbors) &&
		reflect.DeepEqual(r.Spreads, o.Spreads) && reflect.DeepEqual(r.Preferred, o.Preferred)
}
