// Package datadir is the directory in which the local platform keeps everything:
// where things are in it, who holds it, and what the running platform says of itself.
package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

// MainCluster is the name of the control plane of a platform that is no fleet, HubCluster of the one that
// a fleet has in its place.
const (
	MainCluster = "main"
	HubCluster  = "hub"
)

// MemberCluster is the name of a fleet's member cluster; the first has the number 1.
func MemberCluster(number int) string { return "member-" + strconv.Itoa(number) }

// ErrHeld says that another process holds the directory.
var ErrHeld = errors.New("the data directory is in use")

// Dir is the absolute path of a data directory.
type Dir string

// Open returns the directory at path, which need not exist yet.
func Open(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("data directory %q: %w", path, err)
	}
	if found, err := os.Stat(abs); err == nil && !found.IsDir() {
		return "", fmt.Errorf("%s is a file: name a folder with --data-dir, which need not exist yet", abs)
	}
	return Dir(abs), nil
}

// Create makes the directory and those that every part uses. Only its owner may
// read it: it holds keys.
func (d Dir) Create() error {
	for _, dir := range []string{d.path("log"), d.path("clusters"), d.Hardware()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w; choose another one with --data-dir", err)
		}
	}
	return nil
}

// Purge deletes the directory with everything in it.
func (d Dir) Purge() error {
	if _, err := os.Stat(d.path("lock")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not deleted: the platform never used it as its data directory", d)
	}
	return os.RemoveAll(string(d))
}

// Log is the log file of a part.
func (d Dir) Log(part string) string { return filepath.Join(string(d), "log", part+".log") }

// Kubeconfig is the administrator's kubeconfig of a control plane.
func (d Dir) Kubeconfig(cluster string) string {
	if cluster == MainCluster {
		return d.path("kubeconfig")
	}
	return filepath.Join(d.Cluster(cluster), "kubeconfig")
}

// Cluster is the directory of a control plane.
func (d Dir) Cluster(name string) string { return filepath.Join(string(d), "clusters", name) }

// Member is the data directory of a fleet's member cluster, which is a platform of its own.
func (d Dir) Member(cluster string) Dir { return Dir(d.Cluster(cluster)) }

// Members are the names of the member clusters that were ever started here.
func (d Dir) Members() (names []string) {
	for number := 1; ; number++ {
		name := MemberCluster(number)
		if _, err := os.Stat(d.Member(name).path("lock")); err != nil {
			return names
		}
		names = append(names, name)
	}
}

// Cloud is the directory of the cloud API emulator.
func (d Dir) Cloud() string { return d.path("cloud") }

// Hardware is the directory with one hardware description for each simulated node.
func (d Dir) Hardware() string { return d.path("hardware") }

// RealNodes is the directory with one directory for each real node.
func (d Dir) RealNodes() string { return d.path("nodes") }

// Run is the directory for what belongs to one run: processes and their files.
func (d Dir) Run() string { return d.path("run") }

// Ports is the file that remembers ports.
func (d Dir) Ports() string { return d.path("ports.json") }

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// Lock takes the directory for this process, until the process ends in any way.
// It returns [ErrHeld] when another process has it.
func (d Dir) Lock() error {
	// The lock lasts as long as the descriptor is open, so nothing may close it: not
	// even the collector, which closes an [os.File] that nobody refers to.
	fd, err := syscall.Open(d.path("lock"), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("lock the data directory: %w", err)
	}
	err = syscall.FcntlFlock(uintptr(fd), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return ErrHeld
	}
	if err != nil {
		return fmt.Errorf("lock the data directory: %w", err)
	}
	return nil
}

// Holder returns the number of the process that holds the directory, 0 when none does.
// The process that holds it must not ask: that would end its hold.
func (d Dir) Holder() (int, error) {
	file, err := os.Open(d.path("lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("ask who holds the data directory: %w", err)
	}
	if lock.Type == syscall.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}

// State is what the platform says of itself. It is true only while the directory is held.
type State struct {
	Server    process.Identity `json:"server"`
	StartedAt time.Time        `json:"startedAt"`
	// ReadySeconds is the time from start to ready, 0 while starting.
	ReadySeconds float64   `json:"readySeconds,omitempty"`
	Version      string    `json:"kubernetesVersion,omitempty"`
	Clusters     []Cluster `json:"clusters,omitempty"`
	Cloud        Cloud     `json:"cloud,omitzero"`
}

// Cluster is one control plane.
type Cluster struct {
	Name       string `json:"name"`
	URL        string `json:"url"`
	Kubeconfig string `json:"kubeconfig"`
}

// Cloud is the cloud API emulator.
type Cloud struct {
	URL       string `json:"url"`
	ClusterID string `json:"clusterID"`
	RegionID  string `json:"regionID"`
}

// ReadState returns the state that was written last; fs.ErrNotExist when there is none.
func (d Dir) ReadState() (State, error) {
	var state State
	data, err := os.ReadFile(d.path("state.json"))
	if err != nil {
		return State{}, err
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return State{}, fmt.Errorf("%s: %w", d.path("state.json"), err)
	}
	return state, nil
}

// WriteState replaces the state.
func (d Dir) WriteState(state State) error { return WriteJSON(d.path("state.json"), state) }

// WriteJSON replaces a file in one step, so that a reader or a crash never meets half of it.
func WriteJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	return WriteFile(file, append(data, '\n'))
}

// WriteFile is WriteJSON for any content.
func WriteFile(file string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
