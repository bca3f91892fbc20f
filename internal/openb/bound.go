package openb

import "math"

// Bound is the most, in percent of all GPUs, that any scheduler can have placed of pods, whichever
// of them it takes: a relaxation in which pods need nothing but GPUs, and each of several GPUs of a
// pod may be in another machine.
//
// Let pods have prices. What the placed pods ask for is the sum of their prices, which is at most
// that of all pods, and of what they ask for beyond their prices, which is on no GPU more than on one
// that is filled with the pods for which that is most. So both sums together are a bound, whatever
// the prices.
func (t *Trace) Bound(pods []Pod) float64 {
	return 100 * bound(t.Machines, pods) / float64(t.Capacity())
}

// gpuModel is how many GPUs there are of a model, and the kinds of shares that may be on it.
type gpuModel struct {
	gpus  float64
	kinds []int
}

// shareKind is the shares of one size of pods that may run on the same models.
type shareKind struct {
	Pod
	shares float64
}

// mostPatterns bounds how many ways to fill a GPU are looked at.
const mostPatterns = 5000

// bound is Bound in thousandths of GPUs: the linear program of cutting stock, solved by the simplex
// method with column generation (Gilmore and Gomory 1961). The dual values of a basis are prices, and
// the way to fill a GPU that is worth most by them enters next.
func bound(machines []Machine, pods []Pod) float64 {
	kinds, unit := kindsOf(pods), unitOf(pods)
	models := modelsOf(machines, kinds)
	var limits []float64 // how many shares there are of each kind, then how many GPUs of each model
	for _, k := range kinds {
		limits = append(limits, k.shares)
	}
	for _, m := range models {
		limits = append(limits, m.gpus)
	}
	lp := newSimplex(limits)
	least := math.Inf(1)
	for range mostPatterns {
		prices := lp.prices()
		total := 0.0
		var entering []float64
		value, gain := 0.0, 1e-6
		for i, price := range prices {
			if -price > gain {
				entering, value, gain = make([]float64, len(limits)), 0, -price
				entering[i] = 1
			}
			prices[i] = max(price, 0)
		}
		for i, k := range kinds {
			total += prices[i] * k.shares
		}
		for i, m := range models {
			pattern, asked, worth := m.fill(kinds, prices, unit)
			total += m.gpus * worth
			if at := len(kinds) + i; worth-prices[at] > gain {
				entering, value, gain = make([]float64, len(limits)), asked, worth-prices[at]
				copy(entering, pattern)
				entering[at] = 1
			}
		}
		least = min(least, total)
		if entering == nil || !lp.enter(entering, value) {
			break
		}
	}
	return least
}

// fill fills a GPU of the model with what is worth most beyond its price: how many shares of each
// kind, what they ask for, and what they are worth.
func (m *gpuModel) fill(kinds []shareKind, prices []float64, unit int64) (pattern []float64, asked, worth float64) {
	type filling struct {
		worth float64
		// last is the kind that was added last, -1 for none.
		last int
	}
	best := make([]filling, WholeGPU/unit+1) // by how much may be filled, in units
	for size := range best {
		best[size].last = -1
		if size > 0 {
			best[size].worth = best[size-1].worth
		}
		for _, i := range m.kinds {
			before := size - int(kinds[i].ShareMilli/unit)
			if before < 0 {
				continue
			}
			if w := best[before].worth + float64(kinds[i].ShareMilli) - prices[i]; w > best[size].worth {
				best[size] = filling{w, i}
			}
		}
	}
	pattern = make([]float64, len(kinds))
	for size := len(best) - 1; size > 0; {
		i := best[size].last
		if i < 0 {
			size--
			continue
		}
		pattern[i]++
		asked += float64(kinds[i].ShareMilli)
		size -= int(kinds[i].ShareMilli / unit)
	}
	return pattern, asked, best[len(best)-1].worth
}

// modelsOf are the models of the machines.
func modelsOf(machines []Machine, kinds []shareKind) (models []gpuModel) {
	at := map[string]int{}
	for _, machine := range machines {
		i, ok := at[machine.Model]
		if !ok {
			m := gpuModel{}
			for k := range kinds {
				if kinds[k].RunsOn(machine.Model) {
					m.kinds = append(m.kinds, k)
				}
			}
			i = len(models)
			at[machine.Model], models = i, append(models, m)
		}
		models[i].gpus += float64(machine.GPUs)
	}
	return models
}

// kindsOf are the kinds of the shares that pods ask for.
func kindsOf(pods []Pod) (kinds []shareKind) {
	at := map[Pod]int{}
	for _, p := range pods {
		if p.GPUMilli() == 0 {
			continue
		}
		key := Pod{ShareMilli: p.ShareMilli, Models: p.Models}
		i, ok := at[key]
		if !ok {
			i = len(kinds)
			at[key], kinds = i, append(kinds, shareKind{Pod: key})
		}
		kinds[i].shares += float64(p.GPUs)
	}
	return kinds
}

// unitOf is the biggest size of which a GPU and all shares are multiples.
func unitOf(pods []Pod) int64 {
	unit := int64(WholeGPU)
	for _, p := range pods {
		for share := p.ShareMilli; share > 0; {
			unit, share = share, unit%share
		}
	}
	return unit
}
