package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// named is how many nodes a sentence names.
const named = 8

// Impeded says in a sentence, which starts with a space, what of the pools' nodes cannot be
// used and why, "" when nothing.
func Impeded(pools []Capacity) string {
	var parts []string
	for _, c := range pools {
		for _, n := range c.Nodes {
			if text := n.Describe(); text != "" {
				parts = append(parts, "node "+n.Name+" "+text)
			}
		}
	}
	switch more := len(parts) - named; {
	case len(parts) == 0:
		return ""
	case more > 0:
		parts = append(parts[:named], fmt.Sprintf("%d more nodes are not free either", more))
	}
	return " Not all of the pools can be used: " + strings.Join(parts, "; ") + "."
}

// Describe says in words what keeps a node or parts of it from being used, "" when nothing.
func (n Node) Describe() string {
	var parts []string
	if value(n.Unschedulable) {
		parts = append(parts, "is cordoned")
	}
	for _, t := range n.Taints {
		parts = append(parts, "has the taint "+t)
	}
	for _, index := range slices.SortedFunc(maps.Keys(n.SickGPUs), byNumber) {
		parts = append(parts, fmt.Sprintf("has GPU %s sick (%s)", index, n.SickGPUs[index]))
	}
	for _, h := range n.Held {
		who := "others"
		if h.Job != nil {
			who = *h.Job
		}
		switch {
		case h.GPUs != nil:
			parts = append(parts, fmt.Sprintf("has GPU %s used by %s", *h.GPUs, who))
		case h.UnrecordedGPUs != nil:
			parts = append(parts, fmt.Sprintf("has %d GPUs used by %s", *h.UnrecordedGPUs, who))
		case len(h.Shares) > 0:
			parts = append(parts, "has parts of GPUs used by "+who)
		}
	}
	return strings.Join(parts, ", ")
}

func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
}
