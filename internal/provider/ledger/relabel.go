package ledger

import "github.com/gpuplan/terraform-provider-gpuplan/internal/placement"

// GiveMode records that the resource of that name gives a node that exists its mode, and returns the name of another one
// that does, "" for none.
func (l *Ledger) GiveMode(node, name string) (other string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by, given := l.modes[node]; given && by != name {
		return by
	}
	l.modes[node] = name
	return ""
}

// RelabelNodes records what the plan makes of nodes that exist and stay. It is told after [Ledger.Observe], and before the
// jobs are planned that are to run there.
func (l *Ledger) RelabelNodes(nodes []placement.Node) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		return nil
	}
	l.live.moved()
	for _, n := range nodes {
		for _, view := range l.live.views() {
			view.SetNode(n)
		}
	}
	for _, j := range l.jobs {
		j.settled = false
	}
	return l.check(nil, true)
}
