package placement

import (
	"cmp"
	"slices"
	"strings"
)

// topology is what a gang's rules make of the nodes: which of them are admissible, and
// groups of equal ones by network domain. It does not depend on what the members
// request, so that a gang and its variants share it.
type topology struct {
	// admitted has bit i set for a node that meets rules[i].
	admitted []uint64
	// domains are known by the number of labels that make them.
	domains map[int][]*domain
	// homes are the values of the domains in which most members run, by the same number.
	homes map[int]string
}

// domain is a set of nodes on which all members must be.
type domain struct {
	// labels make the domain, value is what they are on its nodes.
	labels []string
	value  string
	groups []*group
	// running counts the members of the gang that run in the domain.
	running int
	// first finds a group by the state of its nodes; others of that state follow by next.
	first map[*capacity]*group
}

// group is nodes of a domain that are alike for the gang.
type group struct {
	packingKey
	// nodes are positions in the planner's nodes, ascending; size is their number.
	nodes []int32
	size  int
	// near tells how close to the running members the nodes are, 0 for not at all; weight,
	// how much the members wish for them.
	near   int
	weight int64
	number int32
	next   *group
}

// String names the domain by its labels: "zone=a, rack=r7".
func (d *domain) String() string {
	parts := strings.Split(d.value, "\x00")
	for i, label := range d.labels {
		parts[i] = label + "=" + parts[i]
	}
	return strings.Join(parts, ", ")
}

// has reports whether a node belongs to the domain.
func (d *domain) has(n *node) bool {
	value, ok := domainOf(n, d.labels)
	return ok && value == d.value
}

// nvlinkDomain stands for [Node.NVLinkDomain] among the labels of domains; no label has
// a blank.
const nvlinkDomain = "NVLink domain"

// hostname is the label that makes each node a domain.
const hostname = "kubernetes.io/hostname"

// domainOf returns the values of the labels on a node; ok is false when it lacks one.
func domainOf(n *node, labels []string) (value string, ok bool) {
	for i, label := range labels {
		v, ok := n.Labels[label]
		if label == nvlinkDomain {
			v, ok = n.NVLinkDomain, n.NVLinkDomain != ""
		}
		if !ok {
			return "", false
		}
		if i > 0 {
			v = value + "\x00" + v
		}
		value = v
	}
	return value, true
}

// survey looks at the nodes, unless that was done.
func (p *planner) survey() *topology {
	if p.topology != nil {
		return p.topology
	}
	t := &topology{admitted: make([]uint64, len(p.nodes)), domains: map[int][]*domain{}, homes: p.homes()}
	for i := range p.rules {
		r := &p.rules[i]
		known := p.admissions.of(r)
		for j, n := range p.nodes {
			if known.admits(n.number, &n.Node) && !r.excludes(n.Name) {
				t.admitted[j] |= 1 << uint(i)
			}
		}
	}
	if len(p.gang.ExcludeNodes) > 0 {
		for i, n := range p.nodes {
			if p.gang.ExcludeNodes[n.Name] {
				t.admitted[i] = 0
			}
		}
	}
	p.topology = t
	return t
}

// with returns the topology after nodes that meet the same rules were inserted at a position.
func (t *topology) with(at, nodes int, admitted uint64) *topology {
	return &topology{
		admitted: slices.Insert(slices.Clone(t.admitted), at, slices.Repeat([]uint64{admitted}, nodes)...),
		domains:  map[int][]*domain{}, homes: t.homes,
	}
}

// admits returns the rules that a node meets, one bit each.
func (p *planner) admits(n *node) uint64 {
	if p.gang.ExcludeNodes[n.Name] {
		return 0
	}
	var admitted uint64
	for i := range p.rules {
		if why, _ := p.rules[i].rejects(&n.Node); why.code == "" {
			admitted |= 1 << uint(i)
		}
	}
	return admitted
}

// domainLabels returns the labels of the required and of the preferred domains, the
// widest first. A gang with whole GPUs prefers one NVLink domain to all but one node.
func (p *planner) domainLabels() (required, preferred []string) {
	if p.gang.RequiredDomain != "" {
		required = append(required, p.gang.RequiredDomain)
	}
	for _, d := range p.gang.Domains {
		if d.Required {
			required = append(required, d.Label)
		} else {
			preferred = append(preferred, d.Label)
		}
	}
	if p.linked {
		at := len(preferred)
		if at > 0 && preferred[at-1] == hostname {
			at--
		}
		preferred = slices.Insert(preferred, at, nvlinkDomain)
	}
	return required, preferred
}

// homes returns the values of the domains in which most members of the gang run, by
// the number of labels.
func (p *planner) homes() map[int]string {
	homes := map[int]string{}
	if len(p.running) == 0 {
		return homes
	}
	required, preferred := p.domainLabels()
	labels := slices.Concat(required, preferred)
	for n := 1; n <= len(labels); n++ {
		running := map[string]int{}
		for _, node := range p.nodes {
			value, ok := domainOf(node, labels[:n])
			if !ok || len(p.running[node.Name]) == 0 {
				continue
			}
			running[value] += len(p.running[node.Name])
			if home, ok := homes[n]; !ok || running[value] > running[home] {
				homes[n] = value
			}
		}
	}
	return homes
}

// nearness tells how close a node is to the members of the gang that run: 0 for not at
// all, more with each preferred level at which it is where most of them are, and the
// most for a node on which some run.
func (p *planner) nearness(n *node) int {
	if len(p.running) == 0 || p.gang.Spread {
		return 0
	}
	required, preferred := p.domainLabels()
	if len(p.running[n.Name]) > 0 {
		return len(preferred) + 1
	}
	labels := slices.Concat(required, preferred)
	for level := len(preferred); level > 0; level-- {
		count := len(required) + level
		value, ok := domainOf(n, labels[:count])
		if home, known := p.topology.homes[count]; ok && known && value == home {
			return level
		}
	}
	return 0
}

// weight is how much the members to place wish for a node.
func (p *planner) weight(n *node) (sum int64) {
	for _, c := range p.classes {
		sum += c.spec.weight(&n.Node)
	}
	return sum
}

// domains returns the domains that labels make, in the order of their first nodes;
// one with all nodes when there are no labels.
func (p *planner) domains(labels []string) []*domain {
	t := p.survey()
	if known, ok := t.domains[len(labels)]; ok {
		return known
	}
	m := mapping{of: make([]int32, len(p.nodes)), known: map[string]*domain{}, labels: labels}
	for i, n := range p.nodes {
		m.of[i] = -1
		d := m.domain(n)
		if d == nil {
			continue
		}
		if len(p.running) > 0 {
			d.running += len(p.running[n.Name])
		}
		if t.admitted[i] != 0 {
			g := m.group(d, p.key(n, t.admitted[i]), p.nearness(n), p.weight(n))
			g.size++
			m.of[i] = g.number
		}
	}
	m.handOut()
	t.domains[len(labels)] = m.domains
	return m.domains
}

// mapping sorts nodes into domains and groups.
type mapping struct {
	labels  []string
	domains []*domain
	known   map[string]*domain
	groups  []*group
	// of is the number of each node's group, -1 for none.
	of []int32
}

// domain returns the domain of a node, nil when it lacks a label.
func (m *mapping) domain(n *node) *domain {
	if len(m.labels) == 0 && len(m.domains) > 0 {
		return m.domains[0]
	}
	value, ok := domainOf(n, m.labels)
	if !ok {
		return nil
	}
	d := m.known[value]
	if d == nil {
		d = &domain{labels: m.labels, value: value, first: map[*capacity]*group{}}
		m.known[value] = d
		m.domains = append(m.domains, d)
	}
	return d
}

// group returns the group of the key in a domain and makes it when it is new.
func (m *mapping) group(d *domain, key packingKey, near int, weight int64) *group {
	g := d.first[key.state]
	for ; g != nil; g = g.next {
		if g.packingKey == key && g.near == near && g.weight == weight {
			return g
		}
	}
	g = &group{packingKey: key, near: near, weight: weight, next: d.first[key.state], number: int32(len(m.groups))}
	d.first[key.state] = g
	d.groups = append(d.groups, g)
	m.groups = append(m.groups, g)
	return g
}

// handOut gives the groups their nodes.
func (m *mapping) handOut() {
	all := make([]int32, len(m.of))
	for _, g := range m.groups {
		g.nodes, all = all[:0:g.size], all[g.size:]
	}
	for i, number := range m.of {
		if number >= 0 {
			g := m.groups[number]
			g.nodes = append(g.nodes, int32(i))
		}
	}
}

// whereItRuns keeps the domain in which most members of the gang run, all when none
// runs in any.
func whereItRuns(domains []*domain) []*domain {
	if len(domains) == 0 {
		return nil
	}
	most := slices.MaxFunc(domains, func(a, b *domain) int { return cmp.Compare(a.running, b.running) })
	if most.running == 0 {
		return domains
	}
	return []*domain{most}
}

// rejection returns the first rule that keeps a member of the class from the node whatever runs there.
func (p *planner) rejection(n *node, c *class, d *domain) rejection {
	if p.gang.ExcludeNodes[n.Name] {
		return rejection{code: Excluded}
	}
	if why, taint := p.rules[c.rules].rejects(&n.Node); why.code != "" {
		if taint != nil {
			why.detail = taint.String()
		}
		return why
	}
	if !d.has(n) {
		return rejection{code: OtherDomain}
	}
	return rejection{}
}
