package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// explain says why the gang does not fit, how far it fits, and what would help.
func (p *planner) explain() Verdict {
	v := Verdict{Gang: p.gang.ID, Asked: p.asked(), Fit: len(p.gang.Running)}
	if bad := p.invalid(); bad != nil {
		v.Reasons = []Reason{*bad}
		return v
	}
	limit := p.allowed()
	chosen := p.choose(p.wanted(limit))
	v.Partial = p.assign(chosen)
	v.Fit += chosen.placed
	next := p.next(chosen)
	if chosen.placed < limit {
		v.Next, v.Asks = next.name, p.asks(next)
		v.Reasons = p.nodeReasons(next, chosen)
	}
	if limit < p.needed {
		v.Reasons = append([]Reason{p.quotaReason()}, v.Reasons...)
	}
	v.Fixes = p.fixes(next, chosen)
	return v
}

// quotaReason says which limit of the tree the gang exceeds.
func (p *planner) quotaReason() Reason {
	if p.leafMissing() {
		return Reason{Code: NoSuchLeaf, Text: fmt.Sprintf("the quota tree has no leaf %q; its leaves are %s",
			p.gang.Leaf, strings.Join(p.quota.Leaves(), ", "))}
	}
	return Reason{Code: OverQuota, Text: fmt.Sprintf("%s by %s together", p.overQuota(p.needed), plural(p.needed, "member"))}
}

// next is the first member without a place.
func (p *planner) next(s selection) member {
	placed := make([]int, len(p.classes))
	for _, pick := range s.picks {
		for class, n := range pick.take {
			placed[class] += n
		}
	}
	for _, m := range p.members {
		if placed[m.class] == 0 {
			return m
		}
		placed[m.class]--
	}
	return p.members[len(p.members)-1]
}

// nodeReasons counts, per constraint, the nodes that cannot take the next member
// after the others have their places.
func (p *planner) nodeReasons(next member, s selection) []Reason {
	class := &p.classes[next.class]
	taken := make(map[*node]int, len(s.picks))
	rooms := make(map[*node]*capacity, len(s.picks))
	for _, pick := range s.picks {
		room := pick.node.free.clone()
		for _, i := range pick.order {
			room.take(p.classes[i].request, pick.take[i], p.mix)
		}
		rooms[pick.node], taken[pick.node] = room, pick.take[next.class]
	}
	why := map[*capacity]refusal{}
	counts := map[refusal]int{}
	for _, n := range p.nodes {
		r := p.refusal(n, class, s.domain)
		if r == (refusal{}) && class.perNode > 0 && p.limit(p.key(n, ^uint64(0)), next.class, unlimited, 0) <= taken[n] {
			r.code = PerNodeLimit
		}
		if r == (refusal{}) {
			room := n.free
			if used := rooms[n]; used != nil {
				room = used
			}
			known, ok := why[room]
			if !ok {
				_, known = room.fitsWhy(class.request, 1)
				why[room] = known
			}
			r = known
		}
		counts[r]++
	}
	if len(counts) == 0 {
		return []Reason{{Code: NoNodes, Text: "there is no node"}}
	}
	var list []Reason
	for _, r := range slices.SortedFunc(maps.Keys(counts), func(a, b refusal) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.code, b.code), cmp.Compare(a.detail, b.detail))
	}) {
		list = append(list, Reason{Code: r.code, Nodes: counts[r], Text: p.text(r, counts[r], s)})
	}
	return list
}

// refusal returns the first rule that keeps a member of the class from the node whatever runs there.
func (p *planner) refusal(n *node, c *class, d *domain) refusal {
	if p.gang.ExcludeNodes[n.Name] {
		return refusal{code: Excluded}
	}
	if r := p.rules[c.rules].refuses(&n.Node); r != (refusal{}) {
		return r
	}
	if !d.has(n) {
		return refusal{code: OtherDomain}
	}
	return refusal{}
}

// text is the clause of a reason.
func (p *planner) text(r refusal, n int, s selection) string {
	nodes := plural(n, "node")
	has, is, does := "have", "are", "do"
	if n == 1 {
		has, is, does = "has", "is", "does"
	}
	switch r.code {
	case NotEnoughCards:
		return fmt.Sprintf("%s %s no free card left", nodes, has)
	case NotEnoughShare:
		return fmt.Sprintf("%s %s no card with enough memory or cores left", nodes, has)
	case NotEnoughCPU:
		return fmt.Sprintf("%s %s too little CPU left", nodes, has)
	case NotEnoughMemory:
		return fmt.Sprintf("%s %s too little memory left", nodes, has)
	case NotEnoughPods:
		return fmt.Sprintf("%s %s no room for another pod", nodes, has)
	case NotEnoughOther:
		return fmt.Sprintf("%s %s too little %s left", nodes, has, r.detail)
	case WrongMode:
		if r.detail == string(ModeNone) {
			return fmt.Sprintf("%s %s no cards", nodes, has)
		}
		return fmt.Sprintf("%s %s in mode %s", nodes, is, r.detail)
	case SelectorMismatch:
		if r.detail == "pool" {
			return fmt.Sprintf("%s %s in other pools", nodes, is)
		}
		return fmt.Sprintf("%s %s not match the %s", nodes, does, map[string]string{"selector": "node selector", "affinity": "node affinity"}[r.detail])
	case Untolerated:
		return fmt.Sprintf("%s %s the taint %s, which is not tolerated", nodes, has, r.detail)
	case Unschedulable:
		return fmt.Sprintf("%s %s cordoned", nodes, is)
	case HostPortTaken:
		return fmt.Sprintf("%s %s the host port %s taken", nodes, has, r.detail)
	case Excluded:
		return fmt.Sprintf("%s %s refused by another filter", nodes, is)
	case PerNodeLimit:
		return fmt.Sprintf("%s %s as many members of the role as one node may run", nodes, map[bool]string{true: "runs", false: "run"}[n == 1])
	case Mixed:
		return fmt.Sprintf("%s run pods of the other kind of share (memory only and memory with cores never share a node)", nodes)
	case OtherDomain:
		if s.domain.value == "" {
			return fmt.Sprintf("%s %s no label %s", nodes, has, strings.Join(s.domain.labels, ", "))
		}
		return fmt.Sprintf("%s %s outside %s, which has the most room", nodes, is, s.domain)
	}
	return fmt.Sprintf("%s cannot take it (%s)", nodes, r.code)
}

// asks says what the member asks for.
func (p *planner) asks(m member) string {
	r := p.classes[m.class].request
	var parts []string
	switch {
	case r.Mode.whole():
		parts = append(parts, fmt.Sprintf("%s, mode %s", plural(r.Cards, "card"), r.Mode))
	case r.Mode.shared():
		share := fmt.Sprintf("%d GiB of one card", r.MemoryGiB)
		if r.spread() > 1 {
			share = fmt.Sprintf("%d GiB over %d cards", r.MemoryGiB, r.spread())
		}
		if r.CorePercent > 0 {
			share += fmt.Sprintf(" with %d %% of its cores", r.CorePercent)
		}
		parts = append(parts, fmt.Sprintf("%s, mode %s", share, r.Mode))
	}
	if r.MilliCPU > 0 {
		parts = append(parts, fmt.Sprintf("%g CPU", float64(r.MilliCPU)/1000))
	}
	if r.MemoryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%.4g GiB memory", float64(r.MemoryBytes)/(1<<30)))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extended)) {
		if r.Extended[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", r.Extended[name], name))
		}
	}
	if len(parts) == 0 {
		return "one pod"
	}
	return strings.Join(parts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
