package gang

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
)

// workQueue collects what has changed until the worker gets to it, so that a burst of
// changes costs one look.
type workQueue struct {
	// ready receives when there is something to do.
	ready chan struct{}

	mu      sync.Mutex
	pending pendingWork
}

// pendingWork are what there is to do.
type pendingWork struct {
	// gangs have changed.
	gangs map[string]bool
	// freed means that there may be more room in the cluster.
	freed bool
	// rolledBack means that a pod has given back what it was about to be bound to.
	rolledBack bool
	// placed means that pods are bound that were not before; beside, that it is time to try
	// gangs again that may have to run near them.
	placed, beside bool
	// changed means that the cluster is not what it was, so that texts may not be true
	// any more; outdated, that it is time to look at them.
	changed, outdated bool
	// aged means that a gang has waited long enough for capacity to be reserved for it.
	aged bool
	// preemptors are gangs that may have a reservation which others have to leave.
	preemptors map[string]bool
}

func newWorkQueue() *workQueue {
	return &workQueue{ready: make(chan struct{}, 1), pending: newPendingWork()}
}

func newPendingWork() pendingWork {
	return pendingWork{gangs: map[string]bool{}, preemptors: map[string]bool{}}
}

// add notes a change. It does not block.
func (w *workQueue) add(change clusterstate.Change) {
	w.mu.Lock()
	for _, gang := range []string{change.Gang, change.Left} {
		if gang != "" {
			w.pending.gangs[gang] = true
		}
	}
	w.pending.freed = w.pending.freed || change.Freed
	w.pending.rolledBack = w.pending.rolledBack || change.RolledBack
	w.pending.placed = w.pending.placed || change.Placed
	w.mu.Unlock()
	signal(w.ready)
}

// observe notes a change of the cluster.
func (w *workQueue) observe(change clusterstate.Change) {
	if change == (clusterstate.Change{Lifted: true}) {
		return // by the plugin's own decision
	}
	if change != (clusterstate.Change{}) && change != (clusterstate.Change{Placed: true}) {
		w.mu.Lock()
		w.pending.changed = true
		w.mu.Unlock()
	}
	w.add(change)
}

// refresh notes that it is time to see whether what gangs are told is true.
func (w *workQueue) refresh() {
	w.mu.Lock()
	w.pending.outdated = true
	w.mu.Unlock()
	signal(w.ready)
}

// checkBeside notes that it is time to try gangs again that may have to run near pods which were placed.
func (w *workQueue) checkBeside() {
	w.mu.Lock()
	w.pending.beside = true
	w.mu.Unlock()
	signal(w.ready)
}

// age notes that a gang has waited long enough for capacity to be reserved for it.
func (w *workQueue) age() {
	w.mu.Lock()
	w.pending.aged = true
	w.mu.Unlock()
	signal(w.ready)
}

// preempt notes that others may have to leave the place that a gang holds.
func (w *workQueue) preempt(key string) {
	w.mu.Lock()
	w.pending.preemptors[key] = true
	w.mu.Unlock()
	signal(w.ready)
}

// take returns what there is to do and forgets it.
func (w *workQueue) take() pendingWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.pending
	w.pending = newPendingWork()
	return taken
}

// statusQueue collects gangs of which there may be something to write until the writer gets to
// it: what the API server must be told waits for it, what is decided does not.
type statusQueue struct {
	// ready receives when there is something to look at.
	ready chan struct{}

	mu      sync.Mutex
	pending map[string]map[types.UID]bool
}

func newStatusQueue() *statusQueue {
	return &statusQueue{ready: make(chan struct{}, 1), pending: map[string]map[types.UID]bool{}}
}

// add notes a gang, with pods on which the scheduler itself has just written something else.
func (n *statusQueue) add(key string, overwritten ...types.UID) {
	n.mu.Lock()
	if n.pending[key] == nil {
		n.pending[key] = map[types.UID]bool{}
	}
	for _, pod := range overwritten {
		n.pending[key][pod] = true
	}
	n.mu.Unlock()
	signal(n.ready)
}

// take returns the gangs and forgets them.
func (n *statusQueue) take() map[string]map[types.UID]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.pending
	n.pending = map[string]map[types.UID]bool{}
	return taken
}

// signal makes a channel that holds one value hold it.
func signal(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}
