// Package process runs child processes that do not outlive the platform: they
// die with it, and what an earlier run left behind is found and ended.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// outputDelay is how long a process's output is read after its end, in case it
// left something running that holds the pipe.
const outputDelay = time.Second

// Spec describes a process.
type Spec struct {
	// Name tells the processes of one registry apart.
	Name string
	Path string
	Args []string
	// Env is the whole environment: nothing is inherited.
	Env []string
	Dir string
	// Output takes what the process writes.
	Output io.Writer
	// Isolated gives the process mounts and process numbers of its own: it is number 1, and
	// with it end all that it has started.
	Isolated bool
}

// Registry starts processes and records them in a directory.
type Registry struct{ dir string }

// Open returns the registry in dir.
func Open(dir string) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for process records: %w", err)
	}
	return &Registry{dir: dir}, nil
}

// Process is a running or ended process. It leads its own process group.
type Process struct {
	Identity
	done  chan struct{}
	state *os.ProcessState
}

// Start starts a process. The kernel kills it when this process dies.
func (r *Registry) Start(spec Spec) (*Process, error) {
	started := make(chan error, 1)
	p := &Process{done: make(chan struct{})}
	go func() {
		// The kernel ends the child with the thread that made it, so the thread
		// stays with this goroutine until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		cmd := &exec.Cmd{
			Path: spec.Path, Args: append([]string{spec.Path}, spec.Args...), Env: spec.Env, Dir: spec.Dir,
			Stdout: spec.Output, Stderr: spec.Output, WaitDelay: outputDelay,
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		}
		if spec.Isolated {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
		}
		if cmd.Env == nil {
			cmd.Env = []string{}
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		record := filepath.Join(r.dir, spec.Name)
		started <- p.record(cmd.Process.Pid, record)
		// How it ended is in the state; an error beyond that is about its output.
		_ = cmd.Wait()
		p.state = cmd.ProcessState
		// What the process left running goes with it.
		p.kill(syscall.SIGKILL)
		_ = os.Remove(record) // a record that stays names a process that has ended
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// record writes down which process it is; without that it must not run.
func (p *Process) record(pid int, file string) error {
	id, _, err := look(pid)
	p.Identity = Identity{PID: pid, StartTicks: id.StartTicks}
	if err == nil {
		err = os.WriteFile(file, []byte(p.Identity.String()), 0o600)
	}
	if err != nil {
		p.kill(syscall.SIGKILL)
	}
	return err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is the exit code after Done; 128 plus the signal's number when a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	if p.state == nil {
		return -1
	}
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.state.ExitCode()
}

// Stop asks the process to end, and kills it when grace is over. It returns when
// the process has ended.
func (p *Process) Stop(grace time.Duration) {
	p.kill(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	}
	p.kill(syscall.SIGKILL)
	<-p.done
}

// kill signals the whole group, as long as there is one.
func (p *Process) kill(signal syscall.Signal) { _ = syscall.Kill(-p.PID, signal) }

// Reap kills the processes that are recorded and still run, and returns their names.
// Nobody else may use the registry meanwhile.
func (r *Registry) Reap() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var reaped []string
	var errs []error
	for _, entry := range entries {
		record := filepath.Join(r.dir, entry.Name())
		data, err := os.ReadFile(record)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// A record that was cut off by a crash names no process that got going.
		if identity, err := ParseIdentity(strings.TrimSpace(string(data))); err == nil && identity.Alive() {
			if err := identity.Kill(); err != nil {
				errs = append(errs, fmt.Errorf("end %s (process %d): %w", entry.Name(), identity.PID, err))
				continue
			}
			reaped = append(reaped, entry.Name())
		}
		errs = append(errs, os.Remove(record))
	}
	return reaped, errors.Join(errs...)
}

// Child is a recorded process.
type Child struct {
	Name string
	Identity
}

// Running returns the recorded processes that run, by name.
func (r *Registry) Running() ([]Child, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var children []Child
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(r.dir, entry.Name()))
		if err != nil {
			continue // it has just ended
		}
		if id, err := ParseIdentity(string(data)); err == nil && id.Alive() {
			children = append(children, Child{Name: entry.Name(), Identity: id})
		}
	}
	return children, nil
}
