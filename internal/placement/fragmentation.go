package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Workload is the mix of requests that arrive, learnt from arrivals. With it the planner
// follows fragmentation gradient descent (Weng et al., "Beware of Fragmentation:
// Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
// ATC'23): a GPU's idle part is a fragment for a request that the node cannot serve,
// or that the GPU is too small for; a member goes to the node and GPU where the
// expected fragments, over the mix, grow least. Beyond the paper, what stays idle when
// a node is filled with one kind of request counts too, with a smaller weight.
//
// The expectation uses counts of requests and thousandths of GPUs, so that it is
// exact and equal on every machine. It is renewed when the number of arrivals has
// grown by a quarter, in between nodes keep their scores: one placement re-scores
// one node. A Mix is not safe for concurrent use.
type Workload struct {
	// gbpsPerGPU is what Trade sets.
	gbpsPerGPU float64
	seen       map[demand]int64
	arrivals   int64
	// weighed is the number of arrivals in groups.
	weighed int64
	groups  []demandGroup
	// memory holds the trials of single members by request and state; trials counts them.
	memory map[string]map[*capacity]*nodePacking
	trials int
	scores map[*capacity]int64
}

// demand is what fragmentation looks at in a request.
type demand struct {
	mode     Mode
	gpus     int
	share    gpuCapacity
	milliCPU int64
}

// demandGroup holds the requests that differ in CPU only.
type demandGroup struct {
	demand
	// milliCPU are the distinct amounts, ascending; arrivals[i] is how many requests
	// ask for milliCPU[i] or less.
	milliCPU []int64
	arrivals []int64
}

// maxMemory bounds the remembered trials and scores.
const maxMemory = 1 << 19

// gpuUnit is what one idle GPU counts for.
const gpuUnit = 1000

// unusableWeight is how much more an idle part counts that a request cannot use at
// all than one that would stay idle if the node were filled with the request.
const unusableWeight = 8

// NewWorkload returns a mix without arrivals.
func NewWorkload() *Workload {
	m := &Workload{seen: map[demand]int64{}}
	m.forget()
	return m
}

// Trade sets the ring bandwidth in GB/s that is given up to save one expected GPU of
// fragments. At 0, the default, the ring comes first and fragmentation decides between
// equal rings.
func (m *Workload) Trade(gbpsPerGPU float64) {
	m.gbpsPerGPU = gbpsPerGPU
	m.forget()
}

// Observe counts the members of a gang that arrived; a gang counts once, however
// often it is planned.
func (m *Workload) Observe(g Gang) {
	for i := range g.Roles {
		r := &g.Roles[i].Request
		d := demand{mode: r.Mode, milliCPU: r.MilliCPU}
		switch {
		case r.Mode.whole():
			d.gpus = r.GPUs
		case r.Mode.shared():
			d.gpus, d.share = r.spread(), r.perGPU()
			d.mode = ModeShare
			if r.CorePercent > 0 {
				d.mode = ModeCoreMem
			}
		}
		n := int64(len(g.Roles[i].Members))
		m.seen[d] += n
		m.arrivals += n
	}
	if m.arrivals > m.weighed+m.weighed/4 {
		m.weigh()
	}
}

// weigh groups the requests seen so far and forgets all scores.
func (m *Workload) weigh() {
	m.weighed = m.arrivals
	m.groups = nil
	m.forget()
	for _, d := range slices.SortedFunc(maps.Keys(m.seen), compareDemand) {
		group := d
		group.milliCPU = 0
		last := len(m.groups) - 1
		if last < 0 || m.groups[last].demand != group {
			m.groups = append(m.groups, demandGroup{demand: group})
			last++
		}
		g := &m.groups[last]
		before := int64(0)
		if n := len(g.arrivals); n > 0 {
			before = g.arrivals[n-1]
		}
		g.milliCPU = append(g.milliCPU, d.milliCPU)
		g.arrivals = append(g.arrivals, before+m.seen[d])
	}
}

func compareDemand(a, b demand) int {
	return cmp.Or(cmp.Compare(a.mode, b.mode), cmp.Compare(a.gpus, b.gpus),
		a.share.compare(b.share), cmp.Compare(a.milliCPU, b.milliCPU))
}

func (m *Workload) forget() {
	m.memory, m.trials = map[string]map[*capacity]*nodePacking{}, 0
	m.scores = map[*capacity]int64{}
}

// memories returns the trials of a single member with the request.
func (m *Workload) memories(r *Request) map[*capacity]*nodePacking {
	if m.trials >= maxMemory {
		m.forget()
	}
	key := fmt.Sprint(*r)
	if m.memory[key] == nil {
		m.memory[key] = map[*capacity]*nodePacking{}
	}
	return m.memory[key]
}

// remember returns the trial on a state, made before or now.
func (m *Workload) remember(memories map[*capacity]*nodePacking, state *capacity, try func() *nodePacking) *nodePacking {
	t := memories[state]
	if t == nil {
		t = try()
		memories[state] = t
		m.trials++
	}
	return t
}

// score is fragments of an interned state, remembered.
func (m *Workload) score(state *capacity) int64 {
	f, ok := m.scores[state]
	if !ok {
		f = m.fragments(state)
		m.scores[state] = f
	}
	return f
}

// fragments is how badly the idle part of the node's GPUs suits the mix, summed over
// the weighed arrivals, in thousandths of GPUs times 1+unusableWeight. For each request
// it counts what the request cannot use at all now (the paper's fragment), and what
// would stay idle if the node were filled with requests like it, CPU included; the
// second term tells apart choices that are equal in the first.
func (m *Workload) fragments(c *capacity) int64 {
	idle := c.idle()
	if idle == 0 {
		return 0
	}
	var total int64
	for i := range m.groups {
		g := &m.groups[i]
		fit := c.suits(&g.demand)
		var before int64
		for j, milliCPU := range g.milliCPU {
			unusable, slots := fit.small, fit.slots
			if milliCPU > c.milliCPU || slots == 0 {
				unusable = idle
			}
			if milliCPU > 0 {
				slots = min(slots, max(c.milliCPU, 0)/milliCPU)
			}
			total += (g.arrivals[j] - before) * (unusableWeight*unusable + idle - slots*fit.each)
			before = g.arrivals[j]
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

// suitability is what the idle part of a node's GPUs is worth for a demand.
type suitability struct {
	// small is the idle part of GPUs that are too small for one share.
	small int64
	// slots is how many such requests fit by GPUs, each what one of them uses.
	slots, each int64
}

// suits returns the suitability for a demand; amounts are in thousandths of GPUs. A
// demand without GPUs uses none.
func (c *capacity) suits(d *demand) suitability {
	switch {
	case d.gpus == 0:
		return suitability{}
	case d.mode.whole():
		if c.mode != d.mode {
			return suitability{}
		}
		return suitability{slots: int64(c.whole / d.gpus), each: int64(d.gpus) * gpuUnit}
	case d.mode == ModeCoreMem && (c.mode != ModeCoreMem || c.memoryOnly > 0), d.mode == ModeShare && c.withCore > 0:
		return suitability{}
	}
	var fit suitability
	var fitting, shares, used int64
	for i, room := range c.shares {
		n := int64(room.takes(d.share))
		if c.sizes[i] == 0 {
			continue
		}
		if n == 0 {
			fit.small += room.memoryGiB * gpuUnit / c.sizes[i]
			continue
		}
		fitting++
		shares += n
		used += n * (d.share.memoryGiB * gpuUnit / c.sizes[i])
	}
	if shares == 0 {
		return fit
	}
	fit.slots = shares
	if d.gpus > 1 {
		fit.slots = fitting / int64(d.gpus)
	}
	fit.each = int64(d.gpus) * used / shares
	return fit
}

// leastFragmenting returns the GPU among the fitting ones on which a share fragments
// the node least; of equal ones the tightest, then the first.
func (m *Workload) leastFragmenting(c *capacity, fitting []int, share gpuCapacity) int {
	best, least := -1, int64(0)
	for n, i := range fitting {
		if slices.ContainsFunc(fitting[:n], func(j int) bool { return c.shares[j] == c.shares[i] && c.sizes[j] == c.sizes[i] }) {
			continue
		}
		before := c.shares[i]
		c.shares[i] = before.less(share)
		f := m.fragments(c)
		c.shares[i] = before
		if best < 0 || f < least || f == least && before.compare(c.shares[best]) < 0 {
			best, least = i, f
		}
	}
	return best
}

// value is the bandwidth of a ring in GB/s less what the fragments count for. A nil
// mix has no fragments.
func (m *Workload) value(r gpu.Ring, fragments int64) float64 {
	if m == nil || m.gbpsPerGPU == 0 || m.weighed == 0 {
		return r.GBps
	}
	gpus := float64(fragments) / float64(m.weighed*gpuUnit*unusableWeight)
	return r.GBps - float64(m.gbpsPerGPU*gpus)
}
