package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
)

// record is what the watch has shown of a pod, by the clock of this program.
type record struct {
	name           string
	created, bound time.Time
	// verdict is the text of the condition that says why the pod is not scheduled,
	// said when it was last changed.
	verdict string
	said    time.Time
}

// observer follows all pods by one watch.
type observer struct {
	mu      sync.Mutex
	pods    map[types.UID]*record
	bound   int
	changed chan struct{}
	err     error
}

// observe begins to follow the pods until ctx ends.
func observe(ctx context.Context, c *cluster) (*observer, error) {
	o := &observer{pods: map[types.UID]*record{}, changed: make(chan struct{})}
	none, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	// On a busy machine the API server closes a watch that lags; this one goes on where it was.
	events, err := watchtools.NewRetryWatcherWithContext(ctx, none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.typed.CoreV1().Pods(namespace).Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range events.ResultChan() {
			o.take(event)
		}
	}()
	return o, nil
}

func (o *observer) take(event watch.Event) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		o.err = fmt.Errorf("watch the pods: %w", apierrors.FromObject(event.Object))
		return
	}
	r, known := o.pods[pod.UID]
	if !known {
		r = &record{name: pod.Name, created: now}
		o.pods[pod.UID] = r
	}
	if pod.Spec.NodeName != "" && r.bound.IsZero() {
		r.bound = now
		o.bound++
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Message != r.verdict {
			r.verdict, r.said = condition.Message, now
		}
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// state is how far the pods are.
func (o *observer) state() (seen, bound int, changed <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pods), o.bound, o.changed, o.err
}

// awaitSeen waits until the watch has shown a number of pods.
func (o *observer) awaitSeen(ctx context.Context, pods int) error {
	for {
		seen, _, changed, err := o.state()
		if err != nil || seen >= pods {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitBound waits until a number of pods is bound, none has been bound for the time of
// patience, or the limit is reached. A process that ends is an error.
func (o *observer) awaitBound(ctx context.Context, pods int, patience, limit time.Duration, processes ...*process.Process) error {
	start := time.Now()
	before, since := -1, start
	check := time.NewTicker(100 * time.Millisecond)
	defer check.Stop()
	for {
		_, bound, changed, err := o.state()
		if err != nil || bound >= pods {
			return err
		}
		if bound != before {
			before, since = bound, time.Now()
		}
		if time.Since(since) > patience || time.Since(start) > limit {
			return nil
		}
		select {
		case <-changed:
		case <-check.C:
			for _, p := range processes {
				if err := p.Failure(); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// records returns a copy of what is known of the pods.
func (o *observer) records() []record {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]record, 0, len(o.pods))
	for _, r := range o.pods {
		all = append(all, *r)
	}
	return all
}
