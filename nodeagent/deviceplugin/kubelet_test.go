package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

// fakeKubelet is the part of a kubelet that device plugins see: it registers them, chooses devices, asks them in the
// order of the real one, and tells who has which devices.
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresourcesapi.UnimplementedPodResourcesListerServer

	t   *testing.T
	dir string

	mu   sync.Mutex
	grpc []*grpc.Server
	// plugins are the connections by resource, offered their devices; registrations counts.
	plugins       map[string]*grpc.ClientConn
	offered       map[string][]*pluginapi.Device
	registrations map[string]int
	given         []*given
	// refuses is the answer to registrations; hangs lets nobody learn who has which devices.
	refuses  error
	deaf     bool // whether it does not listen to plugins that register
	refusals int
	hangs    chan struct{}
	// answers, unless nil, is what answers to registrations wait for.
	answers chan struct{}
	// qps is how many calls of the pod-resources API it takes in a second, 0 for as many as the real one. limited counts those that came
	// too often.
	qps     rate.Limit
	limited atomic.Int64
}

// given are the devices of one container.
type given struct {
	pod       *corev1.Pod
	container string
	resource  string
	ids       []string
	// plain means an init container that is no sidecar, which the kubelet does not list.
	plain bool
}

func newKubelet(t *testing.T) *fakeKubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	k := &fakeKubelet{t: t, dir: dir, registrations: map[string]int{}}
	t.Cleanup(func() {
		k.stop()
		_ = os.RemoveAll(dir)
	})
	return k
}

func (k *fakeKubelet) pluginDir() string { return filepath.Join(k.dir, "device-plugins") }

func (k *fakeKubelet) podResources() string { return filepath.Join(k.dir, "pod-resources.sock") }

// start empties the folder, and listens.
func (k *fakeKubelet) start() {
	k.t.Helper()
	require.NoError(k.t, os.MkdirAll(k.pluginDir(), 0o750))
	entries, err := os.ReadDir(k.pluginDir())
	require.NoError(k.t, err)
	for _, entry := range entries {
		require.NoError(k.t, os.RemoveAll(filepath.Join(k.pluginDir(), entry.Name()))) // an agent may just name a socket
	}
	k.listen()
}

// listen listens without emptying the folder.
func (k *fakeKubelet) listen() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugins, k.offered = map[string]*grpc.ClientConn{}, map[string][]*pluginapi.Device{}
	for _, path := range []string{k.podResources(), filepath.Join(k.pluginDir(), "kubelet.sock")} {
		_ = os.Remove(path)
		listener, err := net.Listen("unix", path)
		require.NoError(k.t, err)
		listener.(*net.UnixListener).SetUnlinkOnClose(false) // a kubelet that is killed leaves it
		server := grpc.NewServer(grpc.UnaryInterceptor(k.limit(path == k.podResources())))
		pluginapi.RegisterRegistrationServer(server, k)
		podresourcesapi.RegisterPodResourcesListerServer(server, k)
		go func() { _ = server.Serve(listener) }()
		k.grpc = append(k.grpc, server)
	}
}

// limit refuses calls of the pod-resources API as the kubelet does.
func (k *fakeKubelet) limit(limited bool) grpc.UnaryServerInterceptor {
	limiter := rate.NewLimiter(cmp.Or(k.qps, podresources.DefaultQPS), podresources.DefaultBurstTokens)
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if limited && !limiter.Allow() {
			k.limited.Add(1)
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handler(ctx, request)
	}
}

// stop ends as a kubelet that is killed: its sockets stay.
func (k *fakeKubelet) stop() {
	k.mu.Lock()
	servers, plugins := k.grpc, k.plugins
	k.grpc, k.plugins = nil, nil
	k.mu.Unlock()
	for _, server := range servers {
		server.Stop()
	}
	for _, connection := range plugins {
		_ = connection.Close()
	}
}

// Register connects to the plugin as the kubelet does, before it answers.
func (k *fakeKubelet) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	answer, err := k.register(ctx, request)
	if k.answers != nil {
		<-k.answers
	}
	return answer, err
}

func (k *fakeKubelet) register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuses != nil {
		k.refusals++
		return nil, k.refuses
	}
	connection, err := dial(filepath.Join(k.pluginDir(), request.Endpoint))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(connection)
	if _, err := client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		_ = connection.Close()
		return nil, err
	}
	resource := request.ResourceName
	if before := k.plugins[resource]; before != nil {
		_ = before.Close() // it has one for each resource
	}
	k.plugins[resource] = connection
	k.registrations[resource]++
	if k.deaf {
		return &pluginapi.Empty{}, nil
	}
	go func() {
		stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
		for err == nil {
			var told *pluginapi.ListAndWatchResponse
			if told, err = stream.Recv(); err == nil {
				k.offer(resource, told.Devices)
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.plugins[resource] == connection {
			delete(k.plugins, resource)
			delete(k.offered, resource)
		}
	}()
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) offer(resource string, devices []*pluginapi.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.offered[resource] = devices
}

// allocatable counts the healthy devices by resource.
func (k *fakeKubelet) allocatable() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := map[string]int{}
	for resource, devices := range k.offered {
		for _, device := range devices {
			if device.Health == pluginapi.Healthy {
				counts[resource]++
			}
		}
	}
	return counts
}

func (k *fakeKubelet) registered(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registrations[resource]
}

func (k *fakeKubelet) refused() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refusals
}

// List tells which containers have which devices; not of init containers that are no sidecars.
func (k *fakeKubelet) List(ctx context.Context, _ *podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	k.mu.Lock()
	hangs := k.hangs
	answer := &podresourcesapi.ListPodResourcesResponse{}
	for _, g := range k.given {
		if g.plain {
			continue
		}
		answer.PodResources = append(answer.PodResources, &podresourcesapi.PodResources{
			Namespace: g.pod.Namespace, Name: g.pod.Name,
			Containers: []*podresourcesapi.ContainerResources{{
				Name: g.container, Devices: []*podresourcesapi.ContainerDevices{{ResourceName: g.resource, DeviceIds: g.ids}},
			}},
		})
	}
	k.mu.Unlock()
	// The real one has one entry per pod.
	merged := map[string]*podresourcesapi.PodResources{}
	for _, entry := range answer.PodResources {
		if known := merged[entry.Namespace+"/"+entry.Name]; known != nil {
			known.Containers = append(known.Containers, entry.Containers...)
			continue
		}
		merged[entry.Namespace+"/"+entry.Name] = entry
	}
	answer.PodResources = slices.Collect(maps.Values(merged))
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answer, nil
}

// GetAllocatableResources tells the healthy devices.
func (k *fakeKubelet) GetAllocatableResources(context.Context, *podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresourcesapi.AllocatableResourcesResponse{}
	for resource, devices := range k.offered {
		for _, device := range devices {
			if device.Health == pluginapi.Healthy {
				answer.Devices = append(answer.Devices, &podresourcesapi.ContainerDevices{ResourceName: resource, DeviceIds: []string{device.ID}})
			}
		}
	}
	return answer, nil
}

// admit gives a container n devices from the end of those that are free, and among them reused, and asks the plugin for them. It
// returns the CDI devices of the answer.
func (k *fakeKubelet) admit(pod *corev1.Pod, container, resource string, n int, reused ...string) *given {
	k.t.Helper()
	k.mu.Lock()
	taken := map[string]bool{}
	for _, g := range k.given {
		for _, id := range g.ids {
			taken[g.resource+id] = true
		}
	}
	g := &given{pod: pod, container: container, resource: resource, ids: slices.Clone(reused)}
	for _, device := range slices.Backward(k.offered[resource]) {
		if len(g.ids) < n && !taken[resource+device.ID] {
			g.ids = append(g.ids, device.ID)
		}
	}
	k.given = append(k.given, g)
	connection := k.plugins[resource]
	k.mu.Unlock()
	require.Len(k.t, g.ids, n)
	require.NotNil(k.t, connection, "nobody offers %s", resource)
	return g
}

// admitted gives a container devices that another plugin has offered.
func (k *fakeKubelet) admitted(pod *corev1.Pod, container, resource string, ids ...string) *given {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := &given{pod: pod, container: container, resource: resource, ids: ids}
	k.given = append(k.given, g)
	return g
}

// forget takes back the devices of a pod, as when it has ended.
func (k *fakeKubelet) forget(pod string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.given = slices.DeleteFunc(k.given, func(g *given) bool { return g.pod.Name == pod })
}

// allocate asks the plugin for the devices of a container.
func (k *fakeKubelet) allocate(g *given) *pluginapi.ContainerAllocateResponse {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := k.plugin(g.resource).Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: g.ids}}})
	require.NoError(k.t, err)
	require.Len(k.t, answer.ContainerResponses, 1)
	return answer.ContainerResponses[0]
}

// prestart is what the kubelet does before it creates a container.
func (k *fakeKubelet) prestart(g *given) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := k.plugin(g.resource)
	if client == nil {
		return errors.New("endpoint is gone")
	}
	_, err := client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: g.ids})
	return err
}

func (k *fakeKubelet) plugin(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plugins[resource] == nil {
		return nil
	}
	return pluginapi.NewDevicePluginClient(k.plugins[resource])
}

// drop closes the connection to a plugin.
func (k *fakeKubelet) drop(resource string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.plugins[resource].Close()
}

// stranger is a plugin of others that offers a resource, by a socket of its own.
func (k *fakeKubelet) stranger(resource string, n int) {
	k.t.Helper()
	var devices []*pluginapi.Device
	for i := range n {
		devices = append(devices, &pluginapi.Device{ID: fmt.Sprintf("GPU-%d", i), Health: pluginapi.Healthy})
	}
	k.offer(resource, devices)
	require.NoError(k.t, os.WriteFile(filepath.Join(k.pluginDir(), "other.sock"), nil, 0o600))
}
