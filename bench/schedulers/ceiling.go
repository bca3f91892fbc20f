package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ceilingName is the row that shows what API server and etcd can do on this machine.
const ceilingName = "binding alone"

// ceilingRun makes the calls that every scheduler makes, a binding and an event for each
// pod, and is sent all changes of pods as every scheduler is, but decides nothing: it
// fills one node after the other, as fast as the API server takes it. No scheduler can
// be faster.
func (b *bench) ceilingRun(ctx context.Context, nodes int, w shape) (throughput, error) {
	s := schedulers()[0]
	result := newThroughput(ceilingName, nodes, w, ownCores)
	var err error
	result.conditions, err = b.onCluster(ctx, s, nodes, true, func(ctx context.Context, c *cluster, o *observer) error {
		if err := c.createPods(ctx, s, "job", w); err != nil {
			return err
		}
		if err := o.awaitSeen(ctx, w.pods()); err != nil {
			return err
		}
		if _, err := observe(ctx, c); err != nil {
			return err
		}
		before, err := read(nil, c)
		if err != nil {
			return err
		}
		if err := c.bindAll(ctx, w); err != nil {
			return err
		}
		if err := o.awaitBound(ctx, w.pods(), b.limit/2, b.limit, c.api, c.etcd); err != nil {
			return err
		}
		after, err := read(nil, c)
		if err != nil {
			return err
		}
		result.ServerCores = float64(after.server-before.server) / float64(after.at.Sub(before.at))
		result.summarise(o.records(), before.at, after.at)
		return nil
	})
	return result, err
}

// bindAll binds the pods of a workload and writes an event about each.
func (c *cluster) bindAll(ctx context.Context, w shape) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(writers)
	perNode := gpusPerNode / w.gpus
	for i := range w.pods() {
		name, node := fmt.Sprintf("%s-%d", groupName("job", i/w.members), i%w.members), nodeName(i/perNode)
		tasks.Go(func() error {
			err := c.typed.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Target:     corev1.ObjectReference{Kind: "Node", Name: node},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = c.typed.EventsV1().Events(namespace).Create(ctx, &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				EventTime:  metav1.NowMicro(), Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding",
				ReportingController: "bench", ReportingInstance: "bench",
				Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name},
				Note:      fmt.Sprintf("Successfully assigned %s/%s to %s", namespace, name, node),
			}, metav1.CreateOptions{})
			return err
		})
	}
	return tasks.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }
