package mps

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// processes are the processes of MPS that use a pipe directory.
type processes struct {
	daemons, servers []int
}

// find looks for the processes of a pipe directory. They are told by their environment, which is the one that the
// control daemon was started with, whoever their parent is now. Those of another PID namespace are not seen. Those of another
// mount namespace than this program's, or the given one of an earlier agent, are programs of containers, which may say of
// themselves what they like.
func find(pipe, earlier string) (found processes) {
	own := mounts("/proc/self")
	folders, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		command, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil {
			continue
		}
		arguments := strings.Split(string(command), "\x00")
		daemon := filepath.Base(arguments[0]) == controlProgram && len(arguments) > 1 && arguments[1] == foreground
		server := filepath.Base(arguments[0]) == serverProgram
		sees := mounts(folder)
		switch {
		case !daemon && !server || !uses(folder, pipe) || sees == "" || sees != own && sees != earlier:
		case daemon:
			found.daemons = append(found.daemons, pid)
		default:
			found.servers = append(found.servers, pid)
		}
	}
	return found
}

// uses reports whether a process, by its folder in /proc, was started with a pipe directory.
func uses(folder, pipe string) bool {
	environ, err := os.ReadFile(filepath.Join(folder, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+pipeVariable+"="+pipe+"\x00"))
}

// mounts is the mount namespace of a process, by its folder in /proc, "" when it cannot be read.
func mounts(folder string) string {
	namespace, _ := os.Readlink(filepath.Join(folder, "ns/mnt")) // the process may have ended
	return namespace
}

// all are the PIDs of both kinds.
func (p processes) all() []int { return slices.Concat(p.daemons, p.servers) }

// foreground is the argument with which a control daemon is started; without it the program gives commands to one.
const foreground = "-f"
