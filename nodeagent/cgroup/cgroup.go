// Package cgroup tells by the control groups of a process to which pod and container it belongs.
package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Path are the control groups of a process, as /proc/PID/cgroup has them; empty when they cannot be read.
type Path string

// Of returns the control groups of a process; proc is the folder of processes, of the PID namespace that the number is of.
func Of(proc string, pid int) Path {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	return Path(text)
}

// InPod reports whether they are those of a pod: the kubelet names control groups after the UIDs of pods, systemd's with
// underscores.
func (p Path) InPod(uid types.UID) bool {
	return uid != "" && (strings.Contains(string(p), "pod"+string(uid)) || strings.Contains(string(p), "pod"+strings.ReplaceAll(string(uid), "-", "_")))
}

// InContainer reports whether they are those of a container, by its ID in the pod's status, such as containerd://0f1e….
func (p Path) InContainer(id string) bool {
	_, name, ok := strings.Cut(id, "://")
	return ok && name != "" && strings.Contains(string(p), name)
}
