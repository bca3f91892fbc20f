package cgroup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cgroup"
)

func TestOf(t *testing.T) {
	proc := t.TempDir()
	for pid, text := range map[string]string{
		"1": "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_1b.slice/cri-containerd-77ff.scope\n",
		"2": "4:memory:/kubepods/burstable/pod0a-1b/88ee\n1:cpu:/kubepods/burstable/pod0a-1b/88ee\n",
		"3": "0::/system.slice/sshd.service\n",
	} {
		require.NoError(t, os.Mkdir(filepath.Join(proc, pid), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(text), 0o600))
	}
	assert.True(t, cgroup.Of(proc, 1).InPod("0a-1b"), "systemd's")
	assert.True(t, cgroup.Of(proc, 2).InPod("0a-1b"))
	for _, pid := range []int{3, 4} {
		assert.False(t, cgroup.Of(proc, pid).InPod("0a-1b"), pid)
	}
	assert.False(t, cgroup.Of(proc, 1).InPod(""))
	assert.True(t, cgroup.Of(proc, 1).InContainer("containerd://77ff"))
	assert.True(t, cgroup.Of(proc, 2).InContainer("docker://88ee"))
	for _, id := range []string{"containerd://88ee", "", "containerd://", "77ff"} {
		assert.False(t, cgroup.Of(proc, 1).InContainer(id), id)
	}
}
