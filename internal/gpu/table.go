package gpu

// Ring is the best collective ring that NCCL could build inside a set of cards.
type Ring struct {
	// GBps is the bandwidth in GB/s, one direction: edge-disjoint NVLink rings ×
	// bandwidth of one link, or the slowest hop of the best PCIe ring. For one
	// card it is 0: there is no ring.
	GBps float64
	// NVLinkRings counts the edge-disjoint NVLink rings; 0 when the ring runs over PCIe.
	NVLinkRings int
}

// Table answers questions about sets of cards of one machine from results that
// were computed once per wiring. A Table is immutable and safe for concurrent use;
// nodes with equal machines should share one.
type Table struct {
	machine Machine
}

// NewTable precomputes the table of a machine. It fails when a matrix is not
// square, or the machine has more than 64 cards.
func NewTable(m Machine) (*Table, error) { panic("to be written") }

// Machine returns the machine that the table was made from.
func (t *Table) Machine() Machine { return t.machine }

// Ring returns the best ring inside the set.
func (t *Table) Ring(s Set) Ring { panic("to be written") }

// Best returns the best set of k cards out of free: highest ring bandwidth, then
// what is left for the next job, then NUMA and NIC closeness, then lowest index.
// ok is false when free has fewer than k cards.
func (t *Table) Best(free Set, k int) (best Set, ok bool) { panic("to be written") }

// Worst returns the lowest ring bandwidth over all sets of k cards out of free:
// what a job is guaranteed when somebody else picks the cards.
func (t *Table) Worst(free Set, k int) Ring { panic("to be written") }

// Carve splits a set into members of the given sizes (Σ sizes = s.Len()), in order,
// so that each member's own cards have the best ring among themselves.
func (t *Table) Carve(s Set, sizes []int) []Set { panic("to be written") }
