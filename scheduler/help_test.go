package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who asks the program for help learns of both programs in it.
func TestHelp(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "help")
	require.NoError(t, err)
	before := os.Stderr
	os.Stderr = file
	t.Cleanup(func() { os.Stderr = before })
	require.NoError(t, run(t.Context(), []string{"--help"}))
	printed, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	assert.Contains(t, string(printed), "gpuplan-scheduler queue [flags]")
	assert.Contains(t, string(printed), "--unreachable-grace")
}

// versionVariable makes the test's own program the scheduler that is asked for its version: that ends there.
const versionVariable = "GPUPLAN_TEST_SCHEDULER_VERSION"

func TestVersion(t *testing.T) {
	if os.Getenv(versionVariable) != "" {
		_ = run(t.Context(), []string{"--version"})
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	scheduler := exec.CommandContext(t.Context(), self, "-test.run=^TestVersion$")
	scheduler.Env = append(os.Environ(), versionVariable+"=1")
	printed, err := scheduler.Output()
	require.NoError(t, err)
	assert.Regexp(t, `^gpuplan-scheduler dev\nKubernetes v`, string(printed))
}
