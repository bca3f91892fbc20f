package placement

import (
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// planner is one attempt to place a gang.
type planner struct {
	cluster
	gang Gang
	// classes are the distinct shapes of the members to place, the biggest first.
	classes []class
	// order is the order in which classes are packed on a node: indexes of classes.
	order []int
	// due are the members to place, in the gang's order; total counts them.
	due   []batch
	total int
	// rules are the distinct sets of static constraints.
	rules []rules
	// running are the members that run already, by node; reserved counts those of a class
	// on a node for the classes that limit it.
	running  map[string][]Assignment
	reserved map[string][]int
	// needed is how many of members must be placed; more are placed while there is room.
	// required are those of each class that subgroups need, nil without subgroups.
	needed   int
	required []int
	// live counts the running members of the roles that are planned.
	live int
	// elastic tells to place more than needed where there is room.
	elastic bool
	// perNode is the most members that one node takes, for a gang that spreads.
	perNode int
	// linked means that the gang's GPUs may be in one NVLink domain of several nodes.
	linked bool
	// choice picks the GPUs of shares, nil for the tightest.
	choice gpuChoice
	trials map[packingKey]*nodePacking
	// memory holds the trials of a single member that are remembered, nil for other gangs.
	memory map[*capacity]*nodePacking
	// topology is what the gang's rules make of the nodes, once it was looked at.
	topology *topology
	// among are the rules about which pods are near each other, nil for none; wishes are these
	// with the soft ones, nil for none of those.
	among, wishes *among
	// filled is the selection for all members that the quota tree allows.
	filled *selection
	// spots are where an earlier plan put the members, nil when any place will do.
	spots map[string]spot
}

// class is a group of members with the same request and the same constraints.
type class struct {
	request *Request
	rules   int
	// role and perNode are set when the role limits its members per node.
	role    string
	perNode int
	// apart is that of the role.
	apart string
	// spec is a role of the class.
	spec *Role
}

// batch is members of one role to place, in order.
type batch struct {
	names []string
	class int
	// role is the index of the gang's role.
	role int
}

// newPlanner begins an attempt to place a gang on a cluster.
func newPlanner(c cluster, g Gang) *planner {
	p := &planner{cluster: c, gang: g, running: map[string][]Assignment{}, perNode: unlimited, elastic: true}
	runs := make(map[string]string, len(g.Running))
	for _, a := range g.Running {
		runs[a.Member] = a.Node
		p.running[a.Node] = append(p.running[a.Node], a)
	}
	if c.workload != nil {
		p.choice = c.workload
	}
	total := p.addMembers(runs, false)
	if p.total == 0 {
		// The others run: those that come late are due.
		total += p.addMembers(runs, true)
	}
	minimum := total
	if g.Minimum > 0 {
		minimum = min(g.Minimum, total)
	}
	p.live = total - p.total
	p.needed = max(minimum-p.live, g.more)
	p.sortClasses()
	p.needFirst(runs)
	p.countReserved(runs)
	p.among = p.terms(false)
	if slices.ContainsFunc(p.classes, func(c class) bool {
		return slices.ContainsFunc(c.spec.Spreads, func(s TopologySpread) bool { return s.Soft })
	}) {
		p.wishes = p.terms(true)
	}
	p.linked = c.linked && total > 1 && slices.ContainsFunc(p.classes, func(c class) bool { return c.request.Mode.whole() })
	if p.workload != nil && p.total == 1 && p.classes[0].perNode == 0 && !g.Spread {
		p.memory = p.workload.trialsOf(p.classes[0].request)
	}
	return p
}

// countReserved counts the running members per node that limit those of a class: of its
// role, or of all roles that are kept apart from it.
func (p *planner) countReserved(runs map[string]string) {
	for i, c := range p.classes {
		for _, role := range p.gang.Roles {
			if (c.perNode == 0 || role.Name != c.role) && (c.apart == "" || role.Apart != c.apart) {
				continue
			}
			for _, name := range role.Members {
				if node, ok := runs[name]; ok {
					if p.reserved == nil {
						p.reserved = map[string][]int{}
					}
					if p.reserved[node] == nil {
						p.reserved[node] = make([]int, len(p.classes))
					}
					p.reserved[node][i]++
				}
			}
		}
	}
}

// addMembers collects the late or the other members that do not run yet, and
// returns the number of all of these roles' members.
func (p *planner) addMembers(runs map[string]string, late bool) (total int) {
	for i := range p.gang.Roles {
		role := &p.gang.Roles[i]
		if role.Late != late {
			continue
		}
		total += len(role.Members)
		names := role.Members
		if len(runs) > 0 {
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := runs[name]; return ok })
		}
		if len(names) > 0 {
			p.due = append(p.due, batch{names: names, class: p.class(role), role: i})
			p.total += len(names)
		}
	}
	return total
}

// class returns the index of the role's class and makes it when it is new.
func (p *planner) class(role *Role) int {
	r := newRules(role)
	ruleSet := slices.IndexFunc(p.rules, func(o rules) bool { return r.equal(&o) })
	if ruleSet < 0 {
		ruleSet = len(p.rules)
		p.rules = append(p.rules, r)
	}
	c := class{request: &role.Request, rules: ruleSet, apart: role.Apart, spec: role}
	if role.MaxPerNode > 0 || len(role.NodeLimits) > 0 || len(p.gang.Limits) > 0 {
		c.role, c.perNode = role.Name, role.MaxPerNode
	}
	for i, o := range p.classes {
		if o.rules == c.rules && o.role == c.role && o.apart == c.apart && reflect.DeepEqual(*o.request, role.Request) && o.spec.beside(role) {
			return i
		}
	}
	p.classes = append(p.classes, c)
	return len(p.classes) - 1
}

// sortClasses puts the biggest shapes first: on every node they are packed first.
func (p *planner) sortClasses() {
	order := make([]int, len(p.classes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return compareSize(p.classes[b].request, p.classes[a].request)
	})
	sorted := make([]class, len(order))
	rank := make([]int, len(order))
	for to, from := range order {
		sorted[to] = p.classes[from]
		rank[from] = to
	}
	p.classes = sorted
	p.order = make([]int, len(sorted))
	for i := range p.order {
		p.order[i] = i
	}
	for i := range p.due {
		p.due[i].class = rank[p.due[i].class]
	}
}

// place returns the result when the gang fits.
func (p *planner) place() (Result, bool) {
	chosen, ok := p.find()
	if !ok {
		return Result{}, false
	}
	return Result{
		Placement: p.placement(chosen),
		Verdict:   Verdict{Fits: true, Gang: p.gang.ID, Asked: p.asked(), Fit: p.live + chosen.placed, Members: p.members()},
	}, true
}

// find selects nodes for the gang when it fits.
func (p *planner) find() (selection, bool) {
	if p.invalid() != nil {
		return selection{}, false
	}
	limit := p.allowed()
	if limit < p.needed {
		return selection{}, false
	}
	if !p.elastic {
		limit = p.needed
	}
	chosen := p.choose(p.wanted(limit))
	if p.elastic {
		filled := chosen
		p.filled = &filled
	}
	if !p.enough(chosen) && (p.needed < limit || len(p.gang.Subgroups) > 0) && (len(p.classes) > 1 || p.among != nil) {
		if chosen = p.chooseNeeded(); p.enough(chosen) {
			chosen = p.chooseMore(chosen, limit)
		}
	}
	if !p.enough(chosen) {
		if p.elastic && p.filled.placed >= p.needed {
			p.filled = &chosen // not those that are needed
		}
		return selection{}, false
	}
	return chosen, true
}

// feasible reports whether a gang fits on a cluster, whatever its place. The topology is that
// of the gang's rules, nil when they were not looked at.
func feasible(c cluster, t *topology, g Gang) bool {
	p := newPlanner(c, g)
	p.topology = t
	if p.invalid() != nil || p.leafMissing(&p.gang) {
		return false
	}
	limit := p.allowed()
	return limit >= p.needed && (p.enough(p.choose(p.wanted(limit))) || len(g.Subgroups) > 0 && p.enough(p.chooseNeeded()))
}

// asked is the number of members that must run together, running ones included.
func (p *planner) asked() int { return p.live + p.needed }

// members is how many members there are of an elastic gang, 0 of any other.
func (p *planner) members() int {
	if !p.elastic {
		return 0
	}
	return p.live + p.total
}

// wanted returns the number of members of each class among the first n.
func (p *planner) wanted(n int) []int {
	want := make([]int, len(p.classes))
	for _, b := range p.due {
		take := min(n, len(b.names))
		want[b.class] += take
		n -= take
	}
	return want
}

// invalid returns a reason when a request is one that no node can serve.
func (p *planner) invalid() *Reason {
	if len(p.rules) > maxRules {
		return &Reason{Code: InvalidRequest, Text: fmt.Sprintf(
			"the gang has %d different sets of selectors and tolerations; at most %d are planned", len(p.rules), maxRules)}
	}
	for i := range p.gang.Roles {
		role := &p.gang.Roles[i]
		if text := role.Request.problem(); text != "" {
			return &Reason{Code: InvalidRequest, Text: fmt.Sprintf("role %s %s", role.Name, text)}
		}
	}
	return nil
}

// charge returns what the first n members are charged in the quota tree together.
func (p *planner) charge(n int) quota.Resources { return p.chargeOf(p.wanted(n)) }

// chargeOf returns what so many members of each class are charged.
func (p *planner) chargeOf(want []int) quota.Resources {
	sum := quota.Resources{}
	for class, members := range want {
		for name, amount := range p.classes[class].request.Charge() {
			sum[name] += int64(members) * amount
		}
	}
	return sum
}

// overQuota returns the limit that the first n members exceed together.
func (p *planner) overQuota(n int) *quota.Exceeded {
	if n == 0 {
		return nil
	}
	return p.exceeded(&p.gang, p.charge(n))
}

// allowed returns how many members, from the first on, the quota tree allows at
// once. The charge grows with each member, so the search may halve.
func (p *planner) allowed() int {
	if p.leafMissing(&p.gang) {
		return 0
	}
	total := p.total
	if p.overQuota(total) == nil {
		return total
	}
	return sort.Search(total, func(n int) bool { return p.overQuota(n+1) != nil })
}

// spot is the place of a planned member.
type spot struct {
	node *node
	gpus gpu.Set
}

// beside reports whether two roles have the same rules about pods near them, and the same
// wishes.
func (r *Role) beside(o *Role) bool {
	return reflect.DeepEqual(r.Labels, o.Labels) && reflect.DeepEqual(r.Neighbors, o.Neighbors) &&
		reflect.DeepEqual(r.Spreads, o.Spreads) && reflect.DeepEqual(r.Preferred, o.Preferred)
}
