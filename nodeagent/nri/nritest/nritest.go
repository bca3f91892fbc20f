// Package nritest is a container runtime in tests, as far as plugins of its Node Resource Interface see it.
package nritest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/stretchr/testify/require"
)

// Runtime is a container runtime that listens to plugins.
type Runtime struct {
	t *testing.T
	// Socket is where it listens once it is started.
	Socket string
	// Registered receives the index and name of each plugin that registers, Plugins those that are asked from then on.
	Registered chan string
	Plugins    chan api.PluginService

	mu       sync.Mutex
	listener net.Listener
	trunks   []net.Conn
	servers  []*ttrpc.Server
	stuck    bool
	refuses  error
	has      *api.SynchronizeRequest
}

// New makes a runtime that is not started yet.
func New(t *testing.T) *Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	r := &Runtime{t: t, has: &api.SynchronizeRequest{}, Socket: filepath.Join(dir, "nri.sock"), Registered: make(chan string, 10), Plugins: make(chan api.PluginService, 10)}
	t.Cleanup(func() {
		r.Stop()
		_ = os.RemoveAll(dir)
	})
	return r
}

// Behave sets what goes wrong: a runtime that is stuck never configures a plugin, one that refuses answers so to registrations.
func (r *Runtime) Behave(stuck bool, refuses error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck, r.refuses = stuck, refuses
}

// Has gives it a container of a pod that it has created before a plugin comes.
func (r *Runtime) Has(pod *api.PodSandbox, container *api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod.Id = pod.GetUid()
	container.PodSandboxId = pod.GetId()
	r.has.Pods, r.has.Containers = append(r.has.Pods, pod), append(r.has.Containers, container)
}

// Connections counts the plugins that have connected since it was started.
func (r *Runtime) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.trunks)
}

// Create asks a plugin about a container, as the runtime does before it creates one.
func Create(t *testing.T, plugin api.PluginService, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := plugin.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: container})
	return answer.GetAdjust(), err
}

// Started tells a plugin that a container starts.
func Started(t *testing.T, plugin api.PluginService, pod *api.PodSandbox, container *api.Container) {
	t.Helper()
	_, err := plugin.StateChange(t.Context(), &api.StateChangeEvent{Event: api.Event_START_CONTAINER, Pod: pod, Container: container})
	require.NoError(t, err)
}

// Ended tells a plugin that a container has ended.
func Ended(t *testing.T, plugin api.PluginService, pod *api.PodSandbox, container *api.Container) {
	t.Helper()
	_, err := plugin.StopContainer(t.Context(), &api.StopContainerRequest{Pod: pod, Container: container})
	require.NoError(t, err)
}

// Start listens.
func (r *Runtime) Start() {
	r.t.Helper()
	listener, err := net.Listen("unix", r.Socket)
	require.NoError(r.t, err)
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	go func() {
		for {
			trunk, err := listener.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.trunks = append(r.trunks, trunk)
			r.mu.Unlock()
			go r.serve(trunk)
		}
	}()
}

// Stop ends as a runtime that is killed, or starts again.
func (r *Runtime) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		_ = r.listener.Close()
	}
	for _, trunk := range r.trunks {
		_ = trunk.Close()
	}
	for _, server := range r.servers {
		_ = server.Close()
	}
	r.listener, r.trunks, r.servers = nil, nil, nil
}

// connection is one plugin's.
type connection struct {
	*Runtime
	plugin api.PluginService
}

func (r *Runtime) serve(trunk net.Conn) {
	mux := multiplex.Multiplex(trunk)
	listener, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return
	}
	conn, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		return
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return
	}
	api.RegisterRuntimeService(server, &connection{r, api.NewPluginClient(ttrpc.NewClient(conn))})
	r.mu.Lock()
	r.servers = append(r.servers, server)
	r.mu.Unlock()
	_ = server.Serve(context.Background(), listener)
}

func (c *connection) RegisterPlugin(_ context.Context, request *api.RegisterPluginRequest) (*api.Empty, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses != nil {
		return nil, c.refuses
	}
	c.Registered <- request.PluginIdx + "-" + request.PluginName
	if !c.stuck {
		go c.configure()
	}
	return &api.Empty{}, nil
}

// configure is what a runtime does with a plugin that has registered.
func (c *connection) configure() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := c.plugin.Configure(ctx, &api.ConfigureRequest{RuntimeName: "fake", RuntimeVersion: "1", RequestTimeout: 2000, RegistrationTimeout: 5000})
	if err != nil {
		return
	}
	if mask := api.EventMask(answer.Events); !mask.IsSet(api.Event_CREATE_CONTAINER) {
		return
	}
	c.mu.Lock()
	has := c.has
	c.mu.Unlock()
	if _, err := c.plugin.Synchronize(ctx, has); err != nil {
		return
	}
	c.Plugins <- c.plugin
}

func (c *connection) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}
