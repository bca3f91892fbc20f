// Package programs finds the programs of others that real nodes run.
package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Packages are the packages of Debian and Ubuntu that real nodes need.
const Packages = "containerd runc containernetworking-plugins iproute2"

// install is how they get there.
const install = "install the packages: apt-get install " + Packages

// pluginFolders are where distributions and Kubernetes' documents put network plugins.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// Programs are those of this machine.
type Programs struct {
	// Containerd is its path, Version what it is of.
	Containerd string
	Version    Version
	// Plugins is the folder of the network plugins.
	Plugins string
}

// Find finds them. An error says what this machine lacks for real nodes.
func Find() (Programs, error) {
	if os.Geteuid() != 0 {
		return Programs{}, errors.New("real nodes need root: their containers have namespaces and control groups")
	}
	var p Programs
	for _, program := range []string{"containerd", "runc", "ip"} {
		path, err := exec.LookPath(program)
		if err != nil {
			return Programs{}, fmt.Errorf("real nodes need the program %s: %w; %s", program, err, install)
		}
		if program == "containerd" {
			p.Containerd = path
		}
	}
	for _, folder := range pluginFolders {
		if _, err := os.Stat(filepath.Join(folder, "host-local")); err == nil {
			p.Plugins = folder
			break
		}
	}
	if p.Plugins == "" {
		return Programs{}, fmt.Errorf("real nodes need network plugins in one of %s; %s", strings.Join(pluginFolders, ", "), install)
	}
	output, err := exec.Command(p.Containerd, "--version").Output()
	if err != nil {
		return Programs{}, fmt.Errorf("ask containerd for its version: %w", err)
	}
	p.Version, err = versionIn(string(output))
	return p, err
}

// Version is a version of containerd.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Current reports whether containerd has the configuration of version 2.0 and later.
func (v Version) Current() bool { return v.Major > 1 }

// GivesDevices reports whether containerd can be told the GPUs of a container: 1.7 and later can.
func (v Version) GivesDevices() bool { return v.Current() || v.Minor >= 7 }

var versionNumber = regexp.MustCompile(`\sv?(\d+)\.(\d+)\.\d+`)

// versionIn reads what containerd --version prints.
func versionIn(output string) (Version, error) {
	match := versionNumber.FindStringSubmatch(output)
	if match == nil {
		return Version{}, fmt.Errorf("containerd --version prints no version: %q", output)
	}
	major, _ := strconv.Atoi(match[1]) // digits
	minor, _ := strconv.Atoi(match[2])
	return Version{major, minor}, nil
}
