package sibling

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// process is one that another one has started.
type process struct {
	pid int
	// since tells it from an earlier one of the same ID.
	since string
	// program is the file that it runs.
	program string
}

// name is unlike that of any other process of the machine, before and after it.
func (p process) name() string { return fmt.Sprintf("%d-%s", p.pid, p.since) }

// siblings lists the processes of this program that a process has started, this one apart; none on
// Windows. The names of them are their own.
func siblings(parent, self int) (own string, others []string, err error) {
	if runtime.GOOS == "windows" {
		return "", nil, nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	children, err := childrenInProc(parent)
	if err != nil {
		children, err = childrenByPS(parent)
	}
	if err != nil {
		return "", nil, err
	}
	for _, child := range children {
		switch {
		case child.pid == self:
			own = child.name()
		case filepath.Base(child.program) == filepath.Base(program):
			others = append(others, child.name())
		}
	}
	return own, others, nil
}

// childrenInProc returns the processes that a process has started from /proc, where the system has it.
func childrenInProc(parent int) (children []process, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, fmt.Errorf("no processes in /proc: %w", os.ErrNotExist)
	}
	for _, name := range stats {
		folder := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		child, of, ok := inProc(pid)
		if !ok || of != parent {
			continue
		}
		if child.program, err = os.Readlink(folder + "/exe"); err == nil {
			children = append(children, child)
		}
	}
	return children, nil
}

// inProc returns a process that runs, without its program, and its parent: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
func inProc(pid int) (p process, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, 0, false // it has ended
	}
	// The name of the program, in parentheses, may have any of them and spaces: "1 (a b) S 0 …".
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	const state, ppid, starttime = 0, 1, 19
	if end < 0 || len(fields) <= starttime || fields[state] == "Z" {
		return p, 0, false
	}
	parent, err = strconv.Atoi(fields[ppid])
	return process{pid: pid, since: fields[starttime]}, parent, err == nil
}

// processOf returns a process that runs, without its program.
func processOf(pid int) (p process, err error) {
	if p, _, ok := inProc(pid); ok {
		return p, nil
	}
	ps := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid))
	ps.Env = append(os.Environ(), "LC_ALL=C")
	text, err := ps.Output()
	if err != nil {
		return p, fmt.Errorf("run ps: %w", err)
	}
	return process{pid: pid, since: since(strings.Fields(string(text)))}, nil
}

// since is the time that ps tells, as a word.
func since(fields []string) string { return strings.ReplaceAll(strings.Join(fields, "-"), ":", "-") }

// childrenByPS returns the same from the command ps.
func childrenByPS(parent int) (children []process, err error) {
	ps := exec.Command("ps", "-axo", "pid=,ppid=,lstart=,comm=")
	ps.Env = append(os.Environ(), "LC_ALL=C")
	text, err := ps.Output()
	if err != nil {
		return nil, fmt.Errorf("run ps: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		// "7 1 Tue Nov 24 22:47:12 2026 /usr/bin/a b"
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			children = append(children, process{pid: pid, since: since(fields[2:7]), program: strings.Join(fields[7:], " ")})
		}
	}
	return children, nil
}
