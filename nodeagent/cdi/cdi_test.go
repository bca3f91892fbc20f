package cdi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
)

func TestName(t *testing.T) {
	name := cdi.Name("r", []string{"a", "b"})
	assert.Equal(t, name, cdi.Name("r", []string{"b", "a"}), "the kubelet lists devices in any order")
	assert.NotEqual(t, name, cdi.Name("r", []string{"a"}))
	assert.NotEqual(t, name, cdi.Name("s", []string{"a", "b"}))
	assert.Regexp(t, `^gpuplan\.dev/gpu=[a-z][0-9a-f]+$`, cdi.Qualified(name), "runtimes refuse other names")
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "cdi")
	dir := cdi.Dir(path)
	require.NoError(t, dir.Remove("c1"), "there is no folder yet")
	edits := cdi.Edits{}
	edits.Env("A=1", "B=2")
	edits.DeviceNode("/dev/nvidia3")
	edits.Mount("/run/a", "/b", []string{"ro", "bind"})
	require.NoError(t, dir.Write("c1", "uid-1", "", edits))
	assert.Equal(t, []string{"gpuplan.dev-gpu_c1_uid-1.json"}, files(t, path))

	text, err := os.ReadFile(filepath.Join(path, "gpuplan.dev-gpu_c1_uid-1.json"))
	require.NoError(t, err)
	assert.JSONEq(t, `{"cdiVersion": "0.3.0", "kind": "gpuplan.dev/gpu", "devices": [{"name": "c1", "containerEdits": {
		"env": ["A=1", "B=2"],
		"deviceNodes": [{"path": "/dev/nvidia3"}],
		"mounts": [{"hostPath": "/run/a", "containerPath": "/b", "options": ["ro", "bind"]}]
	}}]}`, string(text))
	info, err := os.Stat(filepath.Join(path, "gpuplan.dev-gpu_c1_uid-1.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode())

	require.NoError(t, os.WriteFile(filepath.Join(path, "nvidia.yaml"), nil, 0o600))
	require.NoError(t, dir.Write("c1", "uid-2", "0.7.0", edits), "the kubelet has given the devices to another pod")
	require.NoError(t, dir.Write("c2", "uid-3", "", edits))
	assert.Equal(t, []string{"gpuplan.dev-gpu_c1_uid-2.json", "gpuplan.dev-gpu_c2_uid-3.json", "nvidia.yaml"}, files(t, path),
		"two files with one device are a conflict to runtimes")
	require.NoError(t, dir.RemoveOwned(func(owner string) bool { return owner == "uid-3" }))
	assert.Equal(t, []string{"gpuplan.dev-gpu_c1_uid-2.json", "nvidia.yaml"}, files(t, path))
	require.NoError(t, dir.Remove("c1"))
	assert.Equal(t, []string{"nvidia.yaml"}, files(t, path))
}

// What nvidia-ctk cdi generate writes, shortened.
const nvidia = `cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl}]
  mounts: [{hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1, options: [ro, bind]}]
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}, {path: /dev/dri/renderD1}]}
- name: "1"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}], intelRdt: {closID: x}}
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}, {path: /dev/nvidia2}]}
`

func TestVendor(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.json": `{"kind": "nvidia.com/gpu", "devices": 7}`, "b.yaml": "}", "c.json": `{"kind": "other.com/gpu"}`,
		"d.txt": nvidia, "nvidia.yaml": nvidia,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	folders := []string{filepath.Join(dir, "absent"), dir}
	edits, version, err := cdi.Vendor(folders, []string{"/dev/nvidia1"})
	require.NoError(t, err)
	assert.Equal(t, "0.5.0", version)
	text, err := json.Marshal(edits)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"env": ["NVIDIA_VISIBLE_DEVICES=void"],
		"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia1"}, {"path": "/dev/dri/renderD1"}],
		"mounts": [{"hostPath": "/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1", "options": ["ro", "bind"]}]
	}`, string(text), "by the device node, whatever the device is called")
	edits, _, err = cdi.Vendor(folders, []string{"/dev/nvidia0", "/dev/nvidia1"})
	require.NoError(t, err)
	assert.Len(t, edits["deviceNodes"], 4)
	_, _, err = cdi.Vendor(folders, []string{"/dev/nvidia0", "/dev/nvidia2"})
	require.ErrorContains(t, err, "nvidia.yaml has GPUs of this node, and not /dev/nvidia2: make it again", "a device that is all GPUs is none of them")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "z.yaml"), []byte(strings.ReplaceAll(nvidia, "{path: /dev/nvidia1}, {path: /dev/dri", "{path: /dev/nvidia2}, {path: /dev/dri")), 0o600))
	edits, _, err = cdi.Vendor(folders, []string{"/dev/nvidia0", "/dev/nvidia2"})
	require.NoError(t, err, "another file has both")
	assert.Len(t, edits["deviceNodes"], 4)
	edits, _, err = cdi.Vendor([]string{t.TempDir()}, []string{"/dev/nvidia0"})
	require.NoError(t, err)
	assert.Nil(t, edits)
}

// A specification of another program is read as it comes.
func FuzzVendor(f *testing.F) {
	f.Add([]byte(nvidia))
	f.Add([]byte(`{"kind": "nvidia.com/gpu", "devices": [{"name": 7, "containerEdits": {"deviceNodes": [null, {"path": 1}]}}]}`))
	f.Add([]byte("kind: nvidia.com/gpu\ndevices: [{containerEdits: {deviceNodes: [{path: /dev/nvidia0}], env: {a: b}}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia.yaml"), text, 0o600))
		edits, version, err := cdi.Vendor([]string{dir}, []string{"/dev/nvidia0"})
		if err != nil || edits == nil {
			assert.Nil(t, edits)
			assert.Empty(t, version)
			return
		}
		assert.NotEmpty(t, edits["deviceNodes"], "the GPU is among them")
		_, err = json.Marshal(edits)
		assert.NoError(t, err, "it can be written into the specification of a container")
	})
}
