package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/registry"
)

// containerdTemplate is the configuration of containerd: of version 2 for containerd 1, of
// version 3 for containerd 2. What an older one does not know (CDI, NRI) it passes over.
// Where this process may not lower a process's score for the killer of processes, nobody below
// it may; restrict_oom_score_adj keeps runc from trying.
var containerdTemplate = template.Must(template.New("containerd.toml").Parse(`version = {{if .Current}}3{{else}}2{{end}}
root = "{{.Dir}}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{{.Socket}}"

[ttrpc]
address = "{{.Socket}}.ttrpc"

[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "{{.NRI}}/nri.sock"
{{if .Current}}
[plugins."io.containerd.cri.v1.images"]
snapshotter = "{{.Snapshotter}}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{{.Pause}}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{{.Registries}}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
cdi_spec_dirs = ["{{.CDI}}"]
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{{.Plugins}}"]
conf_dir = "{{.Networks}}"
{{else}}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{{.Pause}}"
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
stream_server_address = "127.0.0.1"
enable_cdi = true
cdi_spec_dirs = ["{{.CDI}}"]
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{{.Snapshotter}}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{{.Plugins}}"
conf_dir = "{{.Networks}}"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{{.Registries}}"
{{end}}`))

// writeContainerd writes containerd's configuration of a node, with the address of the
// registry from which it pulls every image.
func writeContainerd(node Node, with programs.Programs, registryAddress string) error {
	snapshotter, err := snapshotterOn(node.Dir)
	if err != nil {
		return err
	}
	var config strings.Builder
	err = containerdTemplate.Execute(&config, map[string]any{
		"Current": with.Version.Current(), "Dir": node.Dir, "Socket": node.containerdSocket(), "NRI": node.NRI(), "CDI": node.CDI(),
		"Snapshotter": snapshotter, "Pause": registry.PauseImage, "Registries": node.registries(), "Plugins": with.Plugins, "Networks": node.networks(),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(node.containerdConfig(), []byte(config.String()), 0o600); err != nil {
		return err
	}
	hosts := filepath.Join(node.registries(), "_default")
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		return err
	}
	// Containerd 1.6 takes no file without a mirror; the server is asked where that fails.
	url := "http://" + registryAddress
	return os.WriteFile(filepath.Join(hosts, "hosts.toml"), fmt.Appendf(nil, "server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", url, url), 0o600)
}

// overlayMagic is the type of an overlay file system, as statfs(2) has it.
const overlayMagic = 0x794c7630

// snapshotterOn is how containerd makes the file systems of containers below a directory: an
// overlay cannot be made on another, such as that of a container in which the platform runs.
func snapshotterOn(dir string) (string, error) {
	var system syscall.Statfs_t
	if err := syscall.Statfs(dir, &system); err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	if system.Type == overlayMagic {
		return "native", nil
	}
	return "overlayfs", nil
}
