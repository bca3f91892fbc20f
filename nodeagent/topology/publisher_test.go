package topology

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
)

const nodeName = "cn-local.10.0.1.1"

// cluster is an API server with the CRD and one node.
type cluster struct {
	*kubetest.Server
	client *kube.Client
	events *record.FakeRecorder
	ctx    context.Context
	now    time.Time
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: kubetest.Start(t), events: record.NewFakeRecorder(8), now: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)}
	client, err := kube.New(c.Config())
	require.NoError(t, err)
	c.client = client
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	c.ctx = ctx

	objs, err := deploy.Objects(deploy.Options{Image: "agent"})
	require.NoError(t, err)
	c.Put(objs[slices.IndexFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })])
	c.putNode("topology")
	return c
}

func (c *cluster) putNode(mode string) {
	node := &unstructured.Unstructured{Object: map[string]any{}}
	node.SetGroupVersionKind(nodeKind)
	node.SetName(nodeName)
	node.SetLabels(map[string]string{contract.NodeModeLabel: mode})
	c.Put(node)
}

func (c *cluster) publisher(quietTime time.Duration) *publisher {
	agent := &Agent{
		Client: c.client, Events: c.events, Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return c.now }, Interval: time.Hour, QuietTime: quietTime,
	}
	return agent.publisher(nodeName)
}

func (c *cluster) gpuNode(t *testing.T) contract.GPUNode {
	t.Helper()
	obj, err := c.client.Get(c.ctx, gpuNodeKind, "", nodeName)
	require.NoError(t, err)
	var n contract.GPUNode
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &n))
	return n
}

func (c *cluster) mirror(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	obj, err := c.client.Get(c.ctx, configMapKind, "kube-system", contract.TopologyConfigMapPrefix+nodeName)
	require.NoError(t, err)
	return obj
}

func machine(t *testing.T, name string) gpu.Machine {
	t.Helper()
	data, err := os.ReadFile("../../internal/gpu/testdata/topologies/" + name + ".json")
	require.NoError(t, err)
	m, err := gpu.ParseMachine(data)
	require.NoError(t, err)
	return m
}

func TestPublish(t *testing.T) {
	c := newCluster(t)
	m := machine(t, "dgx1-v100")

	require.NoError(t, c.publisher(0).publish(c.ctx, hardware.Reading{Machine: m, DriverVersion: "550.1"}))

	n := c.gpuNode(t)
	got, err := n.Status.Machine()
	require.NoError(t, err)
	assert.Equal(t, m, got)
	assert.Equal(t, "550.1", n.Status.DriverVersion)
	node, err := c.client.Get(c.ctx, nodeKind, "", nodeName)
	require.NoError(t, err)
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.GetUID()}}
	assert.Equal(t, want, n.OwnerReferences, "it goes with its node")
	assert.Equal(t, want, c.mirror(t).GetOwnerReferences())
	assert.Equal(t, metav1.ConditionTrue, n.Status.Conditions[0].Status)
	assert.Equal(t, "8 cards", n.Status.Conditions[0].Message)
}

func TestPublishWritesOnlyChanges(t *testing.T) {
	c := newCluster(t)
	p := c.publisher(0)
	m := machine(t, "dgx1-v100")
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))

	before := c.Writes()
	c.now = c.now.Add(time.Hour)
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))
	require.NoError(t, c.publisher(0).publish(c.ctx, hardware.Reading{Machine: m}), "after a restart of the agent")
	assert.Equal(t, before, c.Writes())

	c.Remove(gpuNodeKind, "", nodeName)
	c.Remove(configMapKind, "kube-system", contract.TopologyConfigMapPrefix+nodeName)
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))
	assert.Len(t, c.gpuNode(t).Status.Cards, 8, "what somebody deleted comes back")
	c.mirror(t)
}

func TestUnhealthyCardHasReasonAndTime(t *testing.T) {
	c := newCluster(t)
	m := machine(t, "dgx1-v100")
	m.Cards[3].Unhealthy = "marked by hand"
	failed := metav1.NewTime(c.now).Rfc3339Copy()
	require.NoError(t, c.publisher(0).publish(c.ctx, hardware.Reading{Machine: m}))

	c.now = c.now.Add(time.Hour)
	require.NoError(t, c.publisher(0).publish(c.ctx, hardware.Reading{Machine: m}), "after a restart of the agent")

	status := c.gpuNode(t).Status
	assert.Equal(t, contract.Unhealthy, status.Cards[3].Health)
	assert.Equal(t, "marked by hand", status.Cards[3].Reason)
	assert.True(t, failed.Equal(status.Cards[3].Since), "since %v, want %v", status.Cards[3].Since, failed)
	assert.Equal(t, metav1.ConditionFalse, status.Conditions[0].Status)
	assert.Equal(t, "card 3: marked by hand", status.Conditions[0].Message)
	var devices map[string]string
	decode(t, c.mirror(t), "devices", &devices)
	assert.Equal(t, contract.Unhealthy, devices["3"])
	assert.Equal(t, contract.Healthy, devices["4"])

	assert.Equal(t, "Warning GPUCardUnhealthy Card 3  must not be used: marked by hand", <-c.events.Events)
	m.Cards[3].Unhealthy = ""
	require.NoError(t, c.publisher(0).publish(c.ctx, hardware.Reading{Machine: m}))
	assert.Equal(t, "Normal GPUCardHealthy Card 3  is used again", <-c.events.Events)
	assert.Empty(t, c.events.Events, "one event for each change")
	status = c.gpuNode(t).Status
	assert.Equal(t, contract.CardInfo{Index: 3, NUMANode: 0, CPUAffinity: "0-19,40-59", PCIBusID: "0000:0B:00.0", Health: contract.Healthy}, status.Cards[3])
}

func TestARestartKeepsARealCardOut(t *testing.T) {
	c := newCluster(t)
	m := machine(t, "dgx1-v100")
	event := []hardware.Signal{{Card: 5, Kind: hardware.XID, Number: 95}}
	require.NoError(t, c.publisher(5*time.Minute).publish(c.ctx, hardware.Reading{Machine: m, Signals: event}))

	c.now = c.now.Add(time.Minute)
	p := c.publisher(5 * time.Minute)
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))
	assert.Equal(t, contract.Unhealthy, c.gpuNode(t).Status.Cards[5].Health)

	c.now = c.now.Add(5 * time.Minute)
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))
	assert.Equal(t, contract.Healthy, c.gpuNode(t).Status.Cards[5].Health)
}

func TestALinkThatDropsLeavesTheGraph(t *testing.T) {
	c := newCluster(t)
	p := c.publisher(0)
	m := machine(t, "dgx1-v100")
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))

	m.Links[0][3], m.Links[3][0] = m.PCIeLinks[0][3], m.PCIeLinks[3][0]
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))

	assert.Equal(t, "X NV1 NV1 PHB NV2 SYS SYS SYS", c.gpuNode(t).Status.Links[0])
	var links [][]string
	decode(t, c.mirror(t), "linkType", &links)
	assert.Equal(t, "PHB", links[0][3])
}

func TestUnreadableHardware(t *testing.T) {
	c := newCluster(t)
	p := c.publisher(0)
	require.NoError(t, p.publishUnreadable(c.ctx, errors.New("driver not loaded")), "before anything was read")
	assert.Empty(t, c.gpuNode(t).Status.Cards)

	m := machine(t, "dgx1-v100")
	require.NoError(t, p.publish(c.ctx, hardware.Reading{Machine: m}))
	require.NoError(t, p.publishUnreadable(c.ctx, errors.New("driver not loaded")))

	status := c.gpuNode(t).Status
	assert.Len(t, status.Cards, 8, "what was known stays")
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, metav1.ConditionUnknown, status.Conditions[0].Status)
	assert.Equal(t, "driver not loaded", status.Conditions[0].Message)
}

func TestMirrorFollowsTheMode(t *testing.T) {
	c := newCluster(t)
	p := c.publisher(0)
	reading := hardware.Reading{Machine: machine(t, "dgx1-v100")}
	require.NoError(t, p.publish(c.ctx, reading))
	c.mirror(t)

	c.putNode("default")
	require.NoError(t, p.publish(c.ctx, reading))
	_, err := c.client.Get(c.ctx, configMapKind, "kube-system", contract.TopologyConfigMapPrefix+nodeName)
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

func TestWithoutNodeOrCRD(t *testing.T) {
	c := newCluster(t)
	reading := hardware.Reading{Machine: machine(t, "dgx1-v100")}
	c.Remove(nodeKind, "", nodeName)
	assert.ErrorContains(t, c.publisher(0).publish(c.ctx, reading), "get Node "+nodeName)

	c.Remove(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "", "gpunodes.gpuplan.dev")
	fresh, err := kube.New(c.Config())
	require.NoError(t, err)
	c.client = fresh
	assert.ErrorIs(t, c.publisher(0).publish(c.ctx, reading), kube.ErrNotServed)
}

// changing is a source whose machine the test changes.
type changing struct {
	readings chan hardware.Reading
	changed  chan struct{}
}

func (s *changing) Read(context.Context) (hardware.Reading, error) { return <-s.readings, nil }
func (s *changing) Changed() <-chan struct{}                       { return s.changed }

func TestServePublishesChanges(t *testing.T) {
	c := newCluster(t)
	source := &changing{readings: make(chan hardware.Reading), changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.publisher(0).Serve(ctx, nodeName, source)
	}()
	m := machine(t, "dgx1-v100")
	source.readings <- hardware.Reading{Machine: m, DriverVersion: "1"}
	source.changed <- struct{}{} // the first reading is published
	source.readings <- hardware.Reading{Machine: m, DriverVersion: "2"}
	source.changed <- struct{}{}
	assert.Equal(t, "2", c.gpuNode(t).Status.DriverVersion)

	cancel()
	source.readings <- hardware.Reading{Machine: m}
	<-done
}

func decode(t *testing.T, mirror *unstructured.Unstructured, key string, into any) {
	t.Helper()
	text, _, err := unstructured.NestedString(mirror.Object, "data", key)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(text), into))
}
