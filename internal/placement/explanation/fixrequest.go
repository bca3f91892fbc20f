package explanation

import (
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// smallerRequests proposes the most CPU, memory and memory of shared GPUs per member with which
// the gang fits, where nodes have too little of that.
func (f *fixer) smallerRequests(reasons []placement.Reason) (list []placement.Fix) {
	short := func(code placement.Code) bool {
		return slices.ContainsFunc(reasons, func(r placement.Reason) bool { return r.Code == code })
	}
	if short(placement.NotEnoughCPU) {
		list = f.smaller(placement.FixCPU, "CPU", 100, func(r *placement.Request) *int64 { return &r.MilliCPU },
			func(n int64) string { return quota.Format("cpu", n) })
	}
	if short(placement.NotEnoughMemory) {
		list = append(list, f.smaller(placement.FixMemory, "memory", 1<<30, func(r *placement.Request) *int64 { return &r.MemoryBytes },
			memoryWords)...)
	}
	if short(placement.NotEnoughShare) {
		spread := f.Classes[f.next.class].Request.SpreadOver()
		list = append(list, f.smaller(placement.FixGPUMemory, "GPU memory", int64(spread), func(r *placement.Request) *int64 {
			if r.SpreadOver() != spread {
				return new(int64) // of other parts
			}
			return &r.MemoryGiB
		}, gibWords)...)
	}
	return list
}

// smaller proposes the largest multiple of step, of an amount that members like the next one
// ask for, with which the gang fits.
func (f *fixer) smaller(kind placement.FixKind, noun string, step int64, amount func(*placement.Request) *int64, words func(int64) string) []placement.Fix {
	now := *amount(f.Classes[f.next.class].Request)
	steps := (now - 1) / step
	to := func(less int) int64 { return (steps - int64(less)) * step }
	less := sort.Search(int(steps), func(less int) bool {
		return f.feasible(f.Cluster, f.Topology, f.Quota, f.changed(func(r *placement.Role) {
			if request := amount(&r.Request); *request == now {
				*request = to(less)
			}
		}))
	})
	if less >= int(steps) {
		return nil
	}
	return []placement.Fix{{Kind: kind, Target: f.roles(), From: strconv.FormatInt(now, 10), To: strconv.FormatInt(to(less), 10),
		Text: fmt.Sprintf("%s %s per member (now %s)", words(to(less)), noun, words(now))}}
}
