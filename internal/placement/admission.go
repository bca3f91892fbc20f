package placement

// maxAdmissions bounds the sets of rules that a view remembers.
const maxAdmissions = 64

// admissions remembers which nodes of a view meet which rules: gangs of one kind come
// again and again, and nodes seldom change. Rules that exclude nodes by name are
// remembered without them.
type admissions struct {
	// nodes is how many nodes are numbered.
	nodes int
	known []admission
}

// admission is what is known of one set of rules.
type admission struct {
	rules rules
	// met is, by the node's number, 0 for not looked at yet, else admitted or refused.
	met []uint8
}

const (
	admitted = 1
	rejected = 2
)

// of returns the memory of the rules, but for the nodes that they exclude by name.
func (a *admissions) of(r *rules) *admission {
	for i := range a.known {
		if a.known[i].rules.equalBut(r) {
			return &a.known[i]
		}
	}
	if len(a.known) == maxAdmissions {
		a.known = nil
	}
	known := admission{rules: r.clone(), met: make([]uint8, a.nodes+1)}
	known.rules.limits = nil
	a.known = append(a.known, known)
	return &a.known[len(a.known)-1]
}

// admits reports whether a node with a number, 0 for none, meets the rules.
func (a *admission) admits(number int32, n *Node) bool {
	if number > 0 && a.met[number] > 0 {
		return a.met[number] == admitted
	}
	why, _ := a.rules.rejects(n)
	if number > 0 {
		a.met[number] = rejected
		if why.code == "" {
			a.met[number] = admitted
		}
	}
	return why.code == ""
}
