package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The demo tells its users to edit its copy of the example, and starts and ends on it as they left it.
func TestCopyExample(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "quickstart")
	write := func(dir, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write(from, "main.tf", "example")
	write(from, "more.tf", "more")
	write(from, "notes.md", "no configuration")
	main := filepath.Join(to, "main.tf")
	for _, step := range []struct {
		edit, want string
		kept       []string
	}{
		{want: "example"},
		{want: "example"},
		{edit: "edited", want: "edited", kept: []string{main}},
	} {
		if step.edit != "" {
			write(to, "main.tf", step.edit)
			require.NoError(t, os.Remove(filepath.Join(to, "more.tf")))
		}
		kept, err := copyExample(from, to)
		require.NoError(t, err)
		assert.Equal(t, step.kept, kept)
		have, err := os.ReadFile(main)
		require.NoError(t, err)
		assert.Equal(t, step.want, string(have))
		assert.FileExists(t, filepath.Join(to, "more.tf"))
		assert.NoFileExists(t, filepath.Join(to, "notes.md"))
	}
}
