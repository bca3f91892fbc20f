// Package deviceplugin gives containers the GPUs that the scheduler has decided: it offers a node's GPUs to the kubelet
// by the device plugin API, and when a container is about to be created, writes a CDI specification with exactly the
// GPUs of its pod's allocation record.
//
// The kubelet asks a plugin for devices without telling for whom (Allocate), and chooses the devices itself.
// So the answer is only a name, made of these devices. Right before it creates the container, each time, it calls
// PreStartContainer with the same devices, and takes what Allocate has answered afterwards
// (pkg/kubelet/cm/devicemanager, GetDeviceRunContainerOptions). In between, its pod-resources API tells which
// container has these devices. No pod is ever guessed by what it asks for.
package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri"
)

const (
	// firstRetry is how long to wait after the first failure; each further one doubles it, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// kubeletSocket is the name of the kubelet's socket in its folder of device plugins, checkpoint that of the file in which it
	// keeps who has which devices.
	kubeletSocket = "kubelet.sock"
	checkpoint    = "kubelet_internal_checkpoint"
)

// Agent serves the device plugins of one node. All fields but Boot, Enforcer, NRI and Beat must be set.
type Agent struct {
	Client *kube.Client
	// Nodes is what the cluster has about the node: its mode, and its GPUs as the agent has published them, by the indexes
	// that records use.
	Nodes *cluster.Nodes
	Node  string
	// Instance is this process as it is published, and Boot the identity of the machine's boot, "" when unknown.
	Instance, Boot string
	Events         record.EventRecorder
	Log            *slog.Logger
	// PluginDir is the kubelet's folder of device plugins, PodResources the socket of its pod-resources API.
	PluginDir, PodResources string
	// CDI is the folder for specifications; VendorCDI are those in which NVIDIA's own may be.
	CDI       cdi.Dir
	VendorCDI []string
	// Root is the root of the folders dev and proc of the node.
	Root string
	// Simulated means that the GPUs have no device nodes.
	Simulated bool
	// Enforcer keeps containers to their parts of GPUs, nil for none.
	Enforcer Enforcer
	// NRI is the socket of the container runtime's Node Resource Interface, "" not to use it.
	NRI string
	// Beat, unless nil, is called whenever the loop goes round, at least once a minute.
	Beat func()

	// ready means that the pods of the node are known.
	ready   atomic.Bool
	pods    *pods
	runtime *nri.Plugin
	// noCDI means that the runtime has shown that it reads no CDI specifications.
	noCDI     atomic.Bool
	confirmer *confirmer
	sharing   sharing
	left      leftovers
	servers   map[string]*server
	// served are the resources that the kubelet has from this plugin.
	served atomic.Pointer[[]string]
	// out are the resources that are left to another plugin, with the reason.
	out map[string]string
	// seen are the plugins that were seen beside resources of this one, and patience how long to wait when they have gone.
	seen     map[string]stranger
	patience time.Duration
	// watch makes a watcher of folders; firstRetry is how long to wait after the first failure.
	watch      func() (*fsnotify.Watcher, error)
	firstRetry time.Duration
	// lost receives when the kubelet has left a server, moved when pods have changed.
	lost, moved chan struct{}
}

// Run serves until ctx ends. What fails is tried again; an error means that it cannot begin.
func (a *Agent) Run(ctx context.Context) error {
	a.servers, a.out, a.seen = map[string]*server{}, map[string]string{}, map[string]stranger{}
	a.patience, a.firstRetry = cmp.Or(a.patience, patience), cmp.Or(a.firstRetry, firstRetry)
	if a.watch == nil {
		a.watch = fsnotify.NewWatcher
	}
	a.lost, a.moved = make(chan struct{}, 1), make(chan struct{}, 1)
	a.confirmer = newConfirmer(a)
	a.sharing.starting, a.sharing.leaving = map[types.UID]starting{}, map[types.UID]time.Time{}
	a.left.pods = map[types.UID]leftover{}
	moved := func() { wake(a.moved) }
	a.runtime = &nri.Plugin{Socket: a.NRI, Root: a.Root, Create: a.created, Found: a.found, Ended: moved, Log: a.Log}
	followed, err := followPods(ctx, a.Client, a.Node, moved, a.gone)
	if err != nil {
		return err
	}
	a.pods = followed
	go a.confirmer.run(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), followed.synced) {
		return nil
	}
	a.ready.Store(true)
	a.removeStale()
	defer a.stop()
	if a.NRI != "" {
		go a.runtime.Run(ctx)
	}
	changed := a.Nodes.Follow(a.Node)
	var shared <-chan struct{}
	if a.Enforcer != nil {
		shared = a.Enforcer.Changed()
	}
	var watcher *fsnotify.Watcher // nil while too many are open, say: then it is looked at after each retry
	var events <-chan fsnotify.Event
	var failures <-chan error
	defer func() {
		if watcher != nil {
			_ = watcher.Close()
		}
	}()
	retry, told := a.firstRetry, ""
	look := true
	for {
		if a.Beat != nil {
			a.Beat()
		}
		var err error
		if watcher == nil {
			if watcher, err = a.watch(); err == nil {
				events, failures = watcher.Events, watcher.Errors
			}
		}
		if err == nil { // before it is looked at, so that nothing is missed in between
			err = watcher.Add(a.PluginDir)
		}
		if err != nil {
			err = fmt.Errorf("watch the kubelet's folder of device plugins: %w", err)
		}
		node := a.Nodes.Get(cluster.Node, a.Node)
		if status, known := a.hardware(); node != nil && known { // a change of either wakes the loop; what is served goes on
			a.share(ctx, node, status)
			err = errors.Join(err, a.reconcile(ctx, node, status, look))
		}
		if ctx.Err() != nil {
			return nil
		}
		var again <-chan time.Time
		if err != nil {
			a.Log.Error("device plugins do not serve yet", "error", err, "retry", retry)
			if node != nil && retry == lastRetry && err.Error() != told { // it does not pass
				told = err.Error()
				a.Events.Event(node, corev1.EventTypeWarning, "DevicePluginFails", "the node agent does not serve as device plugin as it should: "+told)
			}
			again = time.After(retry)
			retry = min(2*retry, lastRetry)
		} else {
			retry, told = a.firstRetry, ""
			wait := min(lastRetry, a.patience) // nothing tells when another plugin has registered
			if a.waits() {
				wait = unheard
			}
			again = time.After(wait)
		}
		look = true
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			look = isSocket(event.Name)
		case err := <-failures:
			a.Log.Warn("the kubelet's folder of device plugins is not watched", "error", err)
		case <-changed:
			look = false
		case <-a.moved:
			look = false
		case <-shared:
			look = false
		case <-a.lost:
		case <-again:
		}
	}
}

func (a *Agent) stop() {
	for _, s := range a.servers {
		s.remove()
	}
}

// wake has a loop look again.
func wake(loop chan<- struct{}) {
	select {
	case loop <- struct{}{}:
	default: // it is about to
	}
}

// isSocket reports whether a file in the folder of device plugins may be a plugin's socket, or the kubelet's. The kubelet writes its checkpoint there with
// each container, by way of hidden files.
func isSocket(path string) bool {
	name := filepath.Base(path)
	return name != checkpoint && !strings.HasPrefix(name, ".")
}

// caught makes an error of a panic: what is wrong with one container must not end the agent, which publishes the GPUs of the node, too.
func (a *Agent) caught(err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("a fault of the node agent: %v", fault)
		a.Log.Error("a fault of the node agent", "panic", fault, "stack", string(debug.Stack()))
	}
}

// gone drops what is left of a pod that was deleted, once its containers have ended.
func (a *Agent) gone(pod *corev1.Pod) {
	if a.mayRun(pod) {
		a.leave(pod)
	} else {
		a.confirmer.forget(pod.UID)
	}
	a.sharing.end(pod.UID)
	if err := a.CDI.RemoveOwned(func(owner string) bool { return owner == string(pod.UID) }); err != nil {
		a.Log.Warn("CDI specifications of a pod that is gone stay", "error", err)
	}
}

// removeStale removes the specifications of pods that have gone while no agent ran.
func (a *Agent) removeStale() {
	present := map[string]bool{}
	for _, pod := range a.pods.list() {
		present[string(pod.UID)] = true
	}
	if err := errors.Join(a.CDI.RemoveDrafts(), a.CDI.RemoveOwned(func(owner string) bool { return !present[owner] })); err != nil {
		a.Log.Warn("CDI specifications of pods that are gone stay", "error", err)
	}
}

// hardware returns the node's GPUs as they are published, once this agent or another one has published them since the node has started.
func (a *Agent) hardware() (contract.GPUNodeStatus, bool) {
	obj := a.Nodes.Get(cluster.GPUNode, a.Node)
	if obj == nil {
		return contract.GPUNodeStatus{}, false
	}
	var node contract.GPUNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &node); err != nil {
		return contract.GPUNodeStatus{}, false
	}
	ours := node.Status.Agent != nil && node.Status.Agent.Instance == a.Instance
	return node.Status, len(node.Status.GPUs) > 0 && (ours || a.Boot == "" || node.Status.BootID == a.Boot)
}

// reconcile brings the servers to what the node offers, and registers them with the kubelet that runs. look means
// that something may have happened to the kubelet, or to other plugins.
func (a *Agent) reconcile(ctx context.Context, node *unstructured.Unstructured, status contract.GPUNodeStatus, look bool) error {
	kubelet, err := os.Lstat(filepath.Join(a.PluginDir, kubeletSocket))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its appearance wakes the loop
	}
	if err != nil {
		return fmt.Errorf("look for the kubelet: %w", err)
	}
	mode := placement.Mode(node.GetLabels()[contract.NodeModeLabel])
	resources := resourcesOf(mode)
	if !slices.Equal(resources, offer(mode, asked(a.pods.list()))) {
		// Who asks for a resource may have none of it: the kubelet admits pods that ask for what their node does not offer.
		used, err := a.used(ctx)
		if err != nil {
			return err
		}
		resources = offer(mode, used)
	}
	for resource, s := range a.servers {
		if !slices.Contains(resources, resource) {
			a.Log.Info("no longer offered", "resource", resource)
			s.remove()
			delete(a.servers, resource)
			delete(a.out, resource)
		}
	}
	var errs []error
	held := a.held(status.GPUs)
	for _, resource := range resources {
		if a.servers[resource] == nil {
			a.servers[resource] = a.newServer(resource)
		}
		errs = append(errs, a.serve(ctx, node, a.servers[resource], devicesOf(resource, status, held), kubelet, look))
	}
	var served []string
	for resource, s := range a.servers {
		if s.registered(kubelet) {
			served = append(served, resource)
		}
	}
	a.served.Store(&served)
	return errors.Join(errs...)
}

// waits reports whether the kubelet knows a server to which it does not listen yet.
func (a *Agent) waits() bool {
	for _, s := range a.servers {
		if s.waits() {
			return true
		}
	}
	return false
}

// serves reports whether the kubelet has a resource from this plugin.
func (a *Agent) serves(resource string) bool {
	served := a.served.Load()
	return served != nil && slices.Contains(*served, resource)
}

// serve offers a resource, unless another plugin offers GPUs: they would be given away twice, and of the same resource the kubelet would
// have two that it cannot tell apart. While pods run with GPUs that another has chosen, records may name the same.
func (a *Agent) serve(ctx context.Context, node *unstructured.Unstructured, s *server, devices []*pluginapi.Device, kubelet fs.FileInfo, look bool) error {
	if !look && s.registered(kubelet) && a.out[s.resource] == "" {
		s.set(devices, false)
		return nil
	}
	other, same, err := a.foreign(ctx, s.resource)
	if err != nil {
		return err
	}
	if other != "" {
		// The server goes on where it listens: pods with its devices may start again, and when the stream of the same resource ended, the kubelet
		// would count the other's devices as gone.
		for _, device := range devices {
			device.Health = pluginapi.Unhealthy
		}
		if s.set(devices, same); same {
			s.kubelet = nil
		}
		if a.out[s.resource] != other {
			a.out[s.resource] = other
			text := fmt.Sprintf("%s is not offered by the node agent: %s. Containers get the GPUs that the other plugin chooses, not those of their allocation records. Remove that plugin and drain the node, or leave out --device-plugins", s.resource, other)
			a.Log.Warn(text)
			a.Events.Event(node, corev1.EventTypeWarning, "DevicePluginStaysOut", text)
		}
		return nil
	}
	s.set(devices, false)
	delete(a.out, s.resource)
	if err := s.listen(); err != nil {
		return err
	}
	if s.registered(kubelet) {
		return nil
	}
	if !a.serves(s.resource) { // the kubelet may give it away before it answers
		served := []string{s.resource}
		if before := a.served.Load(); before != nil {
			served = append(served, *before...)
		}
		a.served.Store(&served)
	}
	if err := s.register(ctx, filepath.Join(a.PluginDir, kubeletSocket), kubelet); err != nil {
		return err
	}
	a.Log.Info("offered to the kubelet", "resource", s.resource, "devices", len(devices))
	return nil
}
