package main

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

// process is a running program with its own log file.
type process struct {
	name    string
	log     string
	command *exec.Cmd
	done    chan struct{}
}

// startProcess starts a program of the folder bin. It dies with this process.
func startProcess(bin, dir, name string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.command = exec.Command(filepath.Join(bin, name), args...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.Dir = dir
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w (make -C bench/schedulers programs builds it)", name, err)
	}
	go func() {
		_ = p.command.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// stop asks the process to end, and makes it end after a while.
func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		_ = p.command.Process.Kill()
		<-p.done
	}
}

// failure returns an error with the end of the log when the process has ended.
func (p *process) failure() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended by itself; its log %s ends with:\n%s", p.name, p.log, text[max(0, len(text)-2000):])
}

// ticks is the unit of CPU time in /proc: USER_HZ is 100 on every Linux that Go supports.
const tick = 10 * time.Millisecond

// cpu returns the CPU time that the process has used, user and system.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0, errors.Join(p.failure(), err)
	}
	// Field 2 is the program's name in brackets and may hold spaces; 14 and 15 are utime and stime.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// memory returns a line of /proc/PID/status in MiB: VmRSS, or VmHWM for its peak.
func (p *process) memory(line string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0, errors.Join(p.failure(), err)
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("%s has no %s", p.name, line)
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib / 1024, err
}
