package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// outlive moves a process out of the control groups of the agent's container into the root of every hierarchy: the runtime
// and the kubelet end what is in those of a container that has ended, whatever session it is in. root is where the host's
// hierarchies are: version 2 has one, version 1 a folder for each. Where it is "" the process stays where it is.
func outlive(root string, pid int) error {
	if root == "" {
		return nil
	}
	groups := []string{root}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		groups, _ = filepath.Glob(filepath.Join(root, "*")) // the pattern is good
	}
	var faults []error
	moved := false
	for _, group := range groups {
		file := filepath.Join(group, "cgroup.procs")
		if _, err := os.Stat(file); err != nil {
			continue // it is no hierarchy
		}
		list, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err == nil {
			_, err = list.WriteString(strconv.Itoa(pid))
			err = errors.Join(err, list.Close())
		}
		faults, moved = append(faults, err), true
	}
	if !moved {
		return fmt.Errorf("%s has no control groups", root)
	}
	return errors.Join(faults...)
}
