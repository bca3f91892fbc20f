package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb/replay"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

const (
	// progressEvery is how often it is told how far a replay is.
	progressEvery = 10 * time.Second
	// patience is how long the scheduler may take for a pod.
	patience = 5 * time.Minute
	// recordPatience is how long the scheduler may take to record what has arrived. One that has
	// started again has not seen the pods that were dropped before, and waits for others.
	recordPatience = 30 * time.Second
)

// onPlatform replays a trace through a platform of its own, and returns the nodes of the pods,
// "" for those that were dropped.
func (b *bench) onPlatform(ctx context.Context, r replay.Replay, list []openb.Pod) (nodes []string, err error) {
	fmt.Fprintf(b.progress, "%s: starting a platform with %d nodes\n", r.Name, len(r.Machines))
	p, err := start(ctx, b.bin, r.Machines)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if r.Learned != nil {
		if err := p.record(ctx, r.Learned); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &arrivals{platform: p, stop: cancel, progress: b.progress, list: list, nodes: make([]string, len(list)), known: make([]bool, len(list)), undecided: make(chan struct{}, b.inFlight)}
	watched, err := a.watch(ctx)
	if err != nil {
		return nil, err
	}
	defer watched()
	defer b.report(r.Trace, a)()
	if err := a.create(ctx, r.Learned.Members()); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return a.nodes, nil
}

// arrivals are the pods of a replay, which arrive one after the other.
type arrivals struct {
	*platform
	// stop ends the replay for a reason.
	stop     context.CancelCauseFunc
	progress io.Writer
	list     []openb.Pod
	// undecided has an element for each pod of which is not known whether it gets a place.
	undecided chan struct{}

	mu sync.Mutex
	// nodes are where pods are, known means that it is decided.
	nodes   []string
	known   []bool
	created int
}

// create creates the pods in order and returns when all are decided. Where so much has arrived that
// the scheduler is to weigh it, the next pod waits until it has: in the trace hours lie between them.
func (a *arrivals) create(ctx context.Context, counted int64) error {
	more := int64(0)
	for i, p := range a.list {
		if err := a.enter(ctx); err != nil {
			return fmt.Errorf("wait for a decision before pod %d: %w", i, err)
		}
		object, err := a.client.CoreV1().Pods(namespace).Create(ctx, pod(p, i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create pod %d: %w", i, err)
		}
		a.mu.Lock()
		a.created = i + 1
		a.mu.Unlock()
		if p.GPUs == 0 {
			continue
		}
		if more++; placement.Outgrown(counted, more) {
			recorded, err := a.awaitRecord(ctx, object.CreationTimestamp.Time)
			switch {
			case err == nil:
				counted = recorded
			case ctx.Err() == nil && wait.Interrupted(err):
				fmt.Fprintf(a.progress, "the scheduler has not recorded what arrived up to pod %d within %s, and the replay goes on\n", i, recordPatience)
			default:
				return fmt.Errorf("wait for the workload after pod %d: %w", i, err)
			}
			more = 0
		}
	}
	for range cap(a.undecided) {
		if err := a.enter(ctx); err != nil {
			return fmt.Errorf("wait for the last decisions: %w", err)
		}
	}
	return nil
}

// enter waits until one pod more may be undecided.
func (a *arrivals) enter(ctx context.Context) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a.undecided <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("the scheduler has decided on no pod for %s", patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitRecord waits until the scheduler has recorded what arrived until then, and returns how
// many pods the record counts.
func (a *arrivals) awaitRecord(ctx context.Context, until time.Time) (counted int64, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, recordPatience, true, func(ctx context.Context) (bool, error) {
		record, err := a.client.CoreV1().ConfigMaps(contract.SystemNamespace).Get(ctx, contract.WorkloadName, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		workload, countedUntil, err := inventory.WorkloadOf(record)
		counted = workload.Members()
		return !countedUntil.Before(until), err
	})
	return counted, err
}

// record has the scheduler start with what is recorded.
func (p *platform) record(ctx context.Context, w placement.Workload) error {
	data, err := inventory.WorkloadRecord(w, time.Unix(0, 0))
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().ConfigMaps(contract.SystemNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.WorkloadName}, Data: data,
	}, metav1.CreateOptions{})
	return err
}

// watch follows what becomes of the pods until the returned function is called.
func (a *arrivals) watch(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithNamespace(namespace))
	take := func(object any) {
		if p, ok := object.(*corev1.Pod); ok {
			a.take(ctx, p)
		}
	}
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, object any) { take(object) }}); err != nil {
		cancel()
		return nil, err
	}
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	return func() { cancel(); factory.Shutdown() }, nil
}

// take notes whether a pod has a place; one that has none is dropped.
func (a *arrivals) take(ctx context.Context, p *corev1.Pod) {
	i, err := strconv.Atoi(strings.TrimPrefix(p.Name, "pod-"))
	if err != nil {
		return
	}
	refused := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	a.mu.Lock()
	if a.known[i] || p.Spec.NodeName == "" && !refused {
		a.mu.Unlock()
		return
	}
	a.nodes[i], a.known[i] = p.Spec.NodeName, true
	a.mu.Unlock()
	if p.Spec.NodeName != "" {
		<-a.undecided
		return
	}
	go func() {
		err := a.client.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			a.stop(fmt.Errorf("drop pod %d: %w", i, err))
		}
		<-a.undecided
	}()
}

// report tells how far the replay is, until the returned function is called.
func (b *bench) report(trace *openb.Trace, a *arrivals) (stop func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		begin, ticker := time.Now(), time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			a.mu.Lock()
			meter, created := trace.Meter(), a.created
			for i, p := range a.list[:created] {
				meter.Arrive(p, a.nodes[i] != "")
			}
			a.mu.Unlock()
			fmt.Fprintf(b.progress, "%s: %d of %d pods after %s, %d %% of demand, %.2f %% of GPUs allocated\n",
				trace.Name, created, len(a.list), time.Since(begin).Round(time.Second), meter.Demand(), meter.Allocated())
		}
	})
	return func() { close(done); ended.Wait() }
}
