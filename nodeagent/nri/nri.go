// Package nri is a plugin of the container runtime, by its Node Resource Interface: the runtime asks it before
// it creates a container, tells for which pod, and makes the changes that it answers.
package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
)

const (
	name = "gpuplan"
	// index is the place among the plugins of the runtime, which are asked in its order.
	index = "50"
	// firstRetry is how long to wait after the first failure; each further one doubles it, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// answerTimeout is below the 2 seconds after which the runtime goes on without the plugin.
	answerTimeout = 1500 * time.Millisecond
)

// Container is what the runtime tells about a container.
type Container struct {
	Pod    types.NamespacedName
	PodUID types.UID
	Name   string
	// Env is its environment, with what the kubelet and CDI have added.
	Env []string
	// Pending means that CDI has given it [cdi.Pending].
	Pending bool
}

// Getenv returns the value of a variable that the container will have.
func (c Container) Getenv(name string) (value string, ok bool) {
	for _, entry := range slices.Backward(c.Env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Plugin is a plugin of the runtime that listens at a socket. All fields must be set.
type Plugin struct {
	Socket string
	// Root is the root of the folder dev of the node.
	Root string
	// Create returns what a container gets beside what it has, nil for nothing; with an error the container is not
	// created, and the pod's events have it. When it has not answered in time, its context has ended, and the container is not created.
	Create func(context.Context, Container) (cdi.Edits, error)
	// Found takes in the containers that the runtime has when it begins to ask.
	Found func(context.Context, []Container)
	// Ended is called when a container has ended.
	Ended func()
	Log   *slog.Logger

	asked atomic.Bool

	mu sync.Mutex
	// running are the pods of the containers that run, by the IDs of these.
	running map[string]types.UID
}

// Asked reports whether the runtime asks the plugin about each container.
func (p *Plugin) Asked() bool { return p.asked.Load() }

// Runs reports whether a container of a pod runs, when [Plugin.Asked].
func (p *Plugin) Runs(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(p.running)), pod)
}

// Run is the runtime's plugin until ctx ends. It waits for a runtime that does not listen, or that starts again.
func (p *Plugin) Run(ctx context.Context) {
	p.running = map[string]types.UID{}
	retry, said := firstRetry, ""
	for {
		err := p.connect(ctx)
		if p.asked.Swap(false) {
			retry, said = firstRetry, ""
		}
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != said { // a runtime without the interface is said once
			p.Log.Info("the container runtime does not ask about containers", "socket", p.Socket, "reason", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
}

// connect is the plugin of the runtime that listens now, until it stops.
func (p *Plugin) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", p.Socket)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it has no Node Resource Interface, or none that is enabled")
	}
	if err != nil {
		return fmt.Errorf("connect to the container runtime: %w", err)
	}
	watched := &watched{Conn: connection, lost: make(chan struct{})}
	defer func() { _ = watched.Close() }()
	plugin, err := stub.New(p, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(watched),
		stub.WithLogger(logger{p.Log}), stub.WithOnClose(func() {}))
	if err != nil {
		return fmt.Errorf("make a plugin of the container runtime: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- plugin.Run(ctx) }()
	select {
	case err := <-ended:
		return fmt.Errorf("the container runtime has ended the connection: %w", err)
	case <-watched.lost: // the stub itself waits for ever when the runtime goes before it has configured the plugin
		return errors.New("the container runtime has gone")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Synchronize is called by the runtime once it asks the plugin; what runs already stays as it is. The runtime does not wait for [Plugin.Found].
func (p *Plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	p.Log.Info("the container runtime asks about containers", "socket", p.Socket)
	sandboxes := map[string]*api.PodSandbox{}
	for _, pod := range pods {
		sandboxes[pod.GetId()] = pod
	}
	var found []Container
	running := map[string]types.UID{}
	for _, c := range containers {
		if pod := sandboxes[c.GetPodSandboxId()]; pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			found = append(found, containerOf(pod, c))
			running[c.GetId()] = types.UID(pod.GetUid())
		}
	}
	p.mu.Lock()
	p.running = running
	p.mu.Unlock()
	p.asked.Store(true)
	go p.Found(context.WithoutCancel(ctx), found)
	return nil, nil
}

// StartContainer is called by the runtime before it starts a container.
func (p *Plugin) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[c.GetId()] = types.UID(pod.GetUid())
	return nil
}

// StopContainer is called by the runtime when a container has ended.
func (p *Plugin) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.RemoveContainer(ctx, pod, c)
}

// RemoveContainer is called by the runtime before it removes a container.
func (p *Plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	delete(p.running, c.GetId())
	p.mu.Unlock()
	p.Ended()
	return nil
}

func containerOf(pod *api.PodSandbox, c *api.Container) Container {
	return Container{
		Pod: types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}, PodUID: types.UID(pod.GetUid()),
		Name: c.GetName(), Env: c.GetEnv(),
		Pending: slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return m.GetDestination() == cdi.PendingPath }),
	}
}

// CreateContainer is called by the runtime before it creates a container.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	asked := containerOf(pod, c)
	edits, err := p.create(ctx, asked)
	if err != nil || edits == nil {
		return nil, nil, err
	}
	change, err := adjustment(edits, p.Root)
	if err != nil {
		return nil, nil, err
	}
	if asked.Pending {
		change.RemoveMount(cdi.PendingPath)
	}
	return change, nil, nil
}

// create asks Create, which may wait for others, and answers in time.
func (p *Plugin) create(ctx context.Context, c Container) (cdi.Edits, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	type answer struct {
		edits cdi.Edits
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		edits, err := p.Create(ctx, c)
		answers <- answer{edits, err}
	}()
	select {
	case a := <-answers:
		return a.edits, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the node agent does not know in time what container %s is to get: the kubelet tries again", c.Name)
	}
}

// watched tells when a connection cannot be read any more.
type watched struct {
	net.Conn
	lost chan struct{}
	told atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !w.told.Swap(true) {
		close(w.lost)
	}
	return n, err
}

// logger writes what the library has to say.
type logger struct{ *slog.Logger }

func (l logger) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.Enabled(ctx, level) {
		l.Log(ctx, level, "NRI: "+fmt.Sprintf(format, args...))
	}
}

func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof is of no interest to anybody but who writes plugins.
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelError, format, args)
}
