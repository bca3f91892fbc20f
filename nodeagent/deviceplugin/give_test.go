package deviceplugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// The device node that a container gets is nothing but a GPU's, whatever the driver's file has.
func FuzzDeviceNode(f *testing.F) {
	f.Add("Model: \t\t X\nDevice Minor: \t 6\n")
	f.Add("Device Minor: ../../dev/sda")
	f.Add("Device Minor: 99999999999999999999\nDevice Minor: 1")
	f.Add(":\xff\x00\n::")
	f.Fuzz(func(t *testing.T, text string) {
		a := &Agent{Root: t.TempDir()}
		file := filepath.Join(a.Root, "proc/driver/nvidia/gpus/0000:0a:00.0/information")
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		path, err := a.deviceNode(contract.GPUInfo{Index: 1, PCIBusID: "0000:0A:00.0"})
		if err != nil {
			assert.Empty(t, path)
			return
		}
		assert.Regexp(t, `^/dev/nvidia[0-9]{1,5}$`, path)
	})
}
