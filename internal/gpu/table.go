package gpu

import "fmt"

// maxExactCards is the largest number of cards for which every set is looked at.
const maxExactCards = 16

// Table answers questions about sets of cards of one machine from results that
// were computed once per wiring. A Table is immutable and safe for concurrent use;
// nodes with equal machines should share one.
//
// Up to 16 cards all answers are exact: the table holds one for every set of free
// cards and every k. It takes less than a millisecond and 12 KiB for 8 cards, about
// 0.2 s and 5.4 MiB for 16. Of more cards only sets that are close together are
// offered, and a set's ring counts as its slowest pair: exact where links form a
// tree, as on a switched NVLink fabric or below PCIe bridges and sockets, and a
// lower bound elsewhere.
type Table struct {
	machine Machine
	healthy Set
	sets    chooser
}

// chooser is what a table needs to know of a machine's sets of cards. In every
// call 1 <= k <= free.Len().
type chooser interface {
	ring(s Set) Ring
	best(free Set, k int, nearNIC bool) Set
	worst(free Set, k int) Ring
}

// NewTable precomputes the table of a machine. It fails when [Machine.Validate] does.
func NewTable(m Machine) (*Table, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("new table: %w", err)
	}
	t := &Table{machine: m, healthy: m.Healthy()}
	if f := newFabric(m); f.cards <= maxExactCards {
		t.sets = newExact(m, f)
	} else {
		t.sets = newLinkage(m, f)
	}
	return t, nil
}

// Machine returns the machine that the table was made from.
func (t *Table) Machine() Machine { return t.machine }

// Healthy returns the cards that may be used.
func (t *Table) Healthy() Set { return t.healthy }

// Ring returns the best ring inside the set; the zero Ring for less than two cards
// of the machine.
func (t *Table) Ring(s Set) Ring { return t.sets.ring(s & Full(len(t.machine.Cards))) }

// Best returns the best set of k cards out of free: highest ring bandwidth, then
// what is left for the next job, then NUMA and NIC closeness, then lowest index.
// Cards that the machine calls unhealthy are not chosen. ok is false when k is
// negative or free has fewer than k such cards.
func (t *Table) Best(free Set, k int) (best Set, ok bool) { return t.choose(free, k, false) }

// BestNearNIC is [Table.Best] for a member of a gang that spans machines: closeness
// to a network device comes right after ring bandwidth.
func (t *Table) BestNearNIC(free Set, k int) (best Set, ok bool) { return t.choose(free, k, true) }

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

// Worst returns the lowest ring bandwidth over all sets of k cards out of free:
// what a job is guaranteed when somebody else picks the cards. It is the zero Ring
// when free has fewer than k healthy cards.
func (t *Table) Worst(free Set, k int) Ring {
	free &= t.healthy
	if k < 1 || k > free.Len() {
		return Ring{}
	}
	return t.sets.worst(free, k)
}
