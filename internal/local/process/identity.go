package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killWait is how long a killed process may take to disappear.
const killWait = 10 * time.Second

// Identity is a process that cannot be mistaken for a later one with the same number.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is when the process started, in clock ticks since boot
	// (field 22 of /proc/PID/stat).
	StartTicks uint64 `json:"startTicks"`
}

// Self is the identity of this process.
func Self() (Identity, error) { return Identify(os.Getpid()) }

// ParseIdentity reads what String wrote.
func ParseIdentity(text string) (Identity, error) {
	var id Identity
	if _, err := fmt.Sscanf(text, "%d %d", &id.PID, &id.StartTicks); err != nil || id.PID <= 1 {
		return Identity{}, fmt.Errorf("%q does not name a process", text)
	}
	return id, nil
}

func (id Identity) String() string { return fmt.Sprintf("%d %d", id.PID, id.StartTicks) }

// Alive tells whether the process still runs; one that has ended but was not yet
// collected by its parent does not.
func (id Identity) Alive() bool {
	now, err := Identify(id.PID)
	return err == nil && now == id
}

// Signal sends a signal to the process, if it still runs.
func (id Identity) Signal(signal syscall.Signal) error {
	if !id.Alive() {
		return os.ErrProcessDone
	}
	return syscall.Kill(id.PID, signal)
}

// Kill kills the process with its group, and returns when it is gone.
func (id Identity) Kill() error {
	for deadline := time.Now().Add(killWait); id.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("still there %s after it was killed", killWait)
		}
		err := errors.Join(syscall.Kill(-id.PID, syscall.SIGKILL), syscall.Kill(id.PID, syscall.SIGKILL))
		if errors.Is(err, syscall.EPERM) {
			return err
		}
	}
	return nil
}

// ResidentBytes is the memory of the process that is in RAM, and of an isolated process that of
// all that it has started; 0 when it is gone.
func (id Identity) ResidentBytes() int64 {
	if !id.Alive() {
		return 0
	}
	bytes := residentBytes(id.PID)
	namespace, err := os.Readlink(namespaceOf(strconv.Itoa(id.PID)))
	if own, _ := os.Readlink(namespaceOf("self")); err != nil || namespace == own {
		return bytes
	}
	bytes = 0
	all, _ := filepath.Glob(namespaceOf("[0-9]*")) // the pattern is right
	for _, file := range all {
		if other, err := os.Readlink(file); err != nil || other != namespace {
			continue // another's, or one that has ended
		}
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil {
			bytes += residentBytes(pid)
		}
	}
	return bytes
}

// namespaceOf is the file that names the PID namespace of a process.
func namespaceOf(pid string) string { return "/proc/" + pid + "/ns/pid" }

func residentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// Identify returns the identity of a process that runs.
func Identify(pid int) (Identity, error) {
	id, ended, err := look(pid)
	if err == nil && ended {
		err = os.ErrProcessDone
	}
	return id, err
}

// look reads the process table; ended means that the process only waits to be
// collected by its parent.
func look(pid int) (id Identity, ended bool, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, false, err
	}
	// The second field is the name in parentheses, which may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	const state, threads, startTime = 0, 17, 19
	if len(fields) <= startTime {
		return Identity{}, false, fmt.Errorf("/proc/%d/stat is cut off", pid)
	}
	ticks, err := strconv.ParseUint(string(fields[startTime]), 10, 64)
	if err != nil {
		return Identity{}, false, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	// The first thread can end before others, which still hold files then.
	ended = (fields[state][0] == 'Z' || fields[state][0] == 'X') && len(fields[threads]) == 1 && fields[threads][0] <= '1'
	return Identity{PID: pid, StartTicks: ticks}, ended, nil
}
