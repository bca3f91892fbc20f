package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// sickReasons is how many reasons a text names why GPUs are sick.
const sickReasons = 2

// sickness counts GPUs that must not be used, by reason.
type sickness map[string]int

// sickFor returns the GPUs of a node that would make room for a member beside the trial if they
// were healthy; nil when it lacks something else, or would have no room all the same.
func (p *planner) sickFor(n *node, t *nodePacking, r *Request, why rejection) sickness {
	if n.GPUs == nil || why.code != NotEnoughGPUs && why.code != NotEnoughShare {
		return nil
	}
	gpus, healthy := n.GPUs.Machine().GPUs, n.healthyGPUs()
	all := gpu.Full(len(gpus))
	if healthy == all {
		return nil
	}
	now, well, healed := n.capacity(), n.capacityOf(all), n.free.clone()
	healed.whole += well.whole - now.whole
	for i := range healed.shares {
		if !healthy.Has(i) {
			healed.shares[i] = well.shares[i]
		}
	}
	if _, why := p.room(healed, t).fitsWhy(r, 1); why.code == NotEnoughGPUs || why.code == NotEnoughShare {
		return nil
	}
	found := sickness{}
	for i, device := range gpus {
		if device.Unhealthy != "" && !n.used.owned(i) {
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
