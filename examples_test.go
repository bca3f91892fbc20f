package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Every example can be planned as it stands, before anything exists.
func TestExamples(t *testing.T) {
	folders := map[string][]string{}
	for _, pattern := range []string{"examples/*/*.tf", "examples/*/*/*.tf"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			folders[filepath.Dir(file)] = append(folders[filepath.Dir(file)], file)
		}
	}
	require.Greater(t, len(folders), 7)
	for folder, files := range folders {
		t.Run(folder, func(t *testing.T) {
			acctest.ClearEnv(t)
			t.Setenv("HOME", t.TempDir())
			terraform := newCLI(t, "")
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				// OpenTofu means another registry by the short name.
				full := strings.ReplaceAll(string(text), `"gpuplan/gpuplan"`, `"registry.terraform.io/gpuplan/gpuplan"`)
				require.NoError(t, os.WriteFile(filepath.Join(terraform.Dir, filepath.Base(file)), []byte(full), 0o600))
			}
			output := terraform.Must(t, "plan")
			if strings.Contains(folder, "resources") {
				assert.Contains(t, output, " to add, 0 to change, 0 to destroy")
			}
		})
	}
}
