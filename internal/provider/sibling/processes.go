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

// siblings lists the other processes of this program that a process has started, by their IDs; none
// on Windows.
func siblings(parent, self int) (found []int, err error) {
	if runtime.GOOS == "windows" {
		return nil, nil
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	children, err := childrenInProc(parent)
	if err != nil {
		children, err = childrenByPS(parent)
	}
	if err != nil {
		return nil, err
	}
	for pid, runs := range children {
		if pid != self && filepath.Base(runs) == filepath.Base(program) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// childrenInProc returns the programs that the children of a process run, by the children's IDs, from
// /proc, where the system has it: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
func childrenInProc(parent int) (map[int]string, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, fmt.Errorf("no processes in /proc: %w", os.ErrNotExist)
	}
	children := map[int]string{}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name of the program, in parentheses, may have any of them and spaces: "1 (a b) S 0 …".
		end := bytes.LastIndexByte(text, ')')
		fields := strings.Fields(string(text[end+1:]))
		if end < 0 || len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(parent) {
			continue
		}
		folder := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		if program, err := os.Readlink(folder + "/exe"); err == nil {
			children[pid] = program
		}
	}
	return children, nil
}

// childrenByPS returns the same from the command ps.
func childrenByPS(parent int) (map[int]string, error) {
	text, err := exec.Command("ps", "-axo", "pid=,ppid=,comm=").Output()
	if err != nil {
		return nil, fmt.Errorf("run ps: %w", err)
	}
	children := map[int]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			children[pid] = strings.Join(fields[2:], " ")
		}
	}
	return children, nil
}
