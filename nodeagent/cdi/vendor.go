package cdi

import (
	"cmp"
	"fmt"
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
// needs that takes these edits over. Without a specification of GPUs in the folders the edits are nil; it is an error that those which are there do
// not know all the GPUs. Files that cannot be read as specifications are passed over, as runtimes do.
func Vendor(folders, paths []string) (edits Edits, version string, err error) {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder) // one that does not exist has none
		for _, entry := range entries {
			if !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(entry.Name())) {
				continue
			}
			file := filepath.Join(folder, entry.Name())
			text, failed := os.ReadFile(file)
			if failed != nil {
				continue
			}
			var spec specification
			if err := yaml.Unmarshal(text, &spec); err != nil || spec.Kind != vendorKind || !slices.ContainsFunc(spec.Devices, device.one) {
				continue
			}
			edits, absent := spec.of(paths)
			if absent == "" {
				return edits, spec.Version, nil
			}
			err = cmp.Or(err, fmt.Errorf("the CDI specification %s has GPUs of this node, and not %s: make it again (nvidia-ctk cdi generate --output=%s)", file, absent, file))
		}
	}
	return nil, "", err
}

// one reports whether the device is one GPU.
func (d device) one() bool { return len(d.gpus()) == 1 }

// of are the edits for GPUs, or the first that the specification does not have.
func (s specification) of(paths []string) (edits Edits, absent string) {
	edits = s.Edits.edits()
	for _, path := range paths {
		at := slices.IndexFunc(s.Devices, func(d device) bool { return slices.Equal(d.gpus(), []string{path}) })
		if at < 0 {
			return nil, path
		}
		edits.Add(s.Devices[at].Edits.edits())
	}
	return edits, ""
}
