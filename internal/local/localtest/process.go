package localtest

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Process is one of the project's programs that a test runs beside the platform.
type Process struct {
	Command *exec.Cmd
	// Log is what the program has written. It is complete after [Process.End].
	Log *bytes.Buffer
	// Done is closed once the program has ended.
	Done <-chan struct{}
}

// Launch starts a built program with a kubeconfig in its environment.
func Launch(kubeconfig, name string, args ...string) (*Process, error) {
	path, err := Program(name)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	p := &Process{Command: exec.Command(path, args...), Log: &bytes.Buffer{}, Done: done}
	p.Command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.Command.Stdout, p.Command.Stderr = p.Log, p.Log
	if err := p.Command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.Command.Wait() // the tests kill it
		close(done)
	}()
	return p, nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// End sends the signal and waits for the process to end.
func (p *Process) End(signal os.Signal) {
	if p.Ended() {
		return
	}
	_ = p.Command.Process.Signal(signal) // it may have ended by itself
	<-p.Done
}

// EndWith ends the process when the test does, and shows the log of a test that failed.
func (p *Process) EndWith(t testing.TB) {
	t.Cleanup(func() {
		p.End(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s:\n%s", p.Command, p.Log)
		}
	})
}
