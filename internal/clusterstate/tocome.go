package clusterstate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// ToCome are the gangs of pods that are still to come, in their order.
type ToCome []GangToCome

// GangToCome is one of them.
type GangToCome struct {
	// Key is that of the gang ([inventory.PlanKey]).
	Key     string
	Members []inventory.Member
}

// NewToCome returns the gangs of pods that are still to come, with pods on their own that ask for GPUs.
func NewToCome(pods []*corev1.Pod) (gangs ToCome) {
	at := map[string]int{}
	for _, pod := range pods {
		key, ok := inventory.PlanKey(pod)
		if !ok {
			continue
		}
		i, known := at[key]
		if !known {
			i = len(gangs)
			at[key] = i
			gangs = append(gangs, GangToCome{Key: key})
		}
		gangs[i].Members = append(gangs[i].Members, inventory.MemberOf(pod))
	}
	return gangs
}

// Keys are those of the gangs.
func (t ToCome) Keys() []string {
	keys := make([]string, len(t))
	for i, gang := range t {
		keys[i] = gang.Key
	}
	return keys
}

// Count is how many pods a gang has once all are there, by its key.
func (t ToCome) Count(key string) (members int) {
	for _, gang := range t {
		if gang.Key == key {
			members += len(gang.Members)
		}
	}
	return members
}

// Asked is a gang that is still to come as the planner is asked for its place; why says why it cannot be.
func (s *State) Asked(gang GangToCome) (asked placement.Gang, why string) {
	state, ok := s.expected(gang.Key, gang.Members)
	switch {
	case !ok:
		return asked, "it has no pods"
	case state.MissingText != "":
		return asked, state.MissingText
	}
	return state.Gang, ""
}
