package deviceplugin

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
)

// callTimeout bounds a call to the kubelet.
const callTimeout = 10 * time.Second

// unheard is how long after a registration the kubelet may take to listen: it may have lost the server meanwhile.
const unheard = 5 * time.Second

// server offers one resource to the kubelet.
type server struct {
	pluginapi.UnimplementedDevicePluginServer

	resource string
	path     string
	cdi      cdi.Dir
	// start is asked before a container is created.
	start func(ctx context.Context, resource string, ids []string) error
	// lost is called when the kubelet has stopped listening to the devices.
	lost func()

	// grpc, socket and kubelet belong to the loop of the agent: the server that listens, its socket, and the
	// kubelet's to which it has registered; nil when not.
	grpc            *grpc.Server
	socket, kubelet fs.FileInfo
	since           time.Time // the registration

	mu      sync.Mutex
	devices []*pluginapi.Device
	// yields means that another plugin serves the resource: the kubelet would take devices of this one for the other's.
	yields bool
	// listeners counts the kubelet's open streams; left means that the last one has ended since it was registered.
	listeners int
	left      bool
	changed   chan struct{}
}

func (a *Agent) newServer(resource string) *server {
	return &server{
		resource: resource, path: filepath.Join(a.PluginDir, "gpuplan-"+strings.ReplaceAll(resource, "/", "-")+".sock"),
		cdi: a.CDI, start: a.start, lost: func() { wake(a.lost) }, changed: make(chan struct{}),
	}
}

// set replaces the devices, and whether they are told.
func (s *server) set(devices []*pluginapi.Device, yields bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := slices.EqualFunc(s.devices, devices, func(a, b *pluginapi.Device) bool { return a.ID == b.ID && a.Health == b.Health })
	if same && s.yields == yields {
		return
	}
	s.devices, s.yields = devices, yields
	close(s.changed)
	s.changed = make(chan struct{})
}

// listen opens the socket, unless it is open: a kubelet that starts removes it. Of two agents the one that started last has it. The socket
// gets its name when it listens: one that does not yet looks like that of an agent that has ended.
func (s *server) listen() error {
	if now, err := os.Lstat(s.path); s.grpc != nil && err == nil {
		if os.SameFile(now, s.socket) {
			return nil
		}
		if other, err := net.DialTimeout("unix", s.path, callTimeout); err == nil {
			_ = other.Close()
			return fmt.Errorf("another node agent offers %s at %s: end one of them", s.resource, s.path)
		}
	}
	s.stop()
	hidden := filepath.Join(filepath.Dir(s.path), fmt.Sprintf(".gpuplan-%x", rand.Uint64()))
	listener, err := net.Listen("unix", hidden)
	if err != nil {
		return fmt.Errorf("listen for the kubelet: %w", err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the socket may be another agent's by then
	}
	if s.socket, err = os.Lstat(hidden); err == nil {
		err = os.Rename(hidden, s.path)
	}
	if err != nil {
		_ = listener.Close()
		_ = os.Remove(hidden)
		return fmt.Errorf("listen for the kubelet: %w", err)
	}
	s.grpc = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s.grpc, s)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(s.grpc) // it ends with stop
	return nil
}

// stop ends the server; what the kubelet has of it is not offered any more.
func (s *server) stop() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	s.grpc, s.socket, s.kubelet = nil, nil, nil
}

// remove stops the server and removes its socket, unless that is another agent's.
func (s *server) remove() {
	if now, err := os.Lstat(s.path); err == nil && s.socket != nil && os.SameFile(now, s.socket) {
		_ = os.Remove(s.path)
	}
	s.stop()
}

// registered reports whether the kubelet behind a socket knows the server, and listens to it.
func (s *server) registered(kubelet fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kubelet != nil && !s.left && os.SameFile(s.kubelet, kubelet) && s.kubelet.ModTime().Equal(kubelet.ModTime()) &&
		(s.listeners > 0 || time.Since(s.since) < unheard)
}

// waits reports whether the kubelet that knows the server does not listen yet.
func (s *server) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kubelet != nil && s.listeners == 0
}

// register tells the kubelet behind a socket of the server.
func (s *server) register(ctx context.Context, path string, kubelet fs.FileInfo) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	connection, err := dial(path)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	s.mu.Lock()
	s.left = false
	s.mu.Unlock()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(s.path), ResourceName: s.resource, Options: s.options(),
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet: %w", s.resource, err)
	}
	s.kubelet, s.since = kubelet, time.Now()
	return nil
}

// dial makes a connection of its own for one call: one that waited for a socket to appear again would wait long.
func dial(path string) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to the kubelet at %s: %w", path, err)
	}
	return connection, nil
}

func (s *server) options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: givesGPUs(s.resource)}
}

// GetDevicePluginOptions implements the device plugin API.
func (s *server) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return s.options(), nil
}

// ListAndWatch implements the device plugin API.
func (s *server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	s.mu.Lock()
	s.listeners++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.listeners--
		s.left = s.left || s.listeners == 0
		s.mu.Unlock()
		s.lost()
	}()
	for {
		s.mu.Lock()
		devices, yields, changed := s.devices, s.yields, s.changed
		s.mu.Unlock()
		if !yields {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate implements the device plugin API. It is not told for whom it is asked, so it answers with the
// name of a CDI device of which the specification is written before the container is created. What is left of the
// container that had these devices before goes now, long before that. A runtime that knows no CDI gives no GPU, unless it asks by NRI.
func (s *server) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		allocated := &pluginapi.ContainerAllocateResponse{}
		if givesGPUs(s.resource) {
			name := cdi.Name(s.resource, container.DevicesIds)
			if err := s.cdi.Remove(name); err != nil {
				return nil, err
			}
			allocated.CdiDevices = []*pluginapi.CDIDevice{{Name: cdi.Qualified(name)}}
			allocated.Envs = map[string]string{contract.VisibleDevicesEnv: contract.NoVisibleDevices, contract.GivenGPUsEnv: contract.NoGPUs}
		}
		response.ContainerResponses = append(response.ContainerResponses, allocated)
	}
	return response, nil
}

// PreStartContainer implements the device plugin API: the kubelet calls it before it creates a container, each time.
func (s *server) PreStartContainer(ctx context.Context, request *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if err := s.start(ctx, s.resource, request.DevicesIds); err != nil {
		return nil, err
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}
