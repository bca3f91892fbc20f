package kills

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// directory is a working directory of the real terraform with the built provider.
type directory struct {
	path string
	env  []string
	gate *gate
}

func newDirectory(t *testing.T, platform *localtest.Platform) *directory {
	t.Helper()
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	d := &directory{path: t.TempDir(), gate: &gate{}}
	rc := filepath.Join(d.path, "terraformrc")
	require.NoError(t, os.WriteFile(rc, fmt.Appendf(nil,
		"provider_installation {\n  dev_overrides {\n    \"registry.terraform.io/gpuplan/gpuplan\" = %q\n  }\n  direct {}\n}\n", filepath.Dir(provider)), 0o600))
	d.env = append(d.gate.environment(t, platform), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_INPUT=0",
		"TF_CLI_ARGS_plan=-no-color", "TF_CLI_ARGS_apply=-no-color", "TF_CLI_ARGS_destroy=-no-color")
	return d
}

// run runs terraform, which dies at a point unless it has ended by then. code is its exit
// status, died the request that it died at.
func (d *directory) run(t *testing.T, at point, args ...string) (output string, code int, died string) {
	t.Helper()
	var text bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "terraform", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.path, d.env, &text, &text
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
