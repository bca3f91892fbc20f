package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the demonstration says that takes it away does so in the folder that it has sent the user to, and for the platform that it has started.
func TestDownCommand(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "GNUmakefile"))
	require.NoError(t, err)
	for want, d := range map[string]demo{
		"make -C /src demo-down DATA_DIR=/data":             {},
		"make -C /src demo-real-down REAL_DATA_DIR=/data":   {realNodes: 2},
		"make -C /src demo-fleet-down FLEET_DATA_DIR=/data": {fleet: true},
	} {
		d.root, d.data = "/src", "/data"
		assert.Equal(t, want, d.downCommand())
		words := strings.Fields(want)
		folder, _, _ := strings.Cut(words[4], "=")
		assert.Regexp(t, `(?m)^`+words[3]+`:.*\n\t@go run ./internal/demo down --data-dir \$\(`+folder+`\)`, string(makefile))
	}
}
