package clusterstate

import "github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"

// fences say why pods of gangs that have no node get none, by key.
type fences map[string]string

// SetFence keeps what has no node of a gang, by its key, from getting one, also of pods that are still to come, for a reason, until it
// is set to "".
func (s *State) SetFence(key, why string) Change {
	s.fences.set(key, why)
	s.touch(key)
	return Change{Gang: key}
}

// SetFence is [State.SetFence], for a cluster that was listed: the scheduler's own view has its fences.
func (s *Snapshot) SetFence(key, why string) { s.fences.set(key, why) }

func (f fences) set(key, why string) {
	if why == "" {
		delete(f, key)
	} else {
		f[key] = why
	}
}

// of is a gang behind its fence.
func (f fences) of(key string, state inventory.GangState, ok bool) (inventory.GangState, bool) {
	state.Fence(f[key])
	return state, ok
}

// status is the status of a gang behind its fence.
func (f fences) status(key string, status inventory.GangStatus, found inventory.MemberCounts) inventory.GangStatus {
	if why := f[key]; why != "" && found.Running < found.Present {
		status.MissingText = why
	}
	return status
}

// Placed counts the pods of a gang, by its key, that have a node, or are about to get one.
func (s *State) Placed(key string) (pods int) {
	for pod := range s.PodsOf(key) {
		if pod.Charged() {
			pods++
		}
	}
	return pods
}
