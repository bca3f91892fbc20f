package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// named is how many nodes a sentence names.
const named = 8

// impediments are the reasons of a verdict that have to do with what [Impeded] says.
var impediments = []placement.Code{
	placement.NotEnoughGPUs, placement.NotEnoughShare, placement.SickGPUs, placement.NodeUnschedulable, placement.Untolerated,
}

// Impeded says in a sentence, which starts with a space, what of the pools' nodes cannot be
// used and why, "" when nothing, or when a job does not fit on them for other reasons.
func Impeded(pools []Capacity, reasons []placement.Reason) string {
	relevant := func(r placement.Reason) bool { return slices.Contains(impediments, r.Code) }
	if len(reasons) > 0 && !slices.ContainsFunc(reasons, relevant) {
		return ""
	}
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
	case more == 1:
		parts = append(parts[:named], "1 more node is not free either")
	case more > 1:
		parts = append(parts[:named], fmt.Sprintf("%d more nodes are not free either", more))
	}
	return " Not all of the pools can be used: " + strings.Join(parts, "; ") + "."
}

// OtherMode says in a sentence, which starts with a space, how a job gets to GPUs that its pools
// offer in another mode only, "" when that is not what keeps it from them, or when the verdict
// has a fix.
func OtherMode(pools []Capacity, mode string, v placement.Verdict) string {
	wrong := func(r placement.Reason) bool { return r.Code == placement.WrongMode }
	if len(v.Reasons) == 0 || slices.ContainsFunc(v.Reasons, func(r placement.Reason) bool { return !wrong(r) }) || len(v.Fixes) > 0 {
		return ""
	}
	var offered []string
	for _, c := range pools {
		if c.GPUsPerNode > 0 {
			offered = append(offered, strconv.Quote(asked(c.Mode)))
		}
	}
	slices.Sort(offered)
	pool := mode
	if mode == sharedMode {
		pool = string(placement.ModeCoreMem)
	}
	text := fmt.Sprintf("a pool in mode %q.", pool)
	if len(offered) > 0 {
		text = fmt.Sprintf("mode %s in the job, or %s", strings.Join(slices.Compact(offered), " or "), text)
	}
	return " Use " + text
}

// sharedMode is the mode of jobs that ask for parts of GPUs, which several modes of pools offer.
const sharedMode = "shared"

// asked is how jobs ask for the GPUs of a pool in a mode.
func asked(mode string) string {
	switch placement.Mode(mode) {
	case placement.ModeDefault, placement.ModeTopology:
		return mode
	default:
		return sharedMode
	}
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
		case h.UnrecordedGPUs != nil && *h.UnrecordedGPUs == 1:
			parts = append(parts, "has 1 GPU used by "+who)
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
