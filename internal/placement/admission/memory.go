package admission

import "github.com/gpuplan/terraform-provider-gpuplan/internal/placement"

// maxAdmissions bounds the sets of rules that a view remembers.
const maxAdmissions = 64

// Memory remembers which nodes of a view meet which rules: gangs of one kind come
// again and again, and nodes seldom change. Rules that exclude nodes by name are
// remembered without them.
type Memory struct {
	// Nodes is how many nodes are numbered.
	Nodes int
	known []Known
}

// Known is what is known of one set of rules.
type Known struct {
	rules Rules
	// met is, by the node's number, 0 for not looked at yet, else admitted or refused.
	met []uint8
}

const (
	admitted = 1
	rejected = 2
)

// Of returns the memory of the rules, but for the nodes that they exclude by name.
func (a *Memory) Of(r *Rules) *Known {
	for i := range a.known {
		if a.known[i].rules.equalBut(r) {
			return &a.known[i]
		}
	}
	if len(a.known) == maxAdmissions {
		a.known = nil
	}
	known := Known{rules: r.clone(), met: make([]uint8, a.Nodes+1)}
	known.rules.Limits, known.rules.limitedOnly = nil, false
	a.known = append(a.known, known)
	return &a.known[len(a.known)-1]
}

// Admits reports whether a node with a number, 0 for none, meets the rules.
func (a *Known) Admits(number int32, n *placement.Node) bool {
	if number > 0 && a.met[number] > 0 {
		return a.met[number] == admitted
	}
	why, _ := a.rules.Rejects(n)
	if number > 0 {
		a.met[number] = rejected
		if why.Code == "" {
			a.met[number] = admitted
		}
	}
	return why.Code == ""
}
