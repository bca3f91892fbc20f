package realnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/controlplane"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/kubelet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
)

// Command is how the platform calls this program as the first process of a node; the node's
// directory follows.
const Command = "node"

// longestSocket is how long the path of a socket may be (sun_path of unix(7), less its end).
const longestSocket = 107

// longestPlugin is room for the name of a device plugin's socket.
const longestPlugin = 40

// Options say what real nodes there may be, and what they are made of.
type Options struct {
	Dir datadir.Dir
	// Limit is how many nodes may be real; those that are there already stay.
	Limit     int
	Plane     *controlplane.ControlPlane
	Processes *process.Registry
	// Registry is the address of the registry from which all images come.
	Registry string
}

// Nodes are the real nodes of a running platform.
type Nodes struct {
	Options
	programs programs.Programs
	network  netip.Prefix

	mu sync.Mutex
	// chosen are the names of those that are real, or are about to be.
	chosen  map[string]bool
	running map[string]*running
}

// running is a node whose first process runs.
type running struct {
	Node
	end   context.CancelFunc
	ended chan struct{}
	// failed takes the exit code of a first process that ends by itself.
	failed chan int
}

// CheckPath refuses a data directory that lies too deep for the sockets of real nodes.
func CheckPath(dir datadir.Dir) error {
	if length := len(Node{Dir: slotDir(dir, Most-1)}.DevicePlugins()) + 1 + longestPlugin; length > longestSocket {
		return fmt.Errorf("the path of the data directory is %d characters too long for the sockets of real nodes: choose another one with --data-dir", length-longestSocket)
	}
	return nil
}

// Start starts the real nodes that the platform had, and returns when they serve.
func Start(ctx context.Context, options Options) (*Nodes, error) {
	if options.Limit > Most {
		return nil, fmt.Errorf("%d real nodes are asked for; there can be %d", options.Limit, Most)
	}
	n := &Nodes{Options: options, chosen: map[string]bool{}, running: map[string]*running{}}
	var err error
	if n.programs, err = programs.Find(); err != nil {
		return nil, err
	}
	if err := CheckPath(options.Dir); err != nil {
		return nil, err
	}
	if n.network, err = ensureBridge(Identity(options.Dir)); err != nil {
		return nil, err
	}
	there, err := List(options.Dir)
	if err != nil {
		return nil, err
	}
	for _, node := range there {
		n.chosen[node.Name] = true
		if err := n.start(node); err != nil {
			return nil, errors.Join(err, n.Stop())
		}
	}
	for _, node := range there {
		if err := n.wait(ctx, node.Name); err != nil {
			return nil, errors.Join(err, n.Stop())
		}
	}
	return n, nil
}

// Choose tells whether the node of that name is to be real: it is so already, or there are
// fewer than there may be.
func (n *Nodes) Choose(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.chosen) < n.Limit {
		n.chosen[name] = true
	}
	return n.chosen[name]
}

// HardwareDir is the folder with the description of a node's GPUs; false for a node that is not real.
func (n *Nodes) HardwareDir(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.running[name]
	if r == nil {
		return "", false
	}
	return r.Hardware(), true
}

// Ensure makes the node of that name, whose Node object exists, and returns when it serves.
func (n *Nodes) Ensure(ctx context.Context, name string, machine kubelet.Machine) error {
	if err := n.add(name, machine); err != nil {
		return err
	}
	return n.wait(ctx, name)
}

func (n *Nodes) add(name string, machine kubelet.Machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running[name] != nil {
		return nil
	}
	taken := map[int]bool{}
	for _, other := range n.running {
		taken[other.slot] = true
	}
	for slot := range Most {
		if !taken[slot] {
			return n.start(Node{Name: name, Machine: machine, Dir: slotDir(n.Dir, slot), slot: slot})
		}
	}
	return fmt.Errorf("there are %d real nodes already", Most)
}

// start starts a node; the caller holds the lock, or is alone.
func (n *Nodes) start(node Node) error {
	if err := n.prepare(&node); err != nil {
		return fmt.Errorf("real node %s: %w", node.Name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.Dir.Log(node.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	spec := process.Spec{
		Name: node.Name, Path: self, Args: []string{Command, node.Dir}, Dir: node.Dir, Output: log, Isolated: true,
		Env: []string{"PATH=" + filepath.Dir(n.programs.Containerd) + ":" + os.Getenv("PATH"), "HOME=/root"},
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Node: node, end: cancel, ended: make(chan struct{}), failed: make(chan int, 1)}
	n.running[node.Name] = r
	go func() {
		defer close(r.ended)
		defer log.Close()
		n.Processes.Keep(ctx, func() time.Duration { return 0 },
			func(context.Context) (process.Spec, error) { return spec, nil },
			func(status process.Status) {
				if status.BackOff > 0 && status.Last != nil {
					select {
					case r.failed <- status.Last.Code:
					default:
					}
				}
			})
	}()
	return nil
}

// prepare writes what the node is started from.
func (n *Nodes) prepare(node *Node) error {
	for _, dir := range []string{node.DevicePlugins(), node.CDI(), node.NRI(), node.Hardware(), node.networks(), filepath.Join(node.Dir, "pods")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	bridge := Identity(n.Dir)
	address, _, _ := addresses(n.network, node.slot)
	node.Address = address.String()
	files, err := n.Plane.NodeFiles(node.Name, net.IP(address.AsSlice()), filepath.Join(node.Dir, "kubeconfig"))
	if err != nil {
		return err
	}
	cgroup := path.Join("/", bridge, strconv.Itoa(node.slot))
	err = datadir.WriteJSON(node.kubeletOptions(), kubelet.Options{
		Node: node.Name, Machine: node.Machine, Address: node.Address, Dir: node.kubeletDir(), LogDir: filepath.Join(node.Dir, "pods"),
		Runtime: node.containerdSocket(), CgroupRoot: cgroup,
		Kubeconfig: files.Kubeconfig, CertFile: files.Serving.CertFile, KeyFile: files.Serving.KeyFile, ClientCAFile: files.CAFile,
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		writeContainerd(*node, n.programs, n.Registry),
		writeNetwork(filepath.Join(node.networks(), "10-bridge.conflist"), bridge, n.network, node.slot),
		ip("address", "replace", node.Address+"/32", "dev", bridge),
		mountedCgroups.ensure(cgroup))
	if err != nil {
		return err
	}
	return datadir.WriteJSON(node.file(), node) // last, since it makes the node one that there is
}

// wait returns when the node's kubelet serves.
func (n *Nodes) wait(ctx context.Context, name string) error {
	n.mu.Lock()
	r := n.running[name]
	n.mu.Unlock()
	if r == nil {
		return fmt.Errorf("there is no real node %s", name)
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(r.Address, strconv.Itoa(kubelet.Port)))
		if err == nil {
			return connection.Close()
		}
		select {
		case code := <-r.failed:
			return fmt.Errorf("the real node %s ends with code %d again and again; see %s", name, code, n.Dir.Log(name))
		case <-r.ended:
			return fmt.Errorf("the real node %s was stopped", name)
		case <-ctx.Done():
			return fmt.Errorf("the kubelet of the real node %s does not serve yet: %w; see %s", name, ctx.Err(), n.Dir.Log(name))
		case <-ticker.C:
		}
	}
}

// Remove ends a node and deletes what it keeps; one that is gone is success.
func (n *Nodes) Remove(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.running[name]
	if r == nil {
		return n.forget(name)
	}
	r.end()
	<-r.ended
	bridge := Identity(n.Dir)
	err := errors.Join(
		mountedCgroups.remove(path.Join("/", bridge, strconv.Itoa(r.slot))),
		ip("address", "delete", r.Address+"/32", "dev", bridge),
		os.RemoveAll(r.Dir))
	if err != nil {
		return fmt.Errorf("remove the real node %s: %w", name, err)
	}
	delete(n.running, name)
	delete(n.chosen, name)
	return nil
}

// forget deletes what a node keeps that does not run, as one that could not be started, so that another may be real in its place.
func (n *Nodes) forget(name string) error {
	there, err := List(n.Dir)
	for _, node := range there {
		if node.Name == name {
			err = errors.Join(err, os.RemoveAll(node.Dir))
		}
	}
	if err != nil {
		return fmt.Errorf("remove the real node %s: %w", name, err)
	}
	delete(n.chosen, name)
	return nil
}

// Stop ends all nodes, which stay to be started again, and leaves nothing of them but files.
func (n *Nodes) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.running {
		r.end()
	}
	for _, r := range n.running {
		<-r.ended
	}
	return Clean(n.Dir)
}

// Clean removes what the real nodes of a platform that was killed have left on this machine
// beside their files. Their processes have been killed.
func Clean(dir datadir.Dir) error {
	name := Identity(dir)
	return errors.Join(mountedCgroups.remove("/"+name), removeBridge(name))
}

// Identity is the name of a platform's bridge and of its control group. It comes from the data
// directory, so that a later run finds them.
func Identity(dir datadir.Dir) string {
	sum := sha256.Sum256([]byte(dir))
	return "gpuplan-" + hex.EncodeToString(sum[:3])
}
