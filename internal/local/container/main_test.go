package main

import (
	"bytes"
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGiven(t *testing.T) {
	root := fstest.MapFS{
		"dev/null":              {},
		"dev/nvidia0":           {},
		"dev/nvidiactl":         {},
		"dev/nvidia-caps/cap1":  {},
		"dev/infiniband/uverb0": {},
		"proc/self/mountinfo": {Data: []byte(`1 0 0:1 / / rw - overlay overlay rw
2 1 0:2 / /proc rw - proc proc rw
3 1 0:3 / /dev rw - tmpfs tmpfs rw
4 1 0:4 / /usr/lib/libcuda.so.1 ro - ext4 /dev/sda rw
5 1 0:5 / /etc/hosts rw - ext4 /dev/sda rw
broken
`)},
	}
	var out bytes.Buffer
	env := []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=GPU-1", "ALIYUN_COM_GPU_MEM_DEV=16", "CUDA_VISIBLE_DEVICES=0"}
	require.NoError(t, given{root, env}.print(&out))
	assert.Equal(t, `env ALIYUN_COM_GPU_MEM_DEV=16
env CUDA_VISIBLE_DEVICES=0
env NVIDIA_VISIBLE_DEVICES=GPU-1
device /dev/nvidia0
device /dev/nvidiactl
device /dev/nvidia-caps/cap1
device /dev/infiniband/uverb0
mount /usr/lib/libcuda.so.1
`, out.String())
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"/bin/devices"}, &out), "prints and ends")
	assert.NotContains(t, out.String(), "in the place of")

	require.NoError(t, run(t.Context(), []string{"sh", "-c", "until nslookup master; do sleep 2; done"}, &out), "does not wait for a name")

	t.Setenv(runFor, "1ms")
	out.Reset()
	require.NoError(t, run(t.Context(), []string{"python", "train.py"}, &out))
	assert.Contains(t, out.String(), "in the place of: python train.py\nenv GPUPLAN_RUN_FOR=1ms\n")
	t.Setenv(runFor, "soon")
	require.ErrorContains(t, run(t.Context(), []string{"python"}, &out), "GPUPLAN_RUN_FOR")

	for _, name := range []string{"pause", "sh"} {
		t.Setenv(runFor, "")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- run(ctx, []string{"/bin/" + name}, &bytes.Buffer{}) }()
		select {
		case err := <-ended:
			require.Fail(t, "it does not stay", "%s: %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
		cancel()
		require.NoError(t, <-ended, name)
	}
}
