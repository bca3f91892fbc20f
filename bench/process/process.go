// Package process runs the programs that a measurement is about, and reads what they use.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a running program with its own log file.
type Process struct {
	name    string
	log     string
	command *exec.Cmd
	done    chan struct{}
}

// Start starts a program, which writes its log into the folder dir and runs there. It dies with this process.
func Start(program, dir string, args ...string) (*Process, error) {
	name := filepath.Base(program)
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.command = exec.Command(program, args...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.Dir = dir
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.command.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// Name is the name of the program.
func (p *Process) Name() string { return p.name }

// Args are the program and its arguments.
func (p *Process) Args() []string { return p.command.Args }

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended by itself
	<-p.done
}

// Stop asks the process to end, and makes it end after a while.
func (p *Process) Stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		p.Kill()
	}
}

// Failure returns an error with the end of the log when the process has ended.
func (p *Process) Failure() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended by itself; its log %s ends with:\n%s", p.name, p.log, text[max(0, len(text)-2000):])
}

// Tick is the unit of CPU time in /proc: USER_HZ is 100 on every Linux that Go supports.
const Tick = 10 * time.Millisecond

// CPU returns the CPU time that the process has used, user and system.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0, errors.Join(p.Failure(), err)
	}
	// Field 2 is the program's name in brackets and may hold spaces; 14 and 15 are utime and stime.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * Tick, errors.Join(err1, err2)
}

// MiB returns a line of /proc/PID/status in MiB: VmRSS, or VmHWM for its peak.
func (p *Process) MiB(line string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0, errors.Join(p.Failure(), err)
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("%s has no %s", p.name, line)
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib / 1024, err
}
