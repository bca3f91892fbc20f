package placement

import "github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"

// nodePacking is how many members of each class a node of the key can take out of those
// that remain, and what that gives.
type nodePacking struct {
	take []int
	// order is the order in which the classes take.
	order   []int
	members int
	gpus    int
	ring    gpu.Ring
	left    int64
	// fragments is how much the members fragment the node, in the unit of [distribution.fragments].
	fragments int64
}

// add counts n more members of a class with a request.
func (t *nodePacking) add(class, n int, r *Request) {
	t.take[class] += n
	t.members += n
	if r.Mode.whole() {
		t.gpus += n * r.GPUs
	}
}

// stillFits reports whether the trial still holds when fewer members remain: no class
// remains with fewer members than it takes. Packing is greedy in the order of the
// classes, so that it would take the same again.
func (t *nodePacking) stillFits(remaining []int) bool {
	for i, n := range t.take {
		if remaining[i] < n {
			return false
		}
	}
	return true
}
