// Package explanation says why a gang has no place, how far it fits, and which smallest changes
// would make it fit.
package explanation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Of says why the gang does not fit, how far it fits, and what would help.
func Of(p *packing.Packer) placement.Verdict {
	v := placement.Verdict{Gang: p.Gang.ID, Asked: p.Asked(), Fit: p.Live}
	if bad := p.Invalid(); bad != nil {
		v.Reasons = []placement.Reason{*bad}
		return v
	}
	limit := p.Allowed()
	if p.Filled == nil {
		chosen := p.Choose(p.Wanted(limit))
		p.Filled = &chosen
	}
	chosen := *p.Filled
	v.Partial = p.Assign(chosen)
	v.Fit += chosen.Placed
	next := nextMember(p, chosen)
	if chosen.Placed < limit {
		v.Next, v.Asks = next.name, Words(p.Classes[next.class].Request)
		v.Reasons = nodeReasons(p, next, chosen)
	}
	if limit < p.Needed {
		v.Reasons = append([]placement.Reason{QuotaReason(p, p.Needed)}, v.Reasons...)
	}
	v.Fixes = fixes(p, next, chosen, v.Reasons)
	return v
}

// QuotaReason says which limit of the tree the gang exceeds with so many of the members to place.
func QuotaReason(p *packing.Packer, members int) placement.Reason {
	if p.LeafMissing(&p.Gang) {
		return placement.Reason{Code: placement.NoSuchLeaf, Text: p.Quota.Missing(p.Gang.Leaf)}
	}
	exceeded := p.OverQuota(members)
	text := fmt.Sprintf("%s by %s", exceeded, plural(members, "member"))
	if members > 1 {
		text += " together"
	}
	if p.Late() {
		text += ", with what starts once they run"
	}
	text += unguaranteed(p, p.Charge(members), *exceeded)
	return placement.Reason{Code: placement.OverQuota, Quota: exceeded.Path, Resource: exceeded.Resource, Text: text}
}

// unguaranteed says that the gang's leaf would take back what others borrow of an exceeded limit, had it a minimum of all that the
// gang asks for; "" where that is not what stops it.
func unguaranteed(p *packing.Packer, charge quota.Resources, exceeded quota.Exceeded) string {
	if p.Gang.NeverPreempts {
		return ""
	}
	tree := p.LastQuota()
	var lacking []string
	for _, resource := range tree.Unguaranteed(p.Gang.Leaf, charge, exceeded) {
		lacking = append(lacking, fmt.Sprintf("%s (%s is asked for)", resource, quota.Format(resource, charge[resource])))
	}
	if len(lacking) == 0 {
		return ""
	}
	return fmt.Sprintf("; others borrow of it, and %s takes nothing back, because it has no min of %s", tree.Path(p.Gang.Leaf), strings.Join(lacking, ", "))
}

// nextMember is the first member without a place.
func nextMember(p *packing.Packer, s packing.Selection) member {
	placed := s.ByClass(len(p.Classes))
	var last member
	for _, b := range p.Due {
		if n := placed[b.Class]; n < len(b.Names) {
			return member{b.Names[n], b.Class}
		}
		placed[b.Class] -= len(b.Names)
		last = member{b.Names[len(b.Names)-1], b.Class}
	}
	return last
}

// nodeReasons counts, per constraint, the nodes that cannot take the next member
// after the others have their places.
func nodeReasons(p *packing.Packer, next member, s packing.Selection) []placement.Reason {
	class := &p.Classes[next.class]
	topology := p.Survey()
	packings := make([]*capacity.Packing, len(p.Nodes))
	for _, pick := range s.Picks {
		packings[pick.Node] = pick.Packing
	}
	type filled struct {
		state *capacity.Capacity
		trial *capacity.Packing
	}
	if p.Among != nil {
		p.Among.Take(&s, 1)
		defer p.Among.Take(&s, -1)
	}
	why := map[filled]placement.Rejection{}
	counts, most, sick := map[placement.Rejection]int{}, map[placement.Rejection]int64{}, map[placement.Rejection]sickness{}
	for i, n := range p.Nodes {
		if p.Gang.HiddenNodes[n.Name] {
			continue
		}
		var r placement.Rejection
		if topology.Admitted[i]&(1<<uint(class.Rules)) == 0 || len(s.Domain.Labels) > 0 {
			r = p.Rejection(n, class, s.Domain)
		}
		t := packings[i]
		if r == (placement.Rejection{}) && p.Limit(p.KeyOf(n, ^uint64(0)), next.class, capacity.Unlimited, t) == 0 {
			r.Code = placement.PerNodeLimit
			if p.Limited(n) {
				r = placement.Rejection{Code: placement.Excluded, Detail: "full"}
			}
		}
		if r == (placement.Rejection{}) {
			known, ok := why[filled{n.Free, t}]
			if !ok {
				room := p.Room(n.Free, t)
				_, known = room.FitsWhy(class.Request, 1)
				most[known] = max(most[known], room.Has(known))
				if known.Code == placement.HostPortTaken && !capacity.PortTaken(n.Free.Ports, known.Detail) {
					known.Code = placement.HostPortShared
				}
				why[filled{n.Free, t}] = known
			}
			r = known
			if found := sickFor(p, n, t, class.Request, r); found != nil {
				r = placement.Rejection{Code: placement.SickGPUs, Detail: r.Detail}
				sick[r] = found.with(sick[r])
			}
		}
		if r == (placement.Rejection{}) && p.Among != nil {
			r = p.Among.Rejects(next.class, int32(i))
		}
		counts[r]++
	}
	if len(counts) == 0 {
		return []placement.Reason{{Code: placement.NoNodes, Text: "there is no node"}}
	}
	var list []placement.Reason
	for _, r := range slices.SortedFunc(maps.Keys(counts), func(a, b placement.Rejection) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Detail, b.Detail))
	}) {
		text := Clause(r, counts[r], s.Domain) + sick[r].String() + shortfall(r, counts[r], most[r], class.Request)
		list = append(list, placement.Reason{Code: r.Code, Nodes: counts[r], Text: text})
	}
	return list
}

// shortfall says how much nodes have at most of what a member asks for, "" where no amount is
// too little.
func shortfall(r placement.Rejection, nodes int, most int64, asked *placement.Request) string {
	var has, wants string
	switch r.Code {
	case placement.NotEnoughCPU:
		has, wants = cpuWords(most), cpuWords(asked.MilliCPU)
	case placement.NotEnoughMemory:
		has, wants = memoryWords(most), memoryWords(asked.MemoryBytes)
	case placement.NotEnoughOther:
		has, wants = amountWords(r.Detail, most), amountWords(r.Detail, asked.Extended[r.Detail])
	case placement.NotEnoughShare:
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

// Clause is the text of a reason: what n nodes lack, or members on them, in a gang's domain.
func Clause(r placement.Rejection, n int, d *packing.Domain) string {
	nodes := plural(n, "node")
	has, is, does := "have", "are", "do"
	if n == 1 {
		has, is, does = "has", "is", "does"
	}
	switch r.Code {
	case placement.NotEnoughGPUs:
		if r.Detail != "" {
			return fmt.Sprintf("%s %s too few free GPUs left", nodes, has)
		}
		return fmt.Sprintf("%s %s no free GPU left", nodes, has)
	case placement.SickGPUs:
		return nodes + " " + has + " " + map[string]string{
			"":      "no free GPU left but ",
			"some":  "too few free GPUs left without ",
			"share": "no GPU with enough memory or cores left but ",
		}[r.Detail]
	case placement.NotEnoughShare:
		return fmt.Sprintf("%s %s no GPU with enough memory or cores left", nodes, has)
	case placement.NotEnoughCPU:
		return fmt.Sprintf("%s %s too little CPU left", nodes, has)
	case placement.NotEnoughMemory:
		return fmt.Sprintf("%s %s too little memory left", nodes, has)
	case placement.NotEnoughPods:
		return fmt.Sprintf("%s %s no room for another pod", nodes, has)
	case placement.NotEnoughOther:
		return fmt.Sprintf("%s %s too little %s left", nodes, has, r.Detail)
	case placement.WrongMode:
		if r.Detail == string(placement.ModeNone) {
			return fmt.Sprintf("%s %s no GPUs", nodes, has)
		}
		return fmt.Sprintf("%s %s in mode %s", nodes, is, r.Detail)
	case placement.SelectorMismatch:
		switch of, what, _ := strings.Cut(r.Detail, " "); of {
		case "pool":
			return fmt.Sprintf("%s %s in other pools", nodes, is)
		case "volumes":
			return fmt.Sprintf("%s %s not reach the volumes, which are for nodes with %s", nodes, does, what)
		case "devices":
			return fmt.Sprintf("%s %s not reach the devices of the resource claims, which are for nodes with %s", nodes, does, what)
		case "selector":
			return fmt.Sprintf("%s %s not match the node selector %s", nodes, does, what)
		}
		return fmt.Sprintf("%s %s not match the node affinity", nodes, does)
	case placement.Untolerated:
		return fmt.Sprintf("%s %s the taint %s, which is not tolerated", nodes, has, r.Detail)
	case placement.NodeUnschedulable:
		return fmt.Sprintf("%s %s cordoned", nodes, is)
	case placement.HostPortTaken:
		return fmt.Sprintf("%s %s the host port %s taken", nodes, has, r.Detail)
	case placement.HostPortShared:
		return fmt.Sprintf("%s %s the host port %s taken by another member of the gang", nodes, has, r.Detail)
	case placement.KeptApart:
		return fmt.Sprintf("%s %s in a domain of %s with a pod that must not be near", nodes, is, r.Detail)
	case placement.NotNear:
		return fmt.Sprintf("%s %s in no domain of %s with a pod that must be near", nodes, is, r.Detail)
	case placement.Uneven:
		return fmt.Sprintf("%s %s kept from it by the topology spread over %s", nodes, is, r.Detail)
	case placement.Excluded:
		if r.Detail != "" {
			return fmt.Sprintf("%s %s no more of them because of another filter", nodes, map[bool]string{true: "takes", false: "take"}[n == 1])
		}
		return fmt.Sprintf("%s %s refused by another filter", nodes, is)
	case placement.PerNodeLimit:
		return fmt.Sprintf("%s %s as many members of the role as one node may run", nodes, map[bool]string{true: "runs", false: "run"}[n == 1])
	case placement.Mixed:
		return fmt.Sprintf("%s %s pods on shared GPUs with the other limits (memory only, and memory with cores, are never on one node)", nodes, map[bool]string{true: "runs", false: "run"}[n == 1])
	case placement.OtherDomain:
		if d.Value == "" {
			return fmt.Sprintf("%s %s no label %s", nodes, has, strings.Join(d.Labels, ", "))
		}
		return fmt.Sprintf("%s %s outside %s, which has the most room", nodes, is, d)
	}
	return fmt.Sprintf("%s cannot take it (%s)", nodes, r.Code)
}

// Words says what a member asks for: "1 GPU, mode topology, 4 CPU".
func Words(r *placement.Request) string {
	var parts []string
	switch {
	case r.Mode.Whole():
		parts = append(parts, fmt.Sprintf("%s, mode %s", atLeast(int64(r.GPUs), plural(r.GPUs, "GPU")), r.Mode))
	case r.Mode.Shared():
		part := fmt.Sprintf("%d GiB of a shared GPU", r.MemoryGiB)
		if r.SpreadOver() > 1 {
			part = fmt.Sprintf("%d GiB over %d shared GPUs", r.MemoryGiB, r.SpreadOver())
		}
		if r.CorePercent > 0 {
			part += fmt.Sprintf(" with %d %% of its cores", r.CorePercent)
		}
		parts = append(parts, part)
	}
	if r.MilliCPU > 0 {
		parts = append(parts, cpuWords(r.MilliCPU)+" CPU")
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

// atLeast says of an amount that was more than is counted that it is not all that was asked for.
func atLeast(amount int64, words string) string {
	if amount >= placement.MostAsked {
		return "at least " + words
	}
	return words
}

// cpuWords writes an amount of CPU in cores.
func cpuWords(milli int64) string { return atLeast(milli, quota.Format("cpu", milli)) }

// memoryWords writes an amount of memory in the unit that suits it: "64 GiB", "10 MiB".
func memoryWords(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return atLeast(n, fmt.Sprintf("%.4g %s", value, units[unit]))
}

// gibWords writes memory of GPUs.
func gibWords(n int64) string { return fmt.Sprintf("%d GiB", n) }

// amountWords writes an amount of an extended resource, or of one that is counted in bytes.
func amountWords(resource string, amount int64) string {
	if resource == "ephemeral-storage" || strings.HasPrefix(resource, "hugepages-") {
		return memoryWords(amount)
	}
	return atLeast(amount, strconv.FormatInt(amount, 10))
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
