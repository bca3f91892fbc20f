package realnode

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/kubelet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
)

func TestNodesAreFoundInTheirDirectories(t *testing.T) {
	dir := datadir.Dir(t.TempDir())
	nodes, err := List(dir)
	require.NoError(t, err)
	assert.Empty(t, nodes)
	for _, node := range []Node{
		{Name: "late", Address: "198.18.5.2", Dir: slotDir(dir, 10)},
		{Name: "early", Machine: kubelet.Machine{CPUs: 82}, Dir: slotDir(dir, 2)},
	} {
		require.NoError(t, os.MkdirAll(node.Dir, 0o700))
		require.NoError(t, datadir.WriteJSON(node.file(), node))
	}
	require.NoError(t, os.MkdirAll(slotDir(dir, 3), 0o700), "one that was being made")
	nodes, err = List(dir)
	require.NoError(t, err)
	assert.Equal(t, []Node{
		{Name: "early", Machine: kubelet.Machine{CPUs: 82}, Dir: slotDir(dir, 2), slot: 2},
		{Name: "late", Address: "198.18.5.2", Dir: slotDir(dir, 10), slot: 10},
	}, nodes)
	node, found, err := Find(dir, "late")
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, nodes[1], node)
	_, found, err = Find(dir, "simulated")
	require.NoError(t, err)
	assert.False(t, found)
	require.NoError(t, os.WriteFile(node.file(), []byte("{"), 0o600))
	_, err = List(dir)
	require.ErrorContains(t, err, "node.json")
}

func TestHostPath(t *testing.T) {
	node := Node{Dir: "/d"}
	for path, want := range map[string]string{
		"/var/lib/kubelet/device-plugins":  "/d/device-plugins",
		"/var/lib/kubelet/device-plugins/": "/d/device-plugins",
		"/var/lib/kubelet/pod-resources":   "/d/kubelet/pod-resources",
		"/var/run/cdi":                     "/d/cdi",
		"/run/cdi":                         "/d/cdi",
		"/var/run/nri":                     "/d/nri",
		"/etc/kubernetes":                  "",
	} {
		place, ok := node.HostPath(path)
		assert.Equal(t, want, place, path)
		assert.Equal(t, want != "", ok, path)
	}
}

func TestNetworks(t *testing.T) {
	first, err := chooseNetwork("gpuplan-1", nil)
	require.NoError(t, err)
	again, err := chooseNetwork("gpuplan-1", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	require.NoError(t, err)
	assert.Equal(t, first, again, "it stays")
	var taken []netip.Prefix
	for range networks {
		network, err := chooseNetwork("gpuplan-1", taken)
		require.NoError(t, err)
		assert.True(t, testNetworks.Overlaps(network))
		for _, other := range taken {
			assert.False(t, other.Overlaps(network), "%s and %s", other, network)
		}
		taken = append(taken, network)
	}
	_, err = chooseNetwork("gpuplan-1", taken)
	require.ErrorContains(t, err, "in use")
}

func TestAddressesOfNodes(t *testing.T) {
	network := netip.MustParsePrefix("198.18.16.0/20")
	last := gateway(network)
	assert.Equal(t, "198.18.16.1", last.String())
	for slot := range Most {
		node, firstPod, lastPod := addresses(network, slot)
		assert.Positive(t, node.Compare(last), "after those of the node before")
		assert.Equal(t, node.Next(), firstPod)
		assert.Equal(t, 124, slotSize-int(firstPod.As4()[3]%slotSize)-1, "pods of node %d", slot)
		assert.True(t, network.Contains(lastPod))
		last = lastPod
	}
}

func TestConfigurationOfContainerd(t *testing.T) {
	for _, c := range []struct {
		programs programs.Programs
		want     []string
		not      string
	}{
		{programs.Programs{Plugins: "/usr/lib/cni"}, []string{"version = 2\n", `sandbox_image = "local.gpuplan.dev/pause:1"`, `bin_dir = "/usr/lib/cni"`}, "cri.v1.runtime"},
		{programs.Programs{Plugins: "/opt/cni/bin", Version: programs.Version{Major: 2}}, []string{"version = 3\n", `sandbox = "local.gpuplan.dev/pause:1"`, `bin_dirs = ["/opt/cni/bin"]`}, "grpc.v1.cri"},
	} {
		node := Node{Dir: t.TempDir()}
		require.NoError(t, writeContainerd(node, c.programs, "127.0.0.1:5000"))
		config, err := os.ReadFile(node.containerdConfig())
		require.NoError(t, err)
		for _, want := range append(c.want, "restrict_oom_score_adj = true", `cdi_spec_dirs = ["`+node.CDI()+`"]`, `config_path = "`+node.registries()+`"`) {
			assert.Contains(t, string(config), want)
		}
		assert.NotContains(t, string(config), c.not)
		hosts, err := os.ReadFile(filepath.Join(node.registries(), "_default", "hosts.toml"))
		require.NoError(t, err)
		assert.Equal(t, 2, strings.Count(string(hosts), `"http://127.0.0.1:5000"`))
	}
}

func TestCgroups(t *testing.T) {
	file := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	read := func(path string) string {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(content)
	}
	t.Run("version 1", func(t *testing.T) {
		root := t.TempDir()
		file(filepath.Join(root, "cpuset/cpuset.cpus"), "0-1")
		file(filepath.Join(root, "cpuset/cpuset.mems"), "0")
		require.NoError(t, os.Mkdir(filepath.Join(root, "cpu,cpuacct"), 0o755))
		require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(root, "cpu")))
		for range 2 {
			require.NoError(t, cgroups(root).ensure("/gpuplan-1/0"))
		}
		assert.Equal(t, "0-1", read(filepath.Join(root, "cpuset/gpuplan-1/0/cpuset.cpus")))
		assert.Equal(t, "0", read(filepath.Join(root, "cpuset/gpuplan-1/0/cpuset.mems")))
		assert.DirExists(t, filepath.Join(root, "cpu,cpuacct/gpuplan-1/0"))
	})
	t.Run("version 2", func(t *testing.T) {
		root := t.TempDir()
		for _, cgroup := range []string{"", "gpuplan-1"} { // the kernel makes these files
			file(filepath.Join(root, cgroup, "cgroup.controllers"), "memory\n")
		}
		require.NoError(t, cgroups(root).ensure("/gpuplan-1/0"))
		assert.DirExists(t, filepath.Join(root, "gpuplan-1/0"))
		for _, cgroup := range []string{"", "gpuplan-1"} {
			assert.Equal(t, "+memory", read(filepath.Join(root, cgroup, "cgroup.subtree_control")))
		}
		assert.NoFileExists(t, filepath.Join(root, "gpuplan-1/0/cgroup.subtree_control"), "that is the kubelet's")
	})
	t.Run("removed", func(t *testing.T) {
		root := t.TempDir()
		for _, hierarchy := range []string{"memory", "unified"} {
			require.NoError(t, os.MkdirAll(filepath.Join(root, hierarchy, "gpuplan-1/0/kubepods/pod1"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(root, hierarchy, "gpuplan-2/0"), 0o755))
		}
		require.NoError(t, cgroups(root).remove("/gpuplan-1"))
		for _, hierarchy := range []string{"memory", "unified"} {
			assert.NoDirExists(t, filepath.Join(root, hierarchy, "gpuplan-1"))
			assert.DirExists(t, filepath.Join(root, hierarchy, "gpuplan-2/0"), "of another platform")
		}
		require.NoError(t, cgroups(filepath.Join(root, "missing")).remove("/gpuplan-1"))
	})
}

func TestBootOutsideOfANode(t *testing.T) {
	require.ErrorContains(t, Boot(t.Context(), t.TempDir()), "for the local platform")
}

func TestChoose(t *testing.T) {
	n := &Nodes{Options: Options{Limit: 2}, chosen: map[string]bool{"there": true}, running: map[string]*running{}}
	assert.True(t, n.Choose("there"))
	assert.True(t, n.Choose("second"))
	assert.False(t, n.Choose("third"), "there may be two")
	assert.True(t, n.Choose("second"), "asked again")
	require.NoError(t, n.Remove("third"))
	_, ok := n.HardwareDir("third")
	assert.False(t, ok)
}

// A node that could not be started and that its pool gives up leaves nothing that the next start makes a node of, and another
// node is real in its place.
func TestANodeThatDidNotStartIsRemoved(t *testing.T) {
	dir := datadir.Dir(t.TempDir())
	n := &Nodes{Options: Options{Dir: dir, Limit: 1}, chosen: map[string]bool{}, running: map[string]*running{}}
	require.True(t, n.Choose("first"))
	node := Node{Name: "first", Dir: slotDir(dir, 0)}
	require.NoError(t, os.MkdirAll(node.Dir, 0o700))
	require.NoError(t, datadir.WriteJSON(node.file(), node))
	require.NoError(t, n.Remove("first"))
	assert.True(t, n.Choose("second"), "there is no real node")
	left, err := List(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "the next start starts it")
}
