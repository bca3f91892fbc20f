package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ceilingName is the row that shows what API server and etcd can do on this machine.
const ceilingName = "binding alone, no scheduler"

// ceilingRun binds the pods of a workload without a scheduler: this program fills one
// node after the other, as fast as the API server takes it.
func (b *bench) ceilingRun(ctx context.Context, nodes int, w shape) (throughput, error) {
	s := schedulers()[0]
	result := throughput{Scheduler: ceilingName, Nodes: nodes, Workload: w.String(), Series: backlog, Pods: w.pods()}
	err := b.onCluster(ctx, s, nodes, func(ctx context.Context, c *cluster, o *observer) error {
		if err := c.createPods(ctx, s, "job", w); err != nil {
			return err
		}
		if err := o.awaitSeen(ctx, w.pods()); err != nil {
			return err
		}
		before, err := read(nil, c)
		if err != nil {
			return err
		}
		if err := c.bindAll(ctx, w); err != nil {
			return err
		}
		if err := o.awaitBound(ctx, w.pods(), patience, c.api, c.etcd); err != nil {
			return err
		}
		after, err := read(nil, c)
		if err != nil {
			return err
		}
		result.ServerCores = float64(after.server-before.server) / float64(after.at.Sub(before.at))
		result.summarise(o.records(), before.at)
		return nil
	})
	return result, err
}

// bindAll binds the pods of a workload.
func (c *cluster) bindAll(ctx context.Context, w shape) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(writers)
	perNode := cardsPerNode / w.cards
	for i := range w.pods() {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", groupName("job", i/w.members), i%w.members)},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName(i / perNode)},
		}
		tasks.Go(func() error {
			return c.typed.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{})
		})
	}
	return tasks.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }
