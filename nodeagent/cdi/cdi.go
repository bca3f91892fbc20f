// Package cdi writes specifications of the Container Device Interface, by which a container runtime is told
// the GPUs of one container: a file each, with one device. Version 0.3.0 of the interface is enough for what is
// written here.
package cdi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const leastVersion = "0.3.0"

// Edits are the containerEdits of a specification by their names (env, deviceNodes, mounts, hooks, …): all of
// them are lists, and edits of several origins add up.
type Edits map[string][]any

// Add adds other edits behind these.
func (e Edits) Add(other Edits) {
	for name, list := range other {
		e[name] = append(e[name], list...)
	}
}

// Env adds "NAME=value" to the environment.
func (e Edits) Env(entries ...string) {
	for _, entry := range entries {
		e["env"] = append(e["env"], entry)
	}
}

// DeviceNode adds a device of the node, at the same path.
func (e Edits) DeviceNode(path string) {
	e["deviceNodes"] = append(e["deviceNodes"], map[string]any{"path": path})
}

// Mount adds a bind mount of a path of the node.
func (e Edits) Mount(hostPath, containerPath string, options []string) {
	e["mounts"] = append(e["mounts"], map[string]any{"hostPath": hostPath, "containerPath": containerPath, "options": options})
}

// PendingPath is where the edits of [Pending] mount what does not exist.
const PendingPath = "/run/gpuplan/pending"

// Pending are the edits of a device of which nobody knows the GPUs yet: the container does not start with them, unless
// whoever learns what they are takes the mount at [PendingPath] away. The missing path is what the pod's events then name.
func Pending() Edits {
	edits := Edits{}
	edits.Mount(PendingPath+"/the-node-agent-has-not-told-the-GPUs", PendingPath, []string{"bind", "ro"})
	return edits
}

// Name makes the name of a CDI device from the devices of a resource that the kubelet has given a container: no two
// containers that run at the same time have one in common.
func Name(resource string, ids []string) string {
	sum := sha256.Sum256([]byte(resource + "\n" + strings.Join(slices.Sorted(slices.Values(ids)), "\n")))
	return "c" + hex.EncodeToString(sum[:12])
}

// Qualified is how the kubelet and the runtime call the device of a name.
func Qualified(name string) string { return contract.CDIKind + "=" + name }

// Dir is a folder from which the container runtime reads specifications.
type Dir string

var prefix = strings.ReplaceAll(contract.CDIKind, "/", "-") + "_"

// path of the file: the name of the device, and whom it is for.
func (d Dir) path(name, owner string) string {
	return filepath.Join(string(d), prefix+name+"_"+owner+".json")
}

// Write writes the specification of a device for an owner, the UID of a pod, in place of one for another owner.
// It replaces the file in one step, so that a runtime never reads a part of it. version is that which the edits need,
// "" for the least.
func (d Dir) Write(name, owner, version string, edits Edits) error {
	if version == "" {
		version = leastVersion
	}
	text, err := json.MarshalIndent(map[string]any{
		"cdiVersion": version, "kind": contract.CDIKind,
		"devices": []any{map[string]any{"name": name, "containerEdits": edits}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode CDI specification: %w", err)
	}
	if err := d.remove(func(of, by string) bool { return of == name && by != owner }); err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("make the folder of CDI specifications: %w", err)
	}
	temporary, err := os.CreateTemp(string(d), "."+prefix)
	if err != nil {
		return fmt.Errorf("write CDI specification: %w", err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, writeErr := temporary.Write(text)
	if err := errors.Join(writeErr, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return fmt.Errorf("write CDI specification: %w", err)
	}
	if err := os.Rename(temporary.Name(), d.path(name, owner)); err != nil {
		return fmt.Errorf("write CDI specification: %w", err)
	}
	return nil
}

// Remove removes the specification of a device, whoever owns it.
func (d Dir) Remove(name string) error {
	return d.remove(func(of, _ string) bool { return of == name })
}

// Has reports whether there is a specification of a device for an owner.
func (d Dir) Has(name, owner string) bool {
	_, err := os.Stat(d.path(name, owner))
	return err == nil
}

// RemoveOwned removes the specifications of owners.
func (d Dir) RemoveOwned(gone func(owner string) bool) error {
	return d.remove(func(_, owner string) bool { return gone(owner) })
}

// RemoveDrafts removes what [Dir.Write] leaves when the program is killed meanwhile.
func (d Dir) RemoveDrafts() error {
	drafts, err := filepath.Glob(filepath.Join(string(d), "."+prefix+"*"))
	for _, draft := range drafts {
		err = errors.Join(err, os.Remove(draft))
	}
	if err != nil {
		return fmt.Errorf("remove drafts of CDI specifications: %w", err)
	}
	return nil
}

func (d Dir) remove(match func(name, owner string) bool) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list CDI specifications: %w", err)
	}
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), prefix)
		rest, whole := strings.CutSuffix(rest, ".json")
		name, owner, named := strings.Cut(rest, "_")
		if !ours || !whole || !named || !match(name, owner) {
			continue
		}
		if err := os.Remove(filepath.Join(string(d), entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove CDI specification: %w", err)
		}
	}
	return nil
}
