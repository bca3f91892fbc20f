package simulated_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/simulated"
)

const twoGPUs = `{"name": "pair", "gbpsPerLinkUni": 25, "gpus": [{"index": 0}, {"index": 1}], "links": [["X", "NV1"], ["NV1", "X"]]}`
const oneUnhealthy = `{"name": "pair", "gbpsPerLinkUni": 25, "gpus": [{"index": 0}, {"index": 1, "unhealthy": "XID 79"}], "links": [["X", "NV1"], ["NV1", "X"]]}`

// happening is one thing that a served node has seen.
type happening struct {
	node    string
	what    string
	healthy gpu.Set
}

// follow runs a folder until the test ends and returns what its nodes see.
func follow(t *testing.T, path string) <-chan happening {
	t.Helper()
	seen := make(chan happening)
	ctx, cancel := context.WithCancel(context.Background())
	tell := func(h happening) {
		select {
		case seen <- h:
		case <-ctx.Done():
		}
	}
	folder := &simulated.Folder{Path: path, Serve: func(nodeCtx context.Context, node string, source hardware.Source) {
		for {
			reading, err := source.Read(nodeCtx)
			if err != nil {
				tell(happening{node, "cannot read", 0})
			} else {
				tell(happening{node, "read", reading.Machine.Healthy()})
			}
			select {
			case <-source.Changed():
			case <-nodeCtx.Done():
				tell(happening{node, "stopped", 0})
				return
			}
		}
	}}
	done := make(chan error)
	go func() { done <- folder.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return seen
}

// expect waits until the wanted happening comes; others may come before it.
func expect(t *testing.T, seen <-chan happening, want happening) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case got := <-seen:
			if got == want {
				return
			}
		case <-timeout:
			require.Fail(t, "did not happen", "%+v", want)
		}
	}
}

// put writes a file as a careful program does: under another name, then renamed.
func put(t *testing.T, path, text string) {
	t.Helper()
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	require.NoError(t, os.WriteFile(hidden, []byte(text), 0o600))
	require.NoError(t, os.Rename(hidden, path))
}

func TestFolderFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "cn-local.10.0.1.1.json"), filepath.Join(dir, "cn-local.10.0.1.2.json")
	put(t, a, twoGPUs)
	seen := follow(t, dir)

	expect(t, seen, happening{"cn-local.10.0.1.1", "read", gpu.SetOf(0, 1)})
	put(t, b, twoGPUs)
	expect(t, seen, happening{"cn-local.10.0.1.2", "read", gpu.SetOf(0, 1)})
	put(t, a, oneUnhealthy)
	expect(t, seen, happening{"cn-local.10.0.1.1", "read", gpu.SetOf(0)})
	put(t, a, "{")
	expect(t, seen, happening{"cn-local.10.0.1.1", "cannot read", 0})
	require.NoError(t, os.Remove(b))
	expect(t, seen, happening{"cn-local.10.0.1.2", "stopped", 0})
	put(t, b, oneUnhealthy)
	expect(t, seen, happening{"cn-local.10.0.1.2", "read", gpu.SetOf(0)})
}

func TestFolderMustExist(t *testing.T) {
	folder := &simulated.Folder{Path: filepath.Join(t.TempDir(), "missing")}
	assert.ErrorContains(t, folder.Run(context.Background()), "does the folder exist?")
}
