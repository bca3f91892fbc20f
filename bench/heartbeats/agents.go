package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/topology"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

// atOnce is how many requests to make nodes, and to renew leases, are on their way at a time.
const atOnce = 16

// agentInterval is how often an agent looks at its GPUs, as by default (--interval).
const agentInterval = 30 * time.Second

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// each does something for so many nodes, some at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// makeNodes makes the nodes and their leases.
func (b *bench) makeNodes(ctx context.Context) error {
	client, err := kube.Protobuf(b.config)
	if err != nil {
		return err
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil && !kube.IsAlreadyExists(err) {
		return err
	}
	return each(ctx, b.nodes, func(ctx context.Context, i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
			corev1.LabelHostname: nodeName(i), contract.NodeModeLabel: "topology",
		}}}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", node.Name, err)
		}
		holder, seconds := node.Name, int32(40)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, Namespace: corev1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
		}
		if _, err := client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make the lease of node %s: %w", node.Name, err)
		}
		return nil
	})
}

// renew renews leases of the nodes, as kubelets do.
func (b *bench) renew(ctx context.Context, n int) error {
	client, err := kube.Protobuf(b.config)
	if err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	held, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for done := 0; done < n; done += len(held.Items) {
		err := each(ctx, min(n-done, len(held.Items)), func(ctx context.Context, i int) error {
			lease := &held.Items[i]
			now := metav1.NowMicro()
			lease.Spec.RenewTime = &now
			written, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
			if err != nil {
				return fmt.Errorf("renew the lease of node %s: %w", lease.Name, err)
			}
			held.Items[i] = *written
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// machine is hardware that stays as it is.
type machine struct{ reading hardware.Reading }

func (m machine) Read(context.Context) (hardware.Reading, error) { return m.reading, nil }
func (m machine) Events() []hardware.Signal                      { return nil }
func (m machine) Changed() <-chan struct{}                       { return nil }

// of is the hardware of one node: GPUs with UUIDs of their own.
func (b *bench) of(i int) machine {
	m := b.machine
	m.GPUs = make([]gpu.GPU, len(b.machine.GPUs))
	for j, g := range b.machine.GPUs {
		g.UUID = fmt.Sprintf("GPU-%05d-%d", i, j)
		m.GPUs[j] = g
	}
	return machine{hardware.Reading{Machine: m, GPUs: make([]hardware.GPU, len(m.GPUs)), DriverVersion: "580.159.04"}}
}

// agents are those of all nodes.
type agents struct {
	nodes    []*cluster.Nodes
	requests *requests
	running  sync.WaitGroup
}

// startAgents starts an agent for each node, which runs until ctx ends, and waits until the GPUs of all are published. A few start at a
// time, as in a cluster that grows or rolls out a DaemonSet.
func (b *bench) startAgents(ctx context.Context, all *agents) error {
	b.say("starting %d agents", b.nodes)
	first := 0 // of those that may not be published yet
	for i := range b.nodes {
		config := rest.CopyConfig(b.config)
		config.Dial = (&net.Dialer{}).DialContext // so that it has a connection of its own
		config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return counted{inner, all.requests} })
		client, err := kube.New(config)
		if err != nil {
			return err
		}
		name := nodeName(i)
		nodes, err := cluster.Start(ctx, client.Dynamic, name)
		if err != nil {
			return err
		}
		all.nodes = append(all.nodes, nodes)
		agent := &topology.Agent{
			Client: client, Nodes: nodes, Events: &record.FakeRecorder{}, Metrics: metrics.New(), Alive: new(watchdog.Alive),
			Log: slog.New(slog.DiscardHandler), Now: time.Now, Interval: agentInterval, QuietTime: health.RealQuietTime,
			FeatureLabels: true, Instance: name, Version: "bench", Boot: name, Started: time.Now(),
		}
		all.running.Go(func() { agent.Serve(ctx, name, b.of(i)) })
		for ; len(all.nodes)-first >= atOnce || len(all.nodes) == b.nodes && first < b.nodes; first++ {
			if err := all.published(ctx, first); err != nil {
				return err
			}
		}
		if len(all.nodes)%500 == 0 {
			b.say("%d agents run", len(all.nodes))
		}
	}
	return nil
}

// published waits until the GPUs of a node are published.
func (a *agents) published(ctx context.Context, i int) error {
	for a.nodes[i].Get(cluster.Mirror, nodeName(i)) == nil { // the last that is written
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
