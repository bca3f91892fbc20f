package clusterstate

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
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

// delegate tells the view which resources are devices that others allocate.
func (s *State) delegate() Change {
	names := map[string]bool{}
	for _, class := range s.deviceClasses {
		for _, name := range class {
			names[name] = true
		}
	}
	s.View.SetDelegated(names)
	return Change{Freed: true}
}
