package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Platform is a running local platform, with a real control plane.
type Platform struct {
	// Kubeconfig is the path of its administrator's kubeconfig.
	Kubeconfig string
	// DataDir is its data directory.
	DataDir string
}

// StartPlatform starts the built gpuplan-local with a data directory of its own
// and stops it after the test. The test is skipped when it is not built.
func StartPlatform(t *testing.T) Platform {
	t.Helper()
	program := filepath.Join(moduleRoot(t), "bin", "gpuplan-local")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("the local platform is not built (make build): %v", err)
	}
	p := Platform{DataDir: filepath.Join(t.TempDir(), "platform")}
	p.Kubeconfig = filepath.Join(p.DataDir, "kubeconfig")
	t.Cleanup(func() {
		output, err := exec.Command(program, "down", "--purge", "--data-dir", p.DataDir).CombinedOutput()
		if err != nil {
			t.Errorf("stop the local platform: %v\n%s", err, output)
		}
	})
	output, err := exec.Command(program, "up", "--data-dir", p.DataDir).CombinedOutput()
	require.NoError(t, err, "start the local platform: %s", output)
	return p
}

// moduleRoot finds the folder of go.mod above the test's working directory.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}
