package placement

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
)

// smallerRequests proposes the most CPU, memory and memory of shared GPUs per member with which
// the gang fits, where nodes have too little of that.
func (f *fixer) smallerRequests(reasons []Reason) (list []Fix) {
	short := func(code Code) bool {
		return slices.ContainsFunc(reasons, func(r Reason) bool { return r.Code == code })
	}
	if short(NotEnoughCPU) {
		list = f.smaller(FixCPU, "CPU", 100, func(r *Request) *int64 { return &r.MilliCPU },
			func(n int64) string { return fmt.Sprintf("%g", float64(n)/1000) })
	}
	if short(NotEnoughMemory) {
		list = append(list, f.smaller(FixMemory, "memory", 1<<30, func(r *Request) *int64 { return &r.MemoryBytes },
			memoryWords)...)
	}
	if short(NotEnoughShare) {
		spread := f.classes[f.next.class].request.spread()
		list = append(list, f.smaller(FixGPUMemory, "GPU memory", int64(spread), func(r *Request) *int64 {
			if r.spread() != spread {
				return new(int64) // of other parts
			}
			return &r.MemoryGiB
		}, gibWords)...)
	}
	return list
}

// smaller proposes the largest multiple of step, of an amount that members like the next one
// ask for, with which the gang fits.
func (f *fixer) smaller(kind FixKind, noun string, step int64, amount func(*Request) *int64, words func(int64) string) []Fix {
	now := *amount(f.classes[f.next.class].request)
	steps := (now - 1) / step
	to := func(less int) int64 { return (steps - int64(less)) * step }
	less := sort.Search(int(steps), func(less int) bool {
		return f.feasible(f.cluster, f.topology, f.quota, f.changed(func(r *Role) {
			if request := amount(&r.Request); *request == now {
				*request = to(less)
			}
		}))
	})
	if less >= int(steps) {
		return nil
	}
	return []Fix{{Kind: kind, Target: f.roles(), From: strconv.FormatInt(now, 10), To: strconv.FormatInt(to(less), 10),
		Text: fmt.Sprintf("%s %s per member (now %s)", words(to(less)), noun, words(now))}}
}
