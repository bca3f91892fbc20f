package cdi

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// specification is a file as others write it.
type specification struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []device `json:"devices"`
	Edits   lists    `json:"containerEdits"`
}

type device struct {
	Name  string `json:"name"`
	Edits lists  `json:"containerEdits"`
}

// lists are edits of which those that are no lists are left out.
type lists map[string]any

func (l lists) edits() Edits {
	edits := Edits{}
	for name, value := range l {
		if list, ok := value.([]any); ok {
			edits[name] = list
		}
	}
	return edits
}

// vendorKind is the kind of NVIDIA's own devices: it is called as the resource.
const vendorKind = contract.ResourceDefaultGPU

var gpuPath = regexp.MustCompile(`^/dev/nvidia[0-9]+$`)

// gpus are the GPUs of a device, by the paths of their device nodes: names of devices are numbers in one file, UUIDs
// in another, and one device is often all GPUs.
func (d device) gpus() (paths []string) {
	nodes, _ := d.Edits["deviceNodes"].([]any)
	for _, node := range nodes {
		fields, _ := node.(map[string]any)
		if path, _ := fields["path"].(string); gpuPath.MatchString(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Vendor finds what NVIDIA's own specification of a node does for GPUs, given by the paths of their device nodes: it has the
// files of the driver and the hooks that containers need beside the devices. version is what a specification
// needs that takes these edits over; ok is false where no file in the folders knows all the GPUs. Files that cannot be
// read as specifications are passed over, as runtimes do.
func Vendor(folders, paths []string) (edits Edits, version string, ok bool) {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder) // one that does not exist has none
		for _, entry := range entries {
			if !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(entry.Name())) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
			if err != nil {
				continue
			}
			var spec specification
			if err := yaml.Unmarshal(text, &spec); err != nil || spec.Kind != vendorKind {
				continue
			}
			if edits, ok := spec.of(paths); ok {
				return edits, spec.Version, true
			}
		}
	}
	return nil, "", false
}

func (s specification) of(paths []string) (Edits, bool) {
	edits := s.Edits.edits()
	for _, path := range paths {
		at := slices.IndexFunc(s.Devices, func(d device) bool { return slices.Equal(d.gpus(), []string{path}) })
		if at < 0 {
			return nil, false
		}
		edits.Add(s.Devices[at].Edits.edits())
	}
	return edits, true
}
