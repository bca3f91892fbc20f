package rdma_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/rdma"
)

// childVariable has the test binary print the limit under which it runs.
const childVariable = "GPUPLAN_TEST_PRINT_LIMIT"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		fmt.Print(rdma.LockableKiB())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Who may lock nothing is not who may lock everything.
func TestLockableKiB(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for limit, want := range map[string]string{"0": "1", "1": "1", "8": "8"} {
		t.Run(limit+" KiB", func(t *testing.T) {
			child := exec.Command("sh", "-c", "ulimit -l "+limit+" && exec "+self)
			child.Env = append(os.Environ(), childVariable+"=1")
			output, err := child.Output()
			require.NoError(t, err)
			assert.Equal(t, want, string(output))
		})
	}
}
