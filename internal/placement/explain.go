package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// explain says why the gang does not fit, how far it fits, and what would help.
func (p *planner) explain() Verdict {
	v := Verdict{Gang: p.gang.ID, Asked: p.asked(), Fit: p.live}
	if bad := p.invalid(); bad != nil {
		v.Reasons = []Reason{*bad}
		return v
	}
	limit := p.allowed()
	if p.filled == nil {
		chosen := p.choose(p.wanted(limit))
		p.filled = &chosen
	}
	chosen := *p.filled
	v.Partial = p.assign(chosen)
	v.Fit += chosen.placed
	next := p.next(chosen)
	if chosen.placed < limit {
		v.Next, v.Asks = next.name, p.classes[next.class].request.Words()
		v.Reasons = p.nodeReasons(next, chosen)
	}
	if limit < p.needed {
		v.Reasons = append([]Reason{p.quotaReason()}, v.Reasons...)
	}
	v.Fixes = p.fixes(next, chosen, v.Reasons)
	return v
}

// quotaReason says which limit of the tree the gang exceeds.
func (p *planner) quotaReason() Reason {
	if p.leafMissing(&p.gang) {
		return Reason{Code: NoSuchLeaf, Text: p.quota.Missing(p.gang.Leaf)}
	}
	exceeded := p.overQuota(p.needed)
	return Reason{Code: OverQuota, Quota: exceeded.Path, Resource: exceeded.Resource, Text: fmt.Sprintf("%s by %s together", exceeded, plural(p.needed, "member"))}
}

// next is the first member without a place.
func (p *planner) next(s selection) member {
	placed := s.byClass(len(p.classes))
	var last member
	for _, b := range p.due {
		if n := placed[b.class]; n < len(b.names) {
			return member{b.names[n], b.class}
		}
		placed[b.class] -= len(b.names)
		last = member{b.names[len(b.names)-1], b.class}
	}
	return last
}

// nodeReasons counts, per constraint, the nodes that cannot take the next member
// after the others have their places.
func (p *planner) nodeReasons(next member, s selection) []Reason {
	class := &p.classes[next.class]
	topology := p.survey()
	packings := make([]*nodePacking, len(p.nodes))
	for _, pick := range s.picks {
		packings[pick.node] = pick.packing
	}
	type filled struct {
		state *capacity
		trial *nodePacking
	}
	if p.among != nil {
		p.among.take(&s, 1)
		defer p.among.take(&s, -1)
	}
	why := map[filled]rejection{}
	counts, most, sick := map[rejection]int{}, map[rejection]int64{}, map[rejection]sickness{}
	for i, n := range p.nodes {
		var r rejection
		if topology.admitted[i]&(1<<uint(class.rules)) == 0 || len(s.domain.labels) > 0 {
			r = p.rejection(n, class, s.domain)
		}
		t := packings[i]
		if r == (rejection{}) && p.limit(p.key(n, ^uint64(0)), next.class, unlimited, t) == 0 {
			r.code = PerNodeLimit
			if p.limited(n) {
				r = rejection{Excluded, "full"}
			}
		}
		if r == (rejection{}) {
			known, ok := why[filled{n.free, t}]
			if !ok {
				room := p.room(n.free, t)
				_, known = room.fitsWhy(class.request, 1)
				most[known] = max(most[known], room.has(known))
				if known.code == HostPortTaken && !portTaken(n.free.ports, known.detail) {
					known.code = HostPortShared
				}
				why[filled{n.free, t}] = known
			}
			r = known
			if found := p.sickFor(n, t, class.request, r); found != nil {
				r = rejection{SickGPUs, r.detail}
				sick[r] = found.with(sick[r])
			}
		}
		if r == (rejection{}) && p.among != nil {
			r = p.among.rejects(next.class, int32(i))
		}
		counts[r]++
	}
	if len(counts) == 0 {
		return []Reason{{Code: NoNodes, Text: "there is no node"}}
	}
	var list []Reason
	for _, r := range slices.SortedFunc(maps.Keys(counts), func(a, b rejection) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.code, b.code), cmp.Compare(a.detail, b.detail))
	}) {
		text := clause(r, counts[r], s.domain) + sick[r].String() + shortfall(r, counts[r], most[r], class.request)
		list = append(list, Reason{Code: r.code, Nodes: counts[r], Text: text})
	}
	return list
}

// shortfall says how much nodes have at most of what a member asks for, "" where no amount is
// too little.
func shortfall(r rejection, nodes int, most int64, asked *Request) string {
	var has, wants string
	switch r.code {
	case NotEnoughCPU:
		has, wants = fmt.Sprintf("%g", float64(most)/1000), fmt.Sprintf("%g", float64(asked.MilliCPU)/1000)
	case NotEnoughMemory:
		has, wants = memoryWords(most), memoryWords(asked.MemoryBytes)
	case NotEnoughOther:
		has, wants = amountWords(r.detail, most), amountWords(r.detail, asked.Extended[r.detail])
	case NotEnoughShare:
		part := asked.PerGPU().MemoryGiB
		if most >= part {
			return "" // cores are too few, or GPUs that have both
		}
		has, wants = gibWords(most), gibWords(part)
	default:
		return ""
	}
	if nodes > 1 {
		has = "at most " + has
	}
	return fmt.Sprintf(" (%s of the %s that it asks for)", has, wants)
}

// clause is the text of a reason: what n nodes lack, or members on them, in a gang's domain.
func clause(r rejection, n int, d *domain) string {
	nodes := plural(n, "node")
	has, is, does := "have", "are", "do"
	if n == 1 {
		has, is, does = "has", "is", "does"
	}
	switch r.code {
	case NotEnoughGPUs:
		if r.detail != "" {
			return fmt.Sprintf("%s %s too few free GPUs left", nodes, has)
		}
		return fmt.Sprintf("%s %s no free GPU left", nodes, has)
	case SickGPUs:
		return nodes + " " + has + " " + map[string]string{
			"":      "no free GPU left but ",
			"some":  "too few free GPUs left without ",
			"share": "no GPU with enough memory or cores left but ",
		}[r.detail]
	case NotEnoughShare:
		return fmt.Sprintf("%s %s no GPU with enough memory or cores left", nodes, has)
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
			return fmt.Sprintf("%s %s no GPUs", nodes, has)
		}
		return fmt.Sprintf("%s %s in mode %s", nodes, is, r.detail)
	case SelectorMismatch:
		switch r.detail {
		case "pool":
			return fmt.Sprintf("%s %s in other pools", nodes, is)
		case "volumes":
			return fmt.Sprintf("%s %s not reach the volumes", nodes, does)
		}
		return fmt.Sprintf("%s %s not match the %s", nodes, does, map[string]string{"selector": "node selector", "affinity": "node affinity"}[r.detail])
	case Untolerated:
		return fmt.Sprintf("%s %s the taint %s, which is not tolerated", nodes, has, r.detail)
	case Unschedulable:
		return fmt.Sprintf("%s %s cordoned", nodes, is)
	case HostPortTaken:
		return fmt.Sprintf("%s %s the host port %s taken", nodes, has, r.detail)
	case HostPortShared:
		return fmt.Sprintf("%s %s the host port %s taken by another member of the gang", nodes, has, r.detail)
	case KeptApart:
		return fmt.Sprintf("%s %s in a domain of %s with a pod that must not be near", nodes, is, r.detail)
	case NotNear:
		return fmt.Sprintf("%s %s in no domain of %s with a pod that must be near", nodes, is, r.detail)
	case Uneven:
		return fmt.Sprintf("%s %s kept from it by the topology spread over %s", nodes, is, r.detail)
	case Excluded:
		if r.detail != "" {
			return fmt.Sprintf("%s %s no more of them because of another filter", nodes, map[bool]string{true: "takes", false: "take"}[n == 1])
		}
		return fmt.Sprintf("%s %s refused by another filter", nodes, is)
	case PerNodeLimit:
		return fmt.Sprintf("%s %s as many members of the role as one node may run", nodes, map[bool]string{true: "runs", false: "run"}[n == 1])
	case Mixed:
		return fmt.Sprintf("%s %s pods on shared GPUs with the other limits (memory only, and memory with cores, are never on one node)", nodes, map[bool]string{true: "runs", false: "run"}[n == 1])
	case OtherDomain:
		if d.value == "" {
			return fmt.Sprintf("%s %s no label %s", nodes, has, strings.Join(d.labels, ", "))
		}
		return fmt.Sprintf("%s %s outside %s, which has the most room", nodes, is, d)
	}
	return fmt.Sprintf("%s cannot take it (%s)", nodes, r.code)
}

// Words says what a member asks for: "1 GPU, mode topology, 4 CPU".
func (r *Request) Words() string {
	var parts []string
	switch {
	case r.Mode.whole():
		parts = append(parts, fmt.Sprintf("%s, mode %s", plural(r.GPUs, "GPU"), r.Mode))
	case r.Mode.shared():
		part := fmt.Sprintf("%d GiB of a shared GPU", r.MemoryGiB)
		if r.spread() > 1 {
			part = fmt.Sprintf("%d GiB over %d shared GPUs", r.MemoryGiB, r.spread())
		}
		if r.CorePercent > 0 {
			part += fmt.Sprintf(" with %d %% of its cores", r.CorePercent)
		}
		parts = append(parts, part)
	}
	if r.MilliCPU > 0 {
		parts = append(parts, fmt.Sprintf("%g CPU", float64(r.MilliCPU)/1000))
	}
	if r.MemoryBytes > 0 {
		parts = append(parts, memoryWords(r.MemoryBytes)+" memory")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extended)) {
		if r.Extended[name] > 0 {
			parts = append(parts, amountWords(name, r.Extended[name])+" "+name)
		}
	}
	if len(parts) == 0 {
		return "one pod"
	}
	return strings.Join(parts, ", ")
}

// memoryWords writes an amount of memory in the unit that suits it: "64 GiB", "10 MiB".
func memoryWords(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", value, units[unit])
}

// gibWords writes memory of GPUs.
func gibWords(n int64) string { return fmt.Sprintf("%d GiB", n) }

// amountWords writes an amount of an extended resource, or of one that is counted in bytes.
func amountWords(resource string, amount int64) string {
	if resource == "ephemeral-storage" || strings.HasPrefix(resource, "hugepages-") {
		return memoryWords(amount)
	}
	return strconv.FormatInt(amount, 10)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// member is one member to place.
type member struct {
	name  string
	class int
}
