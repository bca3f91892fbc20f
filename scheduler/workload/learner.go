// Package workload learns which requests for GPUs arrive, so that the scheduler can keep
// room for them (fragmentation gradient descent, package fragmentation).
//
// What has arrived is counted into a ConfigMap, and the scheduler places by what is
// written there, and by nothing else: a scheduler that starts, another replica, and who
// reads the cluster to answer as the scheduler would, all decide alike. The one that leads
// writes, seldom; all of them watch. Each pod that asks for GPUs counts once, when it
// appears. The record says until which time of creation pods were counted, so that nobody
// counts them again.
//
// Without the ConfigMap, without the right to it, or with one that cannot be read, the
// scheduler places by the tightest fit.
package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/workload/tally"
)

const (
	// lookEvery is how often the leader looks whether there is something to write.
	lookEvery = time.Second
	// writeEvery is the least time between two writes. It is short, because until the first are
	// made of a burst of pods, these are placed by what came before, or by nothing.
	writeEvery = 5 * time.Second
)

// Learner counts the requests that arrive, and has the planner follow what is recorded. It
// is safe for concurrent use.
type Learner struct {
	cache  *clustercache.Cache
	meter  *metrics.Metrics
	client typedcorev1.ConfigMapInterface
	// listed waits until the record and the pods have been read.
	listed []cache.InformerSynced

	mu sync.Mutex
	// known means that the record, or that there is none, has been read.
	known func() bool
	// refused means that the record may not be read.
	refused bool
	// object is the record, nil while there is none; unreadable means that nothing is
	// written over it.
	object     *corev1.ConfigMap
	unreadable bool
	tally      tally.Tally
	// trouble is what went wrong last, "" when nothing does.
	trouble string
}

// Follow learns from the pods of a factory, which the caller starts, and has the cache
// follow the record in a namespace, until ctx ends.
func Follow(ctx context.Context, view *clustercache.Cache, meter *metrics.Metrics, client kubernetes.Interface, factory informers.SharedInformerFactory, namespace string) (*Learner, error) {
	l := &Learner{cache: view, meter: meter, client: client.CoreV1().ConfigMaps(namespace)}
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { l.arrive(nil, object) }, UpdateFunc: l.arrive,
	})
	if err != nil {
		return nil, fmt.Errorf("learn from pods: %w", err)
	}
	records := coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, contract.WorkloadName).String()
		follow.Latest(options)
	})
	if err := records.SetWatchErrorHandlerWithContext(l.watchFailed); err != nil {
		return nil, fmt.Errorf("follow the workload: %w", err)
	}
	handled, err := records.AddEventHandler(follow.On(l.set, func(*corev1.ConfigMap) { l.set(nil) }))
	if err != nil {
		return nil, fmt.Errorf("follow the workload: %w", err)
	}
	l.known = handled.HasSynced
	l.listed = []cache.InformerSynced{pods.HasSynced, func() bool { return handled.HasSynced() || l.isRefused() }}
	go records.RunWithContext(ctx)
	return l, nil
}

// Synced waits until the cache follows the record, if there is one that may be read.
func (l *Learner) Synced(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), l.listed...) {
		return fmt.Errorf("wait for the workload: %w", context.Cause(ctx))
	}
	return nil
}

// Learn writes the record until ctx ends. Only the scheduler that leads may run it.
func (l *Learner) Learn(ctx context.Context) {
	if l.Synced(ctx) != nil {
		return // the scheduler stops
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var written time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if time.Since(written) >= writeEvery && l.write(ctx, time.Now()) {
				written = time.Now()
			}
		}
	}
}

// arrive takes in a pod that was not there before.
func (l *Learner) arrive(before, object any) {
	pod, ok := object.(*corev1.Pod)
	if old, known := before.(*corev1.Pod); !ok || known && old.UID == pod.UID {
		return
	}
	demand, ok := inventory.DemandOf(pod)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Arrive(tally.Arrival{Created: pod.CreationTimestamp.Time, Demand: demand})
}

// set takes in the record, nil when there is none any more.
func (l *Learner) set(record *corev1.ConfigMap) {
	var counted placement.Workload
	var until time.Time
	var err error
	if record != nil {
		counted, until, err = inventory.WorkloadOf(record)
	}
	l.mu.Lock()
	l.object, l.unreadable = record, err != nil
	if err == nil {
		l.tally.Record(counted, until, time.Now())
	}
	l.mu.Unlock()
	l.cache.SetWorkload(counted)
	if err != nil {
		err = fmt.Errorf("%w; nodes are chosen by the tightest fit until it is right, or deleted, for the scheduler to learn again", err)
	}
	l.report(metrics.ReadWorkload, err)
}

// watchFailed is told when the record cannot be listed or watched. Who may not read it
// works without; the watch tries again.
func (l *Learner) watchFailed(ctx context.Context, reflector *cache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
		return
	}
	l.mu.Lock()
	l.refused = true
	l.mu.Unlock()
	l.report(metrics.ReadWorkload, fmt.Errorf("%w; nodes are chosen by the tightest fit", err))
}

func (l *Learner) isRefused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// write records what has arrived when it is due, and reports whether it tried to. The watch
// tells of what was written, by this scheduler or by another.
func (l *Learner) write(ctx context.Context, now time.Time) (tried bool) {
	l.mu.Lock()
	record, next, until, due := l.object, placement.Workload(nil), time.Time{}, false
	if l.known() && !l.unreadable {
		next, until, due = l.tally.Due(now)
	}
	l.mu.Unlock()
	if !due {
		return false
	}
	data, err := inventory.WorkloadRecord(next, until)
	if err == nil {
		err = l.put(ctx, record, data)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return true // another wrote, and what it has not counted is counted next time
	}
	l.report(metrics.WriteWorkload, err)
	return true
}

func (l *Learner) put(ctx context.Context, record *corev1.ConfigMap, data map[string]string) error {
	options := contract.SchedulerName
	if record == nil {
		_, err := l.client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: contract.WorkloadName, Labels: map[string]string{contract.PartOfLabel: contract.PartOfValue}},
			Data:       data,
		}, metav1.CreateOptions{FieldManager: options})
		return err
	}
	next := record.DeepCopy()
	next.Data = data
	_, err := l.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: options})
	return err
}

// report counts what went wrong, nil for nothing, and logs it when it is something new.
func (l *Learner) report(doing metrics.WorkloadAccess, err error) {
	text := ""
	if err != nil {
		text = err.Error()
		l.meter.WorkloadFailed(doing)
	}
	l.mu.Lock()
	changed := l.trouble != text
	l.trouble = text
	l.mu.Unlock()
	if changed && err != nil {
		klog.Background().Error(err, "Cannot "+string(doing)+" the workload")
	}
}
