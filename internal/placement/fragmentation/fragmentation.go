// Package fragmentation scores what nodes have left by the requests that arrive: how much of
// their idle GPUs those could not use.
package fragmentation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// Scorer scores states of nodes by the requests that arrive. With it the planner
// follows fragmentation gradient descent (Weng et al., "Beware of Fragmentation:
// Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
// ATC'23): a GPU's idle part is a fragment for a request that the node cannot serve,
// or that the GPU is too small for; a member goes to the node and GPU where the
// expected fragments, over the distribution, grow least. Beyond the paper, what stays
// idle when a node is filled with one kind of request counts too, with a smaller weight.
//
// The expectation uses counts of requests and thousandths of GPUs, so that it is
// exact and equal on every machine. Nodes keep their scores: one placement re-scores one
// node. What is remembered belongs to one view, as whoever plans on it; the distribution is
// shared with copies of the view.
type Scorer struct {
	*Distribution
	// trials are those of single members, by request and state; scores are by state.
	trials map[string]map[*capacity.Capacity]*capacity.Packing
	scores map[*capacity.Capacity]int64
	// remembered counts both.
	remembered int
	// Prices are those of the rules about nodes, nil while nodes have not been counted.
	Prices []int64
}

// Distribution is a workload in the form in which states are scored by it. It is never changed.
type Distribution struct {
	Workload placement.Workload
	groups   []demandGroup
	// rules are those about nodes that its demands have.
	rules [][][]placement.Requirement
}

// demandGroup holds the requests that differ in CPU and memory only.
type demandGroup struct {
	placement.Demand
	// rule is the number of the rule about nodes, -1 for any node.
	rule    int
	amounts []demandAmount
}

// demandAmount is how many members ask for so much CPU and memory.
type demandAmount struct{ milliCPU, memoryMiB, members int64 }

// maxRemembered bounds the remembered trials and scores.
const maxRemembered = 1 << 18

// gpuUnit is what one idle GPU counts for.
const gpuUnit = 1000

// unusableWeight is how much more an idle part counts that a request cannot use at
// all than one that would stay idle if the node were filled with the request.
const unusableWeight = 12

// NewDistribution groups the demands of a workload.
func NewDistribution(w placement.Workload) *Distribution {
	usual := usual(w)
	number, rules := eligibility(usual)
	m := &Distribution{Workload: maps.Clone(w), rules: rules}
	for _, d := range usual.Demands() {
		group := d
		group.MilliCPU, group.MemoryMiB = 0, 0
		last := len(m.groups) - 1
		if last < 0 || m.groups[last].Demand != group {
			rule := -1
			if i, ok := number[d.Nodes]; ok {
				rule = i
			}
			m.groups = append(m.groups, demandGroup{Demand: group, rule: rule})
			last++
		}
		g := &m.groups[last]
		g.amounts = append(g.amounts, demandAmount{d.MilliCPU, d.MemoryMiB, w[d]})
	}
	return m
}

// Scorer returns the scoring by a distribution, which remembers nothing yet.
func (m *Distribution) Scorer() *Scorer {
	f := &Scorer{Distribution: m}
	f.forget()
	return f
}

// Clone is what a copy of the view scores by; nil for nil.
func (f *Scorer) Clone() *Scorer {
	if f == nil {
		return nil
	}
	c := f.Scorer()
	c.Prices = f.Prices
	return c
}

// forget drops what is remembered.
func (f *Scorer) forget() {
	f.trials, f.scores, f.remembered = map[string]map[*capacity.Capacity]*capacity.Packing{}, map[*capacity.Capacity]int64{}, 0
}

// TrialsOf returns the trials of a single member with the request.
func (f *Scorer) TrialsOf(r *placement.Request) map[*capacity.Capacity]*capacity.Packing {
	if f.remembered >= maxRemembered {
		f.forget()
	}
	key := fmt.Sprint(*r)
	if f.trials[key] == nil {
		f.trials[key] = map[*capacity.Capacity]*capacity.Packing{}
	}
	return f.trials[key]
}

// Remember returns the trial on a state, made before or now.
func (f *Scorer) Remember(trials map[*capacity.Capacity]*capacity.Packing, state *capacity.Capacity, try func() *capacity.Packing) *capacity.Packing {
	t := trials[state]
	if t == nil {
		t = try()
		trials[state] = t
		f.remembered++
	}
	return t
}

// Score is fragments of an interned state, remembered.
func (f *Scorer) Score(state *capacity.Capacity) int64 {
	score, ok := f.scores[state]
	if !ok {
		score = f.Fragments(state)
		if f.remembered >= maxRemembered {
			f.forget()
		}
		f.scores[state] = score
		f.remembered++
	}
	return score
}

// Fragments is how badly the idle part of the node's GPUs suits the distribution,
// summed over its members, in thousandths of GPUs times 1+unusableWeight and priceUnit. For
// each request it counts what the request cannot use at all now (the paper's fragment), and
// what would stay idle if the node were filled with requests like it, CPU and memory included;
// the second term tells apart choices that are equal in the first.
func (f *Scorer) Fragments(c *capacity.Capacity) int64 {
	idle := idleOf(c)
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range f.groups {
		g := &f.groups[i]
		fit := f.fit(g, c, c.Eligible)
		price := f.price(g.rule)
		for _, a := range g.amounts {
			unusable, slots := fit.small, fit.slots
			if !a.within(c) || slots == 0 {
				unusable = idle
			}
			if a.milliCPU > 0 {
				slots = min(slots, max(c.MilliCPU, 0)/a.milliCPU)
			}
			if a.memoryMiB > 0 {
				slots = min(slots, max(c.MemoryBytes>>20, 0)/a.memoryMiB)
			}
			total += a.members * price * (unusableWeight*unusable + idle - slots*fit.each)
		}
	}
	return total
}

// idleOf is the idle part of the node's GPUs in thousandths.
func idleOf(c *capacity.Capacity) int64 {
	sum := int64(c.Whole) * gpuUnit
	for i, room := range c.Shares {
		if c.Sizes[i] > 0 {
			sum += room.MemoryGiB * gpuUnit / c.Sizes[i]
		}
	}
	return sum
}

// within reports whether a node has as much CPU and memory left.
func (a demandAmount) within(c *capacity.Capacity) bool {
	return a.milliCPU <= c.MilliCPU && a.memoryMiB<<20 <= c.MemoryBytes
}

// fit is what the idle part of the GPUs of a node, which meets some rules about nodes, is worth
// for the requests of a group.
func (m *Distribution) fit(g *demandGroup, c *capacity.Capacity, eligible uint64) suitability {
	if g.rule >= 0 && eligible&(1<<g.rule) == 0 {
		return suitability{}
	}
	return suits(c, &g.Demand)
}

// suitability is what the idle part of a node's GPUs is worth for a demand.
type suitability struct {
	// small is the idle part of GPUs that are too small for one share.
	small int64
	// slots is how many such requests fit by GPUs, each what one of them uses.
	slots, each int64
}

// suits returns the suitability for a demand; amounts are in thousandths of GPUs. A
// demand without GPUs uses none.
func suits(c *capacity.Capacity, d *placement.Demand) suitability {
	switch {
	case d.Mode.Whole():
		if c.Mode != d.Mode {
			return suitability{}
		}
		return suitability{slots: int64(c.Whole / d.GPUs), each: int64(d.GPUs) * gpuUnit}
	case d.Mode == placement.ModeCoreMem && (c.Mode != placement.ModeCoreMem || c.MemoryOnly > 0), d.Mode == placement.ModeShare && c.WithCore > 0:
		return suitability{}
	}
	var fit suitability
	var fitting, shares, used int64
	for i, room := range c.Shares {
		n := int64(room.Takes(share(d)))
		if c.Sizes[i] == 0 {
			continue
		}
		if n == 0 {
			fit.small += room.MemoryGiB * gpuUnit / c.Sizes[i]
			continue
		}
		fitting++
		shares += n
		used += n * (d.MemoryGiB * gpuUnit / c.Sizes[i])
	}
	if shares == 0 {
		return fit
	}
	fit.slots = shares
	if d.GPUs > 1 {
		fit.slots = fitting / int64(d.GPUs)
	}
	fit.each = int64(d.GPUs) * used / shares
	return fit
}

// ChooseGPU returns the GPU among the fitting ones on which a share fragments
// the node least; of equal ones the tightest, then the first.
func (f *Scorer) ChooseGPU(c *capacity.Capacity, fitting []int, share capacity.GPU) int {
	best, least := -1, int64(0)
	for n, i := range fitting {
		if slices.ContainsFunc(fitting[:n], func(j int) bool { return c.Shares[j] == c.Shares[i] && c.Sizes[j] == c.Sizes[i] }) {
			continue
		}
		before := c.Shares[i]
		c.Shares[i] = before.Less(share)
		score := f.Fragments(c)
		c.Shares[i] = before
		if best < 0 || score < least || score == least && before.Compare(c.Shares[best]) < 0 {
			best, least = i, score
		}
	}
	return best
}

func share(d *placement.Demand) capacity.GPU {
	return capacity.GPU{MemoryGiB: d.MemoryGiB, CorePercent: d.CorePercent}
}

// usualPercent is how much of the GPUs asked for the demands ask for that [usual] keeps.
const usualPercent = 95

// usual is the workload without the demands that ask for the fewest GPUs: what is asked for once in
// a while is no reason to keep room (Weng et al. score by the demands of 95 % of the members).
// Counted in GPUs, a big request, for which room must be kept most, is not rare as soon as a small one.
func usual(w placement.Workload) placement.Workload {
	demands := slices.DeleteFunc(w.Demands(), func(d placement.Demand) bool { return !d.Valid() })
	gpus := func(d placement.Demand) int64 { return w[d] * int64(d.GPUs) }
	slices.SortStableFunc(demands, func(a, b placement.Demand) int { return cmp.Compare(gpus(b), gpus(a)) })
	var all, kept int64
	for _, d := range demands {
		all += gpus(d)
	}
	usual := placement.Workload{}
	for _, d := range demands {
		if kept*100 >= all*usualPercent {
			break
		}
		usual[d] = w[d]
		kept += gpus(d)
	}
	return usual
}
