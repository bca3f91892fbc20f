package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Demand is what fragmentation looks at in the request of a member.
type Demand struct {
	// Mode is [ModeCoreMem] for shared requests with cores, [ModeShare] for all others of
	// them: a node of any shared mode may serve these.
	Mode Mode
	// GPUs are the GPUs that the member is on, with the whole or a part of each.
	GPUs int
	// MemoryGiB and CorePercent are what a shared request takes of each of its GPUs, 100
	// percent being all cores of one.
	MemoryGiB, CorePercent int64
	MilliCPU, MemoryMiB    int64
	// Nodes says on which nodes the members may run, "" for any: alternatives separated by ";",
	// each of requirements separated by ",", as in "model In A10|T4,zone In a".
	Nodes string
}

// Demand returns what fragmentation looks at in a member of the role.
func (r *Role) Demand() Demand {
	d := r.Request.demand()
	d.Nodes = r.eligible()
	return d
}

func (r *Request) demand() Demand {
	d := Demand{Mode: r.Mode, MilliCPU: r.MilliCPU, MemoryMiB: r.MemoryBytes >> 20}
	switch {
	case r.Mode.Whole():
		d.GPUs = r.GPUs
	case r.Mode.Shared():
		share := r.PerGPU()
		d.Mode, d.GPUs, d.MemoryGiB, d.CorePercent = ModeShare, r.SpreadOver(), share.MemoryGiB, share.CorePercent
		if r.CorePercent > 0 {
			d.Mode = ModeCoreMem
		}
	}
	return d
}

// Valid reports whether the demand is one for GPUs that a node can serve.
func (d Demand) Valid() bool {
	if d.GPUs < 1 || d.GPUs > gpu.MaxGPUs || d.MilliCPU < 0 || d.MemoryMiB < 0 {
		return false
	}
	if _, ok := EligibleNodes(d.Nodes); d.Nodes != "" && !ok {
		return false
	}
	switch {
	case d.Mode.Whole():
		return d.MemoryGiB == 0 && d.CorePercent == 0
	case d.Mode == ModeShare:
		return d.MemoryGiB > 0 && d.CorePercent == 0
	case d.Mode == ModeCoreMem:
		return d.MemoryGiB > 0 && d.CorePercent > 0 && d.CorePercent <= FullCore
	}
	return false
}

// Compare orders demands: those that differ in CPU and memory only stand together.
func (d Demand) Compare(o Demand) int {
	return cmp.Or(cmp.Compare(d.Mode, o.Mode), cmp.Compare(d.GPUs, o.GPUs),
		cmp.Compare(d.MemoryGiB, o.MemoryGiB), cmp.Compare(d.CorePercent, o.CorePercent), cmp.Compare(d.Nodes, o.Nodes), cmp.Compare(d.MilliCPU, o.MilliCPU), cmp.Compare(d.MemoryMiB, o.MemoryMiB))
}

// FieldPool is the key of a requirement on a node's pool. No label has such a key.
const FieldPool = "field:pool"

// longestEligible bounds the length of what a demand says about nodes.
const longestEligible = 300

// emptyValue stands for a value that is empty, as that of a label often is.
const emptyValue = `""`

// noNode is met by none, since each has a pool, if only an empty one.
var noNode = []Requirement{{Key: FieldPool, Operator: "DoesNotExist"}}

// eligible writes down on which nodes the members of a role may run by selector, affinity and
// pools, the same for the same rules: alternatives separated by ";", each of requirements
// separated by ",", as in "model In A10|T4,zone In a". It is "" for any node, and where the rules
// cannot be written so, or are too long to be told apart from others.
func (r *Role) eligible() string {
	var common []Requirement
	for key, value := range r.NodeSelector {
		common = append(common, Requirement{Key: key, Operator: "In", Values: []string{value}})
	}
	if len(r.Pools) > 0 {
		common = append(common, Requirement{Key: FieldPool, Operator: "In", Values: r.Pools})
	}
	alternatives := [][]Requirement{common}
	if r.Affinity != nil {
		alternatives = nil
	}
	for _, all := range r.Affinity {
		if len(all) > 0 { // no requirement at all is met by no node
			alternatives = append(alternatives, slices.Concat(common, all))
		}
	}
	if len(alternatives) == 0 {
		alternatives = [][]Requirement{noNode}
	}
	var texts []string
	for _, all := range alternatives {
		var requirements []string
		for _, requirement := range all {
			if strings.ContainsAny(requirement.Key+strings.Join(requirement.Values, ""), ` ,;|"`) {
				return ""
			}
			requirements = append(requirements, requirement.text())
		}
		slices.Sort(requirements)
		texts = append(texts, strings.Join(slices.Compact(requirements), ","))
	}
	slices.Sort(texts)
	text := strings.Join(slices.Compact(texts), ";")
	if len(text) > longestEligible {
		return ""
	}
	return text
}

func (r Requirement) text() string {
	values := slices.Clone(r.Values)
	for i, value := range values {
		values[i] = cmp.Or(value, emptyValue)
	}
	slices.Sort(values)
	return strings.TrimSpace(r.Key + " " + r.Operator + " " + strings.Join(slices.Compact(values), "|"))
}

// EligibleNodes reads what [Role.eligible] wrote; ok is false for anything else. Earlier versions
// wrote an empty value as nothing, also where it was the only one.
func EligibleNodes(text string) (alternatives [][]Requirement, ok bool) {
	for alternative := range strings.SplitSeq(text, ";") {
		var all []Requirement
		for requirement := range strings.SplitSeq(alternative, ",") {
			words := strings.Split(requirement, " ")
			if len(words) < 2 || len(words) > 3 {
				return nil, false
			}
			r := Requirement{Key: words[0], Operator: words[1]}
			if len(words) == 3 {
				r.Values = strings.Split(strings.ReplaceAll(words[2], emptyValue, ""), "|")
			} else if r.Operator == "In" || r.Operator == "NotIn" { // Kubernetes has neither without values
				r.Values = []string{""}
			}
			all = append(all, r)
		}
		alternatives = append(alternatives, all)
	}
	return alternatives, true
}
