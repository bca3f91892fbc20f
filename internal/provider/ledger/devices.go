package ledger

import (
	"maps"
	"slices"
)

// devices is what the walk knows of eRDMA devices: how pods get them, and the pools that will have nodes with such
// devices of which not all pin CPUs, by their names.
type devices struct {
	Devices
	unpinned map[string]DevicePool
}

// Devices is how pods get eRDMA devices once the plan is carried out.
type Devices struct {
	// Known means that the walk has come to the controller of the devices, and that it stays or comes.
	Known bool
	// ByNUMANode means that a pod gets one, by the NUMA node of its CPUs, which it has where nodes pin CPUs.
	ByNUMANode bool
	// Changes means that the plan installs the controller, or changes it.
	Changes bool
}

// DevicePool is a pool that will have nodes with eRDMA devices once the plan is carried out.
type DevicePool struct {
	Name string
	CPUs Pinning
	// Changes means that the plan creates the pool, or changes what decides about that.
	Changes bool
}

// Pinning is which nodes of a pool pin CPUs.
type Pinning int

// Of nodes that get another policy when they join, those that are there keep theirs until they are replaced.
const (
	Pinned Pinning = iota
	PinnedOnceReplaced
	Unpinned
)

// Refuse reports whether a plan refuses the pool beside the controller: what neither of them changes stays as it is.
func (d Devices) Refuse(p DevicePool) bool {
	return d.ByNUMANode && p.CPUs == Unpinned && (d.Changes || p.Changes)
}

// Warn reports whether a plan warns of the pool's nodes that are there, which Terraform may be about to replace.
func (d Devices) Warn(p DevicePool) bool { return d.ByNUMANode && p.CPUs == PinnedOnceReplaced }

// PlanDevices records how pods get eRDMA devices, and returns the pools of this walk so far that a plan refuses
// or warns of for that, sorted. Those that are visited later find out themselves.
func (l *Ledger) PlanDevices(d Devices) (refused, warned []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.Known = true
	l.devices.Devices = d
	for _, name := range slices.Sorted(maps.Keys(l.devices.unpinned)) {
		switch p := l.devices.unpinned[name]; {
		case d.Refuse(p):
			refused = append(refused, name)
		case d.Warn(p):
			warned = append(warned, name)
		}
	}
	return refused, warned
}

// PlanDevicePool records what becomes of a pool that stays or comes, and returns how pods get eRDMA devices, as far as the
// walk has come.
func (l *Ledger) PlanDevicePool(p DevicePool) Devices {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.devices.unpinned, p.Name) // Terraform may ask twice
	if p.CPUs != Pinned {
		l.devices.unpinned[p.Name] = p
	}
	return l.devices.Devices
}
