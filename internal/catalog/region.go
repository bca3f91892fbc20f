package catalog

import "slices"

// Region is a region of Alibaba Cloud.
type Region struct {
	Name string `json:"name"`
	// CoreMem means that nodes in the region can have mode core_mem.
	CoreMem bool   `json:"core_mem"`
	Source  string `json:"source"`
	Date    string `json:"date"`
}

// Regions returns the known regions, sorted by name.
func Regions() []Region { return append([]Region(nil), load().regions...) }

// LookupRegion returns a region by its name, "cn-hangzhou".
func LookupRegion(name string) (Region, bool) {
	for _, r := range load().regions {
		if r.Name == name {
			return r, true
		}
	}
	return Region{}, false
}

// Gate is the lowest version of a component with which a feature works.
type Gate struct {
	// Feature is the name of a mode, or of a setting.
	Feature string `json:"feature"`
	// Component is what must have the version: "kubernetes", an add-on's name, or what only a node or an image can tell, so that
	// no plan holds anything against it: "nvidia-driver", "nccl", "cgpu".
	Component string `json:"component"`
	// Kubernetes limits the gate to clusters of that minor version, "" for all.
	Kubernetes string `json:"kubernetes"`
	// Required is set for an add-on without which the feature does not work.
	Required bool `json:"required"`
	// Minimum is the version as the component spells it, "" for any.
	Minimum string `json:"minimum"`
	Source  string `json:"source"`
	Date    string `json:"date"`
}

// Gates returns the gates of a feature, none for one that works everywhere.
func Gates(feature string) []Gate {
	return slices.DeleteFunc(slices.Clone(load().gates), func(g Gate) bool { return g.Feature != feature })
}
