package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cgroups is where the kernel's control groups are mounted.
type cgroups string

// mountedCgroups is the usual place.
const mountedCgroups cgroups = "/sys/fs/cgroup"

// emptyWait is how long processes of a cgroup may take to disappear after they were killed.
const emptyWait = 10 * time.Second

// unified tells whether the machine has version 2 alone.
func (c cgroups) unified() bool {
	_, err := os.Stat(filepath.Join(string(c), "cgroup.controllers"))
	return err == nil
}

// hierarchies are the roots below which a cgroup is a directory: one, or of version 1 one for
// each controller.
func (c cgroups) hierarchies() ([]string, error) {
	if c.unified() {
		return []string{string(c)}, nil
	}
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return nil, fmt.Errorf("control groups: %w", err)
	}
	var roots []string
	for _, entry := range entries {
		if entry.IsDir() { // others are links to these
			roots = append(roots, filepath.Join(string(c), entry.Name()))
		}
	}
	return roots, nil
}

// ensure makes a cgroup with all controllers.
func (c cgroups) ensure(path string) error {
	roots, err := c.hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		at := root
		for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
			if c.unified() {
				if err := delegate(at); err != nil {
					return err
				}
			}
			parent := at
			at = filepath.Join(at, name)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make the control group of a real node: %w", err)
			}
			if filepath.Base(root) == "cpuset" {
				if err := inheritCPUs(parent, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// delegate gives the children of a cgroup of version 2 its controllers.
func delegate(cgroup string) error {
	controllers, err := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("give the controller %s to cgroups below %s: %w", controller, cgroup, err)
		}
	}
	return nil
}

// inheritCPUs fills in what a new cgroup of the controller cpuset of version 1 lacks.
func inheritCPUs(parent, child string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, name), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a cgroup with those below it. Their processes have been killed.
func (c cgroups) remove(path string) error {
	roots, err := c.hierarchies()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, root := range roots {
		deadline := time.Now().Add(emptyWait)
		for {
			err := removeTree(filepath.Join(root, path))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove the control groups of real nodes: %w", err)
			}
			time.Sleep(20 * time.Millisecond) // nothing tells when the kernel has let go of them
		}
	}
	return nil
}

// removeTree removes the directories of a cgroup, those below first; its files go with it.
func removeTree(path string) error {
	var directories []string
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			directories = append(directories, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, directory := range slices.Backward(directories) {
		if err := os.Remove(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
