package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// fragmentation scores states of nodes by the requests that arrive. With it the planner
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
type fragmentation struct {
	*distribution
	// trials are those of single members, by request and state; scores are by state.
	trials map[string]map[*capacity]*nodePacking
	scores map[*capacity]int64
	// remembered counts both.
	remembered int
	// prices are those of the rules about nodes, nil while nodes have not been counted.
	prices []int64
}

// distribution is a workload in the form in which states are scored by it. It is never changed.
type distribution struct {
	workload Workload
	groups   []demandGroup
	// rules are those about nodes that its demands have.
	rules [][][]Requirement
}

// demandGroup holds the requests that differ in CPU and memory only.
type demandGroup struct {
	Demand
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

// newDistribution groups the demands of a workload.
func newDistribution(w Workload) *distribution {
	usual := w.usual()
	number, rules := eligibility(usual)
	m := &distribution{workload: maps.Clone(w), rules: rules}
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

// scored returns the scoring by a distribution, which remembers nothing yet.
func (m *distribution) scored() *fragmentation {
	f := &fragmentation{distribution: m}
	f.forget()
	return f
}

// copied is what a copy of the view scores by; nil for nil.
func (f *fragmentation) copied() *fragmentation {
	if f == nil {
		return nil
	}
	c := f.scored()
	c.prices = f.prices
	return c
}

// forget drops what is remembered.
func (f *fragmentation) forget() {
	f.trials, f.scores, f.remembered = map[string]map[*capacity]*nodePacking{}, map[*capacity]int64{}, 0
}

// trialsOf returns the trials of a single member with the request.
func (f *fragmentation) trialsOf(r *Request) map[*capacity]*nodePacking {
	if f.remembered >= maxRemembered {
		f.forget()
	}
	key := fmt.Sprint(*r)
	if f.trials[key] == nil {
		f.trials[key] = map[*capacity]*nodePacking{}
	}
	return f.trials[key]
}

// remember returns the trial on a state, made before or now.
func (f *fragmentation) remember(trials map[*capacity]*nodePacking, state *capacity, try func() *nodePacking) *nodePacking {
	t := trials[state]
	if t == nil {
		t = try()
		trials[state] = t
		f.remembered++
	}
	return t
}

// score is fragments of an interned state, remembered.
func (f *fragmentation) score(state *capacity) int64 {
	score, ok := f.scores[state]
	if !ok {
		score = f.fragments(state)
		if f.remembered >= maxRemembered {
			f.forget()
		}
		f.scores[state] = score
		f.remembered++
	}
	return score
}

// fragments is how badly the idle part of the node's GPUs suits the distribution,
// summed over its members, in thousandths of GPUs times 1+unusableWeight and priceUnit. For
// each request it counts what the request cannot use at all now (the paper's fragment), and
// what would stay idle if the node were filled with requests like it, CPU and memory included;
// the second term tells apart choices that are equal in the first.
func (f *fragmentation) fragments(c *capacity) int64 {
	idle := c.idle()
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range f.groups {
		g := &f.groups[i]
		fit := f.fit(g, c, c.eligible)
		price := f.price(g.rule)
		for _, a := range g.amounts {
			unusable, slots := fit.small, fit.slots
			if !a.within(c) || slots == 0 {
				unusable = idle
			}
			if a.milliCPU > 0 {
				slots = min(slots, max(c.milliCPU, 0)/a.milliCPU)
			}
			if a.memoryMiB > 0 {
				slots = min(slots, max(c.memoryBytes>>20, 0)/a.memoryMiB)
			}
			total += a.members * price * (unusableWeight*unusable + idle - slots*fit.each)
		}
	}
	return total
}

// idle is the idle part of the node's GPUs in thousandths.
func (c *capacity) idle() int64 {
	sum := int64(c.whole) * gpuUnit
	for i, room := range c.shares {
		if c.sizes[i] > 0 {
			sum += room.memoryGiB * gpuUnit / c.sizes[i]
		}
	}
	return sum
}

// within reports whether a node has as much CPU and memory left.
func (a demandAmount) within(c *capacity) bool {
	return a.milliCPU <= c.milliCPU && a.memoryMiB<<20 <= c.memoryBytes
}

// fit is what the idle part of the GPUs of a node, which meets some rules about nodes, is worth
// for the requests of a group.
func (m *distribution) fit(g *demandGroup, c *capacity, eligible uint64) suitability {
	if g.rule >= 0 && eligible&(1<<g.rule) == 0 {
		return suitability{}
	}
	return c.suits(&g.Demand)
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
func (c *capacity) suits(d *Demand) suitability {
	switch {
	case d.Mode.whole():
		if c.mode != d.Mode {
			return suitability{}
		}
		return suitability{slots: int64(c.whole / d.GPUs), each: int64(d.GPUs) * gpuUnit}
	case d.Mode == ModeCoreMem && (c.mode != ModeCoreMem || c.memoryOnly > 0), d.Mode == ModeShare && c.withCore > 0:
		return suitability{}
	}
	var fit suitability
	var fitting, shares, used int64
	for i, room := range c.shares {
		n := int64(room.takes(d.share()))
		if c.sizes[i] == 0 {
			continue
		}
		if n == 0 {
			fit.small += room.memoryGiB * gpuUnit / c.sizes[i]
			continue
		}
		fitting++
		shares += n
		used += n * (d.MemoryGiB * gpuUnit / c.sizes[i])
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
func (f *fragmentation) ChooseGPU(c *capacity, fitting []int, share gpuCapacity) int {
	best, least := -1, int64(0)
	for n, i := range fitting {
		if slices.ContainsFunc(fitting[:n], func(j int) bool { return c.shares[j] == c.shares[i] && c.sizes[j] == c.sizes[i] }) {
			continue
		}
		before := c.shares[i]
		c.shares[i] = before.less(share)
		score := f.fragments(c)
		c.shares[i] = before
		if best < 0 || score < least || score == least && before.compare(c.shares[best]) < 0 {
			best, least = i, score
		}
	}
	return best
}

func (d *Demand) share() gpuCapacity {
	return gpuCapacity{memoryGiB: d.MemoryGiB, corePercent: d.CorePercent}
}

// usualPercent is the part of all members whose demands [Workload.usual] keeps in any case.
const usualPercent = 95

// usual is the workload without its rarest demands for one GPU or a part of one: what is asked for
// once in a while and fits nearly everywhere is no reason to keep room (Weng et al. score by the
// demands of 95 % of the members, too).
func (w Workload) usual() Workload {
	demands := slices.DeleteFunc(w.Demands(), func(d Demand) bool { return !d.Valid() })
	slices.SortStableFunc(demands, func(a, b Demand) int { return cmp.Compare(w[b], w[a]) })
	var all, members int64
	for _, d := range demands {
		all += w[d]
	}
	usual := Workload{}
	for _, d := range demands {
		if d.GPUs > 1 || members*100 < all*usualPercent {
			usual[d] = w[d]
			members += w[d]
		}
	}
	return usual
}
