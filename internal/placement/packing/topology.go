package packing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// Topology is what a gang's rules make of the nodes: which of them are admissible, and
// groups of equal ones by network domain. It does not depend on what the members
// request, so that a gang and its variants share it.
type Topology struct {
	// Admitted has bit i set for a node that meets rules[i].
	Admitted []uint64
	// domains are known by the number of labels that make them.
	domains map[int][]*Domain
	// homes are the values of the domains in which most members run, by the same number.
	homes map[int]string
}

// Domain is a set of nodes on which all members must be.
type Domain struct {
	// Labels make the domain, Value is what they are on its nodes.
	Labels []string
	Value  string
	groups []*group
	// running counts the members of the gang that run in the domain.
	running int
	// first finds a group by the state of its nodes; others of that state follow by next.
	first map[*capacity.Capacity]*group
}

// group is nodes of a domain that are alike for the gang.
type group struct {
	Key
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
func (d *Domain) String() string {
	parts := strings.Split(d.Value, "\x00")
	for i, label := range d.Labels {
		parts[i] = label + "=" + parts[i]
	}
	return strings.Join(parts, ", ")
}

// Has reports whether a node belongs to the domain.
func (d *Domain) Has(n *capacity.Node) bool {
	value, ok := DomainOf(n, d.Labels)
	return ok && value == d.Value
}

// nvlinkDomain stands for [placement.Node.NVLinkDomain] among the labels of domains; no label has
// a blank.
const nvlinkDomain = "NVLink domain"

// Hostname is the label that makes each node a domain.
const Hostname = "kubernetes.io/hostname"

// DomainOf returns the values of the labels on a node; ok is false when it lacks one.
func DomainOf(n *capacity.Node, labels []string) (value string, ok bool) {
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

// Survey looks at the nodes, unless that was done.
func (p *Packer) Survey() *Topology {
	if p.Topology != nil {
		return p.Topology
	}
	t := &Topology{Admitted: make([]uint64, len(p.Nodes)), domains: map[int][]*Domain{}, homes: p.homes()}
	for i := range p.Rules {
		r := &p.Rules[i]
		known := p.Admissions.Of(r)
		for j, n := range p.Nodes {
			if !r.Excludes(n.Name) && known.Admits(n.Number, &n.Node) {
				t.Admitted[j] |= 1 << uint(i)
			}
		}
	}
	if len(p.Gang.ExcludeNodes)+len(p.Gang.HiddenNodes) > 0 {
		for i, n := range p.Nodes {
			if p.Gang.Excludes(n.Name) {
				t.Admitted[i] = 0
			}
		}
	}
	p.Topology = t
	return t
}

// With returns the topology after nodes that meet the same rules were inserted at a position.
func (t *Topology) With(at, nodes int, admitted uint64) *Topology {
	return &Topology{
		Admitted: slices.Insert(slices.Clone(t.Admitted), at, slices.Repeat([]uint64{admitted}, nodes)...),
		domains:  map[int][]*Domain{}, homes: t.homes,
	}
}

// Admits returns the rules that a node meets, one bit each.
func (p *Packer) Admits(n *capacity.Node) uint64 {
	if p.Gang.Excludes(n.Name) {
		return 0
	}
	var admitted uint64
	for i := range p.Rules {
		if why, _ := p.Rules[i].Rejects(&n.Node); why.Code == "" {
			admitted |= 1 << uint(i)
		}
	}
	return admitted
}

// DomainLabels returns the labels of the required and of the preferred domains, the
// widest first. A gang with whole GPUs prefers one NVLink domain to all but one node.
func (p *Packer) DomainLabels() (required, preferred []string) {
	if p.Gang.RequiredDomain != "" {
		required = append(required, p.Gang.RequiredDomain)
	}
	for _, d := range p.Gang.Domains {
		if d.Required {
			required = append(required, d.Label)
		} else {
			preferred = append(preferred, d.Label)
		}
	}
	if p.linked {
		at := len(preferred)
		if at > 0 && preferred[at-1] == Hostname {
			at--
		}
		preferred = slices.Insert(preferred, at, nvlinkDomain)
	}
	return required, preferred
}

// homes returns the values of the domains in which most members of the gang run, by
// the number of labels.
func (p *Packer) homes() map[int]string {
	homes := map[int]string{}
	if len(p.running) == 0 {
		return homes
	}
	required, preferred := p.DomainLabels()
	labels := slices.Concat(required, preferred)
	for n := 1; n <= len(labels); n++ {
		running := map[string]int{}
		for _, node := range p.Nodes {
			value, ok := DomainOf(node, labels[:n])
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
func (p *Packer) nearness(n *capacity.Node) int {
	if len(p.running) == 0 || p.Gang.Spread {
		return 0
	}
	required, preferred := p.DomainLabels()
	if len(p.running[n.Name]) > 0 {
		return len(preferred) + 1
	}
	labels := slices.Concat(required, preferred)
	for level := len(preferred); level > 0; level-- {
		count := len(required) + level
		value, ok := DomainOf(n, labels[:count])
		if home, known := p.Topology.homes[count]; ok && known && value == home {
			return level
		}
	}
	return 0
}

// weight is how much the members to place wish for a node.
func (p *Packer) weight(n *capacity.Node) (sum int64) {
	for _, c := range p.Classes {
		sum += c.spec.Weight(&n.Node)
	}
	return sum
}

// domains returns the domains that labels make, in the order of their first nodes;
// one with all nodes when there are no labels.
func (p *Packer) domains(labels []string) []*Domain {
	t := p.Survey()
	if known, ok := t.domains[len(labels)]; ok {
		return known
	}
	m := mapping{of: make([]int32, len(p.Nodes)), known: map[string]*Domain{}, labels: labels}
	for i, n := range p.Nodes {
		m.of[i] = -1
		d := m.domain(n)
		if d == nil {
			continue
		}
		if len(p.running) > 0 {
			d.running += len(p.running[n.Name])
		}
		if t.Admitted[i] != 0 {
			g := m.group(d, p.KeyOf(n, t.Admitted[i]), p.nearness(n), p.weight(n))
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
	domains []*Domain
	known   map[string]*Domain
	groups  []*group
	// of is the number of each node's group, -1 for none.
	of []int32
}

// domain returns the domain of a node, nil when it lacks a label.
func (m *mapping) domain(n *capacity.Node) *Domain {
	if len(m.labels) == 0 && len(m.domains) > 0 {
		return m.domains[0]
	}
	value, ok := DomainOf(n, m.labels)
	if !ok {
		return nil
	}
	d := m.known[value]
	if d == nil {
		d = &Domain{Labels: m.labels, Value: value, first: map[*capacity.Capacity]*group{}}
		m.known[value] = d
		m.domains = append(m.domains, d)
	}
	return d
}

// group returns the group of the key in a domain and makes it when it is new.
func (m *mapping) group(d *Domain, key Key, near int, weight int64) *group {
	g := d.first[key.state]
	for ; g != nil; g = g.next {
		if g.Key == key && g.near == near && g.weight == weight {
			return g
		}
	}
	g = &group{Key: key, near: near, weight: weight, next: d.first[key.state], number: int32(len(m.groups))}
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
func whereItRuns(domains []*Domain) []*Domain {
	if len(domains) == 0 {
		return nil
	}
	most := slices.MaxFunc(domains, func(a, b *Domain) int { return cmp.Compare(a.running, b.running) })
	if most.running == 0 {
		return domains
	}
	return []*Domain{most}
}

// Rejection returns the first rule that keeps a member of the class from the node whatever runs there.
func (p *Packer) Rejection(n *capacity.Node, c *Class, d *Domain) placement.Rejection {
	if p.Gang.Excludes(n.Name) {
		return placement.Rejection{Code: placement.Excluded}
	}
	if why, taint := p.Rules[c.Rules].Rejects(&n.Node); why.Code != "" {
		switch {
		case taint != nil:
			why.Detail = taint.String()
		case why.Detail == "selector":
			why.Detail += " " + strings.Join(p.Rules[c.Rules].MissingLabels(&n.Node), ", ")
		case why.Detail == "volumes":
			why.Detail += " " + p.Rules[c.Rules].VolumesOn()
		case why.Detail == "devices":
			why.Detail += " " + p.Rules[c.Rules].DevicesOn()
		}
		return why
	}
	if !d.Has(n) {
		return placement.Rejection{Code: placement.OtherDomain}
	}
	return placement.Rejection{}
}
