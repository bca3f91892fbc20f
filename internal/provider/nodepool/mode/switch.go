package mode

import "slices"

// Modes between which and others no label switches a node: it gets them only when it joins (Alibaba Cloud: "Allocate
// computing power by scheduling shared GPU").
var fixed = []string{"core_mem", "mig"}

// Replaces reports whether a node has to be replaced to get from one mode to another.
func Replaces(from, to string) bool {
	return from != to && (slices.Contains(fixed, from) || slices.Contains(fixed, to))
}
