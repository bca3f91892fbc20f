package nri

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
)

// edits are the edits of a CDI specification that have a counterpart here.
type edits struct {
	Env         []string `json:"env"`
	DeviceNodes []struct {
		Path     string `json:"path"`
		HostPath string `json:"hostPath"`
	} `json:"deviceNodes"`
	Mounts []struct {
		HostPath      string   `json:"hostPath"`
		ContainerPath string   `json:"containerPath"`
		Type          string   `json:"type"`
		Options       []string `json:"options"`
	} `json:"mounts"`
	Hooks []struct {
		Name    string   `json:"hookName"`
		Path    string   `json:"path"`
		Args    []string `json:"args"`
		Env     []string `json:"env"`
		Timeout *int     `json:"timeout"`
	} `json:"hooks"`
}

// adjustment is what the runtime is told for edits; what it cannot be told is an error. root is that of the
// folder dev of the node.
func adjustment(given cdi.Edits, root string) (*api.ContainerAdjustment, error) {
	text, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("encode edits of a container: %w", err)
	}
	var e edits
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("read edits of a container: %w", err)
	}
	for kind := range given {
		switch kind {
		case "env", "deviceNodes", "mounts", "hooks":
		default:
			return nil, fmt.Errorf("NRI has no counterpart of %s in the CDI specification of the driver", kind)
		}
	}
	change := &api.ContainerAdjustment{}
	env := map[string]string{} // of two entries of a name the later counts, and the runtime refuses both
	for _, entry := range e.Env {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		change.AddEnv(name, env[name])
	}
	for _, node := range e.DeviceNodes {
		if node.HostPath == "" {
			node.HostPath = node.Path
		}
		device, err := deviceAt(filepath.Join(root, node.HostPath))
		if err != nil {
			return nil, err
		}
		device.Path = node.Path
		change.AddDevice(device)
	}
	for _, m := range e.Mounts {
		if m.Type == "" {
			m.Type = "bind"
		}
		change.AddMount(&api.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: m.Type, Options: m.Options})
	}
	for _, h := range e.Hooks {
		hook := &api.Hook{Path: h.Path, Args: h.Args, Env: h.Env, Timeout: api.Int(h.Timeout)}
		hooks := &api.Hooks{}
		switch h.Name {
		case "prestart":
			hooks.Prestart = []*api.Hook{hook}
		case "createRuntime":
			hooks.CreateRuntime = []*api.Hook{hook}
		case "createContainer":
			hooks.CreateContainer = []*api.Hook{hook}
		case "startContainer":
			hooks.StartContainer = []*api.Hook{hook}
		case "poststart":
			hooks.Poststart = []*api.Hook{hook}
		case "poststop":
			hooks.Poststop = []*api.Hook{hook}
		default:
			return nil, fmt.Errorf("NRI has no hook %q, which is in the CDI specification of the driver", h.Name)
		}
		change.AddHooks(hooks)
	}
	return change, nil
}

// deviceAt is the device of the node at a path.
func deviceAt(path string) (*api.LinuxDevice, error) {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return nil, fmt.Errorf("look at device: %w", &os.PathError{Op: "stat", Path: path, Err: err})
	}
	device := &api.LinuxDevice{Type: "c", Major: int64(unix.Major(info.Rdev)), Minor: int64(unix.Minor(info.Rdev))}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
	case unix.S_IFBLK:
		device.Type = "b"
	default:
		return nil, fmt.Errorf("%s is no device", path)
	}
	mode := os.FileMode(info.Mode & 0o777)
	device.FileMode, device.Uid, device.Gid = api.FileMode(&mode), api.UInt32(&info.Uid), api.UInt32(&info.Gid)
	return device, nil
}
