package explanation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
)

// sickReasons is how many reasons a text names why GPUs are sick.
const sickReasons = 2

// sickness counts GPUs that must not be used, by reason.
type sickness map[string]int

// sickFor returns the GPUs of a node that would make room for a member beside the trial if they
// were healthy; nil when it lacks something else, or would have no room all the same.
func sickFor(p *packing.Packer, n *capacity.Node, t *capacity.Packing, r *placement.Request, why placement.Rejection) sickness {
	if n.GPUs == nil || why.Code != placement.NotEnoughGPUs && why.Code != placement.NotEnoughShare {
		return nil
	}
	gpus, healthy := n.GPUs.Machine().GPUs, n.HealthyGPUs()
	all := gpu.Full(len(gpus))
	if healthy == all {
		return nil
	}
	now, well, healed := n.Capacity(), n.CapacityOf(all), n.Free.Clone()
	healed.Whole += well.Whole - now.Whole
	for i := range healed.Shares {
		if !healthy.Has(i) {
			healed.Shares[i] = well.Shares[i]
		}
	}
	if _, why := p.Room(healed, t).FitsWhy(r, 1); why.Code == placement.NotEnoughGPUs || why.Code == placement.NotEnoughShare {
		return nil
	}
	found := sickness{}
	for i, device := range gpus {
		if device.Unhealthy != "" && !n.Used.Owned(i) {
			found[device.Unhealthy]++
		}
	}
	return found
}

// with adds what is sick elsewhere.
func (s sickness) with(others sickness) sickness {
	for reason, n := range others {
		s[reason] += n
	}
	return s
}

// String says "3 that are sick (XID 79)", the most common reasons first, "" of none.
func (s sickness) String() string {
	if len(s) == 0 {
		return ""
	}
	reasons := slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(s[b], s[a]), cmp.Compare(a, b)) })
	sum := 0
	for _, n := range s {
		sum += n
	}
	if len(reasons) > sickReasons {
		reasons = append(reasons[:sickReasons], "others")
	}
	are := "are"
	if sum == 1 {
		are = "is"
	}
	return fmt.Sprintf("%d that %s sick (%s)", sum, are, strings.Join(reasons, "; "))
}
