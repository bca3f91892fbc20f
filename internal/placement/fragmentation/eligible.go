package fragmentation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// mostEligible bounds the rules about nodes that a distribution tells apart, one bit each.
const mostEligible = 64

// eligibility numbers the rules about nodes of a workload: those of most members, if there are
// more than can be told apart.
func eligibility(w placement.Workload) (number map[string]int, rules [][][]placement.Requirement) {
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
		if alternatives, ok := placement.EligibleNodes(text); ok {
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
func (f *Scorer) price(rule int) int64 {
	if rule < 0 || rule >= len(f.Prices) {
		return priceUnit
	}
	return f.Prices[rule]
}

// SetPrices sets the prices by the GPUs of the nodes.
func (f *Scorer) SetPrices(nodes []*capacity.Node) {
	gpus, all := make([]int64, len(f.rules)), int64(0)
	for _, n := range nodes {
		if n.GPUs == nil {
			continue
		}
		size := int64(len(n.GPUs.Machine().GPUs))
		all += size
		for i := range gpus {
			if n.Eligible&(1<<i) != 0 {
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
	if !slices.Equal(prices, f.Prices) {
		f.forget()
		f.Prices = prices
	}
}

// Eligible has bit i set when the i-th rule about nodes of the distribution is met.
func (m *Distribution) Eligible(n *placement.Node) (met uint64) {
	for i, alternatives := range m.rules {
		if n.MeetsOne(alternatives) {
			met |= 1 << i
		}
	}
	return met
}
