package capacity

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Packing is how many members of each class of a gang a node takes, and what that gives.
type Packing struct {
	// Take counts the members of each class, Members those of all of them.
	Take []int
	// Order is the order in which the classes take.
	Order   []int
	Members int
	GPUs    int
	Ring    gpu.Ring
	Left    int64
	// Fragments is how much the members fragment the node, in the unit of package fragmentation.
	Fragments int64
}

// Add counts n more members of a class with a request.
func (t *Packing) Add(class, n int, r *placement.Request) {
	t.Take[class] += n
	t.Members += n
	if r.Mode.Whole() {
		t.GPUs += n * r.GPUs
	}
}

// StillFits reports whether the packing still holds when fewer members remain: no class
// remains with fewer members than it takes. Packing is greedy in the order of the
// classes, so that it would take the same again.
func (t *Packing) StillFits(remaining []int) bool {
	for i, n := range t.Take {
		if remaining[i] < n {
			return false
		}
	}
	return true
}
