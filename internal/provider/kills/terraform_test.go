package kills

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// directory is a folder in which terraform runs with the built provider, whose requests
// go through a gate.
type directory struct {
	*acctest.CLI
	gate *gate
}

func newDirectory(t *testing.T, platform *localtest.Platform) *directory {
	t.Helper()
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	d := &directory{acctest.NewCLI(t, provider), &gate{}}
	d.Env = append(d.gate.environment(t, platform), d.Env...)
	return d
}

// run runs terraform, which dies at a point unless it has ended by then. code is its exit
// status, died the request that it died at.
func (d *directory) run(t *testing.T, at point, args ...string) (output string, code int, died string) {
	t.Helper()
	var text bytes.Buffer
	cmd := d.Command(args...)
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // terraform and its providers are one group
	started := make(chan struct{})
	d.gate.start(at, func(alone bool) {
		<-started
		target := -cmd.Process.Pid
		if alone {
			target = cmd.Process.Pid
		}
		_ = syscall.Kill(target, syscall.SIGKILL) // it may have ended
	})
	require.NoError(t, cmd.Start())
	close(started)
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	_, _, died = d.gate.seen()
	return text.String(), cmd.ProcessState.ExitCode(), died
}

// putStateBack does what a user does whose local state was cut off, and reports whether it was. Terraform empties the file
// before it writes it. Of half a state it refuses to do anything, and of an empty one it knows nothing that a destroy or a change
// is to take away. An apply that only creates goes on from an empty one by itself: the stamps say what it has made.
func (d *directory) putStateBack(t *testing.T, creates bool) bool {
	t.Helper()
	state := filepath.Join(d.Dir, "terraform.tfstate")
	text, err := os.ReadFile(state)
	if errors.Is(err, fs.ErrNotExist) || json.Valid(text) || creates && len(text) == 0 {
		return false
	}
	require.NoError(t, err)
	before, err := os.ReadFile(state + ".backup")
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(state, before, 0o600))
	return true
}
