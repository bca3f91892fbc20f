// Package realnode runs the real nodes of the local platform: each has a kubelet, a containerd
// and containers, in mounts and process numbers of its own, so that with its first process all
// of it ends. What is left of a node then, which is its cgroups and the bridge of the platform,
// [Clean] removes.
package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/kubelet"
)

// Most is how many real nodes a platform has at most: so many ranges of addresses its network has.
const Most = 32

// Node is a real node, as its directory says.
type Node struct {
	Name string `json:"name"`
	// Address is that of its kubelet, on the bridge of the platform.
	Address string          `json:"address"`
	Machine kubelet.Machine `json:"machine"`
	// Dir holds what the node keeps, its images and containers too.
	Dir string `json:"-"`
	// slot numbers the nodes of a platform from 0; one that is gone leaves its number to another.
	slot int
}

// DevicePlugins is the directory of the sockets of the kubelet and of device plugins: in the node
// /var/lib/kubelet/device-plugins.
func (n Node) DevicePlugins() string { return filepath.Join(n.Dir, "device-plugins") }

// PodResources is the directory of the socket of the kubelet's pod resources API: in a usual
// node /var/lib/kubelet/pod-resources.
func (n Node) PodResources() string { return filepath.Join(n.kubeletDir(), "pod-resources") }

// CDI is the directory in which containerd looks for descriptions of devices (Container Device
// Interface): in a usual node /var/run/cdi. Containerd 1.6 does not look there.
func (n Node) CDI() string { return filepath.Join(n.Dir, "cdi") }

// NRI is the directory of the socket by which plugins of containerd connect (Node Resource
// Interface): in a usual node /var/run/nri. Containerd 1.6 has none.
func (n Node) NRI() string { return filepath.Join(n.Dir, "nri") }

// Hardware is the folder with the description of the node's GPUs.
func (n Node) Hardware() string { return filepath.Join(n.Dir, "hardware") }

// HostPath is where a directory of a usual node is on this machine; false for one that has no
// counterpart.
func (n Node) HostPath(path string) (string, bool) {
	switch filepath.Clean(path) {
	case "/var/lib/kubelet/device-plugins":
		return n.DevicePlugins(), true
	case "/var/lib/kubelet/pod-resources":
		return n.PodResources(), true
	case "/var/run/cdi", "/run/cdi":
		return n.CDI(), true
	case "/var/run/nri", "/run/nri":
		return n.NRI(), true
	}
	return "", false
}

func (n Node) containerdSocket() string { return filepath.Join(n.Dir, "containerd.sock") }
func (n Node) containerdConfig() string { return filepath.Join(n.Dir, "containerd.toml") }
func (n Node) kubeletDir() string       { return filepath.Join(n.Dir, "kubelet") }
func (n Node) kubeletOptions() string   { return filepath.Join(n.Dir, "kubelet.json") }
func (n Node) networks() string         { return filepath.Join(n.Dir, "cni") }
func (n Node) registries() string       { return filepath.Join(n.Dir, "registries") }
func (n Node) file() string             { return filepath.Join(n.Dir, "node.json") }

// List returns the real nodes of a platform, by number.
func List(dir datadir.Dir) ([]Node, error) {
	entries, err := os.ReadDir(dir.RealNodes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, entry := range entries {
		slot, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		node := Node{Dir: slotDir(dir, slot), slot: slot}
		data, err := os.ReadFile(node.file())
		if errors.Is(err, fs.ErrNotExist) {
			continue // one that was being made or removed
		}
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &node); err != nil {
			return nil, fmt.Errorf("%s: %w", node.file(), err)
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return a.slot - b.slot })
	return nodes, nil
}

// Find returns the real node of that name; false when there is none.
func Find(dir datadir.Dir, name string) (Node, bool, error) {
	nodes, err := List(dir)
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if err != nil || i < 0 {
		return Node{}, false, err
	}
	return nodes[i], true, nil
}

func slotDir(dir datadir.Dir, slot int) string {
	return filepath.Join(dir.RealNodes(), strconv.Itoa(slot))
}
