package main

import (
	"os"
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
