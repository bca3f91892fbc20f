package topology

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

const nodeName = "cn-local.10.0.1.1"

// world is an API server with the CRD and one node, and agents that run on it.
type world struct {
	*kubetest.Server
	client *kube.Client
	events *record.FakeRecorder
	ctx    context.Context
	now    time.Time
	// agents counts the agents so far.
	agents int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: kubetest.Start(t), events: record.NewFakeRecorder(100), now: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)}
	client, err := kube.New(w.Config())
	require.NoError(t, err)
	w.client = client
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	w.ctx = ctx

	objs, err := deploy.Objects(deploy.Options{Image: "agent"})
	require.NoError(t, err)
	w.Put(objs[slices.IndexFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })])
	w.putNode("topology")
	return w
}

func (w *world) putNode(mode string) {
	node := &unstructured.Unstructured{Object: map[string]any{}}
	node.SetGroupVersionKind(nodeKind)
	node.SetName(nodeName)
	node.SetLabels(map[string]string{contract.NodeModeLabel: mode})
	w.Put(node)
}

// finalizeNode has the Node wait for its end.
func (w *world) finalizeNode() {
	node := &unstructured.Unstructured{Object: map[string]any{}}
	node.SetGroupVersionKind(nodeKind)
	node.SetName(nodeName)
	now := metav1.NewTime(w.now)
	node.SetDeletionTimestamp(&now)
	w.Put(node)
}

// agent is one run of the agent, with a source of which the test decides everything.
type agent struct {
	*publisher
	t      *testing.T
	w      *world
	source *source
	log    *strings.Builder
}

// start starts an agent, later than those before it.
func (w *world) start(t *testing.T, m gpu.Machine) *agent {
	t.Helper()
	return w.startWith(t, m, health.RealQuietTime)
}

func (w *world) startWith(t *testing.T, m gpu.Machine, quietTime time.Duration) *agent {
	t.Helper()
	w.agents++
	nodes, err := cluster.Start(w.ctx, w.client.Dynamic, nodeName)
	require.NoError(t, err)
	a := &agent{t: t, w: w, source: &source{}, log: new(strings.Builder)}
	a.source.set(hardware.Reading{Machine: m, DriverVersion: "550.1"})
	shared := &Agent{
		Client: w.client, Nodes: nodes, Events: w.events, Metrics: metrics.New(), Alive: new(watchdog.Alive),
		Log: slog.New(slog.NewTextHandler(a.log, nil)), Now: func() time.Time { return w.now }, Interval: time.Hour, QuietTime: quietTime,
		Instance: string(rune('a' + w.agents)), Version: "v1", Boot: "boot-1", Started: w.now.Add(time.Duration(w.agents) * time.Second),
	}
	a.publisher = shared.publisher(nodeName, a.source)
	return a
}

// synced waits until the agent has been shown what the cluster holds.
func (a *agent) synced() {
	a.t.Helper()
	require.Eventually(a.t, func() bool { return a.Nodes.Synced() == nil }, 30*time.Second, time.Millisecond)
}

// round has the agent look and publish as its loop does.
func (a *agent) round() {
	a.t.Helper()
	a.synced()
	a.look(a.w.ctx)
	for {
		later, err := a.publish(a.w.ctx)
		require.NoError(a.t, err)
		if later == 0 {
			return
		}
		a.w.now = a.w.now.Add(later)
	}
}

// after has the agent go on at a later time.
func (a *agent) after(d time.Duration) {
	a.t.Helper()
	a.w.now = a.w.now.Add(d)
	a.round()
}

// seen waits until the agent was shown something by its watches.
func (a *agent) seen(what string, shown func() bool) {
	a.t.Helper()
	require.Eventually(a.t, shown, 30*time.Second, time.Millisecond, what)
}

func (w *world) gpuNode(t *testing.T) contract.GPUNode {
	t.Helper()
	obj, err := w.client.Get(w.ctx, gpuNodeKind, "", nodeName)
	require.NoError(t, err)
	var n contract.GPUNode
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &n))
	return n
}

func (w *world) mirror(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	obj, err := w.client.Get(w.ctx, configMapKind, "kube-system", contract.TopologyConfigMapPrefix+nodeName)
	require.NoError(t, err)
	return obj
}

// eventsSoFar empties the recorder.
func (w *world) eventsSoFar() []string {
	var all []string
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// source is a source of which the test decides everything.
type source struct {
	mu      sync.Mutex
	reading hardware.Reading
	err     error
	events  []hardware.Signal
}

var errGone = errors.New("driver not loaded")

func (s *source) set(reading hardware.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading, s.err = reading, nil
}

func (s *source) report(signals ...hardware.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, signals...)
}

// change changes the reading.
func (s *source) change(change func(*hardware.Reading)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.reading)
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *source) Read(context.Context) (hardware.Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading, s.err
}

func (s *source) Events() []hardware.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (s *source) Changed() <-chan struct{} { return nil }

func machine(t *testing.T, name string) gpu.Machine {
	t.Helper()
	data, err := os.ReadFile("../../internal/gpu/testdata/topologies/" + name + ".json")
	require.NoError(t, err)
	m, err := gpu.ParseMachine(data)
	require.NoError(t, err)
	return m
}

// wired is a machine whose GPUs have UUIDs: GPU-0, GPU-1 and so on.
func wired(t *testing.T, name string) gpu.Machine {
	t.Helper()
	m := machine(t, name)
	for i := range m.GPUs {
		m.GPUs[i].UUID = "GPU-" + string(rune('0'+i))
	}
	return m
}

// without is a machine of which the driver does not list a GPU, and numbers the rest again.
func without(m gpu.Machine, position int) gpu.Machine {
	drop := func(rows [][]gpu.Link) [][]gpu.Link {
		var out [][]gpu.Link
		for i, row := range rows {
			if i != position {
				out = append(out, slices.Delete(slices.Clone(row), position, position+1))
			}
		}
		return out
	}
	m.GPUs = slices.Delete(slices.Clone(m.GPUs), position, position+1)
	for i := range m.GPUs {
		m.GPUs[i].Index = i
	}
	m.Links, m.PCIeLinks, m.NICs = drop(m.Links), drop(m.PCIeLinks), slices.Clone(m.NICs)
	for i, nic := range m.NICs {
		m.NICs[i].Links = slices.Delete(slices.Clone(nic.Links), position, position+1)
	}
	return m
}

func decode(t *testing.T, mirror *unstructured.Unstructured, key string, into any) {
	t.Helper()
	text, _, err := unstructured.NestedString(mirror.Object, "data", key)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(text), into))
}

// hardwareUnknown is a GPU that does not answer.
func hardwareUnknown(index int) gpu.GPU { return gpu.GPU{Index: index, NUMANode: -1} }

func scrape(m *metrics.Metrics) string {
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	return recorder.Body.String()
}
