package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// FieldPool is the key of a requirement on a node's pool. No label has such a key.
const FieldPool = "field:pool"

// mostEligible bounds the rules about nodes that a distribution tells apart, one bit each, and
// longestEligible the length of one.
const (
	mostEligible    = 64
	longestEligible = 300
)

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

// eligibleNodes reads what [Role.eligible] wrote; ok is false for anything else. Earlier versions
// wrote an empty value as nothing, also where it was the only one.
func eligibleNodes(text string) (alternatives [][]Requirement, ok bool) {
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

// eligibility numbers the rules about nodes of a workload: those of most members, if there are
// more than can be told apart.
func eligibility(w Workload) (number map[string]int, rules [][][]Requirement) {
	members := map[string]int64{}
	for d, n := range w {
		if d.Nodes != "" {
			members[d.Nodes] += n
		}
	}
	texts := slices.SortedFunc(maps.Keys(members), func(a, b string) int {
		return cmp.Or(cmp.Compare(members[b], members[a]), cmp.Compare(a, b))
	})
	number = map[string]int{}
	for _, text := range texts[:min(mostEligible, len(texts))] {
		if alternatives, ok := eligibleNodes(text); ok {
			number[text] = len(rules)
			rules = append(rules, alternatives)
		}
	}
	return number, rules
}

// priceUnit is the price of a GPU that every request may use, mostPrice the highest.
const (
	priceUnit = 1000
	mostPrice = 1000 * priceUnit
)

// price is what a fragment of a GPU counts for a request with a rule about nodes: the fewer GPUs
// there are on nodes that meet it, the more. A request that may use one GPU in ten counts ten
// times, so that others keep away from there as long as they have room elsewhere.
func (f *fragmentation) price(rule int) int64 {
	if rule < 0 || rule >= len(f.prices) {
		return priceUnit
	}
	return f.prices[rule]
}

// count sets the prices by the GPUs of the nodes.
func (f *fragmentation) count(nodes []*node) {
	gpus, all := make([]int64, len(f.rules)), int64(0)
	for _, n := range nodes {
		if n.GPUs == nil {
			continue
		}
		size := int64(len(n.GPUs.Machine().GPUs))
		all += size
		for i := range gpus {
			if n.eligible&(1<<i) != 0 {
				gpus[i] += size
			}
		}
	}
	prices := make([]int64, len(gpus))
	for i, eligible := range gpus {
		prices[i] = priceUnit
		if eligible > 0 {
			prices[i] = min(all*priceUnit/eligible, mostPrice)
		}
	}
	if !slices.Equal(prices, f.prices) {
		f.forget()
		f.prices = prices
	}
}

// eligible has bit i set when the i-th rule about nodes of the distribution is met.
func (m *distribution) eligible(n *Node) (met uint64) {
	for i, alternatives := range m.rules {
		if n.meetsOne(alternatives) {
			met |= 1 << i
		}
	}
	return met
}
