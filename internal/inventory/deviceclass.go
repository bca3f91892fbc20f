package inventory

import resourcev1 "k8s.io/api/resource/v1"

// ResourcesOf are the extended resources by which pods ask for devices of a class: on nodes that have none of them
// themselves, kube-scheduler's plugin for devices allocates these, and no amount of the node limits them.
func ResourcesOf(class *resourcev1.DeviceClass) []string {
	names := []string{resourcev1.ResourceDeviceClassPrefix + class.Name}
	if name := class.Spec.ExtendedResourceName; name != nil && *name != "" {
		names = append(names, *name)
	}
	return names
}
