package mps

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program of a container is no control daemon because it says so by its arguments and its environment.
func TestAProgramThatPretendsToBeTheDaemon(t *testing.T) {
	tail, err := exec.LookPath("tail")
	require.NoError(t, err)
	pipe := filepath.Join(t.TempDir(), "pipe")
	pretend := func(flags uintptr) (int, error) {
		command := &exec.Cmd{Path: tail, Args: []string{controlProgram, foreground, "/dev/null"}, Env: []string{pipeVariable + "=" + pipe},
			SysProcAttr: &syscall.SysProcAttr{Cloneflags: flags}}
		if err := command.Start(); err != nil {
			return 0, err
		}
		t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
		return command.Process.Pid, nil
	}
	container, err := pretend(syscall.CLONE_NEWNS)
	if err != nil {
		t.Skip("a mount namespace of its own needs root: ", err)
	}
	require.Eventually(t, func() bool { return uses(filepath.Join("/proc", strconv.Itoa(container)), pipe) }, 10*time.Second, time.Millisecond)
	assert.Empty(t, find(pipe, "").all())
	own, err := pretend(0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(find(pipe, "").all()) > 0 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, []int{own}, find(pipe, "").daemons)
}
