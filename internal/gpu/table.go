package gpu

import (
	"fmt"
	"slices"
)

// maxExactGPUs is the largest number of GPUs for which every set is looked at.
const maxExactGPUs = 16

// Table answers questions about sets of GPUs of one machine from results that
// were computed once per wiring. A Table is immutable and safe for concurrent use;
// nodes with equal machines should share one.
//
// Up to 16 GPUs all answers are exact: the table holds one for every set of free
// GPUs and every k. It takes less than a millisecond and 12 KiB for 8 GPUs, 0.2 s
// and 5.5 MiB for 16 (18 MiB while it is built). Of more GPUs only sets that are close
// together are offered, and a set's ring counts as its slowest pair: exact where links
// form a tree, as on a switched NVLink fabric or below PCIe bridges and sockets, and a
// lower bound elsewhere.
type Table struct {
	machine Machine
	healthy Set
	sets    chooser
	// wiring is the table that shared its sets ([Table.WithHealth]), so that it stays as long as they do.
	wiring *Table
}

// chooser is what a table needs to know of a machine's sets of GPUs. In every
// call 1 <= k <= free.Len().
type chooser interface {
	ring(s Set) Ring
	best(free Set, k int, nearNIC bool) Set
	worst(free Set, k int) Ring
	// beside is best for GPUs that make one ring with a set that is not free.
	beside(free Set, k int, seed Set, nearNIC bool) Set
}

// NewTable precomputes the table of a machine. It fails when [Machine.Validate] does.
func NewTable(m Machine) (*Table, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("new table: %w", err)
	}
	t := &Table{machine: m, healthy: m.Healthy()}
	if f := newFabric(m); f.gpus <= maxExactGPUs {
		t.sets = newExact(m, f)
	} else {
		t.sets = newLinkage(m, f)
	}
	return t, nil
}

// WithHealth returns the table of the same machine with other GPUs unhealthy, which shares what was
// computed of its wiring: unhealthy has a reason for each GPU, "" for a healthy one, by position.
func (t *Table) WithHealth(unhealthy []string) *Table {
	m := t.machine
	m.GPUs = slices.Clone(m.GPUs)
	for i := range m.GPUs {
		m.GPUs[i].Unhealthy = unhealthy[i]
	}
	return &Table{machine: m, healthy: m.Healthy(), sets: t.sets, wiring: t}
}

// Machine returns the machine that the table was made from.
func (t *Table) Machine() Machine { return t.machine }

// Healthy returns the GPUs that may be used.
func (t *Table) Healthy() Set { return t.healthy }

// Ring returns the best ring inside the set; the zero Ring for less than two GPUs
// of the machine.
func (t *Table) Ring(s Set) Ring { return t.sets.ring(s & Full(len(t.machine.GPUs))) }

// Best returns the best set of k GPUs out of free: highest ring bandwidth, then
// what is left for the next job, then NUMA and NIC closeness, then lowest index.
// GPUs that the machine calls unhealthy are not chosen. ok is false when k is
// negative or free has fewer than k such GPUs.
func (t *Table) Best(free Set, k int) (best Set, ok bool) { return t.choose(free, k, false) }

// BestNearNIC is [Table.Best] for a member of a gang that spans machines: closeness
// to a network device comes right after ring bandwidth.
func (t *Table) BestNearNIC(free Set, k int) (best Set, ok bool) { return t.choose(free, k, true) }

// BestBeside returns the best k GPUs out of free for a job that has other GPUs of the
// machine already: highest ring bandwidth of all its GPUs together, then among the new
// ones, then as [Table.Best], or [Table.BestNearNIC]. The seed is what the job has.
func (t *Table) BestBeside(free Set, k int, seed Set, nearNIC bool) (best Set, ok bool) {
	seed &= Full(len(t.machine.GPUs))
	free &= t.healthy &^ seed
	if seed == 0 || k < 1 || k >= free.Len() {
		return t.choose(free, k, nearNIC)
	}
	return t.sets.beside(free, k, seed, nearNIC), true
}

func (t *Table) choose(free Set, k int, nearNIC bool) (best Set, ok bool) {
	free &= t.healthy
	if k < 0 || k > free.Len() {
		return 0, false
	}
	if k == 0 {
		return 0, true
	}
	return t.sets.best(free, k, nearNIC), true
}

// Fabric returns the ring that the GPUs of the set have together with GPUs of other
// machines on the same NVLink switches, as in a rack of GB200: that of the GPU with the
// fewest links. It is the zero Ring for a machine without such switches.
//
// A rack is handled by its symmetry: behind switches that carry all links at once every
// order of GPUs is a ring, at the bandwidth of its slowest GPU, so that 72 GPUs need
// no table. That is exact while the switches do not block, and an upper bound when they
// have lost links of their own, which no node can see.
func (t *Table) Fabric(s Set) Ring {
	f := newFabric(t.machine)
	if !f.switched {
		return Ring{}
	}
	var slowest Ring
	for _, i := range (s & Full(f.gpus)).GPUs() {
		lanes := slices.Max(f.lanes[i])
		if r := (Ring{GBps: float64(lanes) * f.perLinkGBps, NVLinkRings: lanes}); slowest.GBps == 0 || r.GBps < slowest.GBps {
			slowest = r
		}
	}
	return slowest
}

// Worst returns the lowest ring bandwidth over all sets of k GPUs out of free:
// what a job is guaranteed when someone else picks the GPUs. It is the zero Ring
// when free has fewer than k healthy GPUs.
func (t *Table) Worst(free Set, k int) Ring {
	free &= t.healthy
	if k < 1 || k > free.Len() {
		return Ring{}
	}
	return t.sets.worst(free, k)
}
