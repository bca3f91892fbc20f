package ledger

import (
	"maps"
	"slices"
)

// devices is what the walk knows of eRDMA devices: whether pods get one by NUMA node, and the pools
// that come, or change, with such devices and without pinned CPUs, by which the NUMA node is known.
type devices struct {
	byNUMANode bool
	unpinned   map[string]bool
}

// DevicesByNUMANode records that pods get an eRDMA device by NUMA node, and returns the pools of this walk
// so far whose nodes cannot have that.
func (l *Ledger) DevicesByNUMANode() (pools []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices.byNUMANode = true
	return slices.Sorted(maps.Keys(l.devices.unpinned))
}

// UnpinnedPool records that a pool comes, or changes, whose nodes have eRDMA devices and do not pin CPUs, and
// reports whether pods get such devices by NUMA node, as far as the walk has come.
func (l *Ledger) UnpinnedPool(name string) (refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices.unpinned[name] = true
	return l.devices.byNUMANode
}
