package clusterstate

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// SetDeviceClass takes in a class of devices.
func (s *State) SetDeviceClass(class *resourcev1.DeviceClass) Change {
	names := inventory.ResourcesOf(class)
	if slices.Equal(s.deviceClasses[class.Name], names) {
		return Change{}
	}
	s.deviceClasses[class.Name] = names
	return s.delegate()
}

// RemoveDeviceClass takes out a class of devices.
func (s *State) RemoveDeviceClass(name string) Change {
	if s.deviceClasses[name] == nil {
		return Change{}
	}
	delete(s.deviceClasses, name)
	return s.delegate()
}

// DevicesUnknown says that nobody knows the classes of devices: any extended resource may be one but those that are said to be none.
func (s *State) DevicesUnknown(none map[string]bool) {
	s.devices = placement.Delegated{placement.Unknown: true}
	for name := range none {
		s.devices[name] = false
	}
	s.delegate()
}

// delegate tells the view which resources are devices that others allocate.
func (s *State) delegate() Change {
	names := maps.Clone(s.devices)
	if names == nil {
		names = placement.Delegated{}
	}
	for _, class := range s.deviceClasses {
		for _, name := range class {
			names[name] = true
		}
	}
	s.View.SetDelegated(names)
	return Change{Freed: true}
}
