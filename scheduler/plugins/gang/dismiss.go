package gang

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// aside does beside the worker and the cycles what the API server may take its time for, or the
// webhooks that it asks.
type aside struct {
	mu sync.Mutex
	// next is, for what is under way, what is to be done after it, nil for nothing.
	next  map[string]func()
	slots chan struct{}
	// start starts a goroutine.
	start func(func())
}

func newAside(slots int) *aside {
	return &aside{next: map[string]func(){}, slots: make(chan struct{}, slots), start: func(f func()) { go f() }}
}

// run has something done, and of the same name nothing else meanwhile; of what comes while it is under way the last is
// done after it.
func (a *aside) run(name string, do func()) {
	a.mu.Lock()
	_, runs := a.next[name]
	if runs {
		a.next[name] = do
	} else {
		a.next[name] = nil
	}
	a.mu.Unlock()
	if runs {
		return
	}
	a.start(func() {
		a.slots <- struct{}{}
		defer func() { <-a.slots }()
		for ; do != nil; do = a.after(name) {
			do()
		}
	})
}

// runs reports whether something of a name is under way.
func (a *aside) runs(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, runs := a.next[name]
	return runs
}

// after ends what is under way, and returns what is to be done after it.
func (a *aside) after(name string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.next[name]
	if next == nil {
		delete(a.next, name)
	} else {
		a.next[name] = nil
	}
	return next
}

// dismiss gives a pod the standard condition of pods that are evicted, for a gang, and deletes it; it is
// no error that it has gone. One that the API server does not delete does not keep the condition.
func (p *Plugin) dismiss(ctx context.Context, key string, pod *corev1.Pod, why string) (deleted bool, err error) {
	bare := pod.Status.DeepCopy()
	bare.Conditions = slices.DeleteFunc(bare.Conditions, ours) // the cache may show one that is not there any more
	marked := bare.DeepCopy()
	condition.OnPod(marked, corev1.PodCondition{
		Type:    corev1.DisruptionTarget,
		Status:  corev1.ConditionTrue,
		Reason:  corev1.PodReasonPreemptionByScheduler,
		Message: markedBy + why,
	})
	if err := p.patchStatus(ctx, pod, bare, marked); err != nil {
		_, err = p.failed(ctx, key, pod, fmt.Errorf("mark pod %s/%s as evicted: %w", pod.Namespace, pod.Name, err))
		return false, err
	}
	if err := p.delete(ctx, pod); err != nil {
		stays, err := p.failed(ctx, key, pod, err)
		if stays {
			err = errors.Join(err, p.patchStatus(ctx, pod, marked, bare))
		}
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok {
		if g.deleted == nil {
			g.deleted = map[types.UID]bool{}
		}
		g.deleted[pod.UID] = true
		delete(g.refusals, pod.UID)
		delete(g.failures, pod.UID)
	}
	return true, nil
}

// markedBy begins the message of the conditions that dismiss writes.
const markedBy = contract.SchedulerName + ": "

// ours reports whether dismiss has written a condition.
func ours(c corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler && strings.HasPrefix(c.Message, markedBy)
}

// failed says what it means that a pod was not deleted for a gang: nothing when it has gone or is going, else perhaps
// that it never is. The answer alone does not tell: webhooks choose their codes, and answers get lost.
func (p *Plugin) failed(ctx context.Context, key string, pod *corev1.Pod, err error) (stays bool, _ error) {
	now, unread := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(unread):
		return false, nil
	case unread != nil:
		return false, errors.Join(err, fmt.Errorf("read pod %s/%s: %w", pod.Namespace, pod.Name, unread))
	case now.UID != pod.UID || now.DeletionTimestamp != nil:
		return false, nil
	}
	return true, p.noteRefusal(ctx, key, pod, err)
}

// delete deletes a pod, or asks whether it might.
func (p *Plugin) delete(ctx context.Context, pod *corev1.Pod, dryRun ...string) error {
	err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID}, DryRun: dryRun,
	})
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// askAll asks the API server whether it lets pods be deleted for a gang, before the first of them is: webhooks and
// policies may refuse what disruption budgets allow. About those in untold it cannot say.
func (p *Plugin) askAll(ctx context.Context, key string, pods []*corev1.Pod) (untold map[types.UID]bool, err error) {
	var mu sync.Mutex
	untold = map[types.UID]bool{}
	err = each(ctx, pods, func(pod *corev1.Pod) error {
		err := p.delete(ctx, pod, metav1.DryRunAll)
		switch {
		case err == nil:
			return nil
		case inconclusive(err):
			mu.Lock()
			untold[pod.UID] = true
			mu.Unlock()
			return nil
		}
		_, err = p.failed(ctx, key, pod, err)
		return err
	})
	return untold, err
}

// inconclusive reports whether the answer to a dry run is about the dry run itself: so the API server answers for
// webhooks that do not support any.
func inconclusive(err error) bool { return apierrors.IsBadRequest(err) }

// evictAll has pods evicted. Those come first, one after the other, about which dry runs do not tell, or that were refused
// before: a webhook may allow what it refuses in earnest. The others are evicted when that has been accepted.
func (p *Plugin) evictAll(ctx context.Context, pods []*corev1.Pod, untold map[types.UID]bool, evict func(*corev1.Pod) error) error {
	var doubtful, others []*corev1.Pod
	for _, pod := range pods {
		if untold[pod.UID] || p.cache.Refusals(pod.UID) > 0 {
			doubtful = append(doubtful, pod)
		} else {
			others = append(others, pod)
		}
	}
	slices.SortStableFunc(doubtful, func(a, b *corev1.Pod) int { return cmp.Compare(p.cache.Refusals(b.UID), p.cache.Refusals(a.UID)) })
	for _, pod := range doubtful {
		if err := evict(pod); err != nil {
			return err
		}
	}
	rest, stop := context.WithCancel(ctx)
	defer stop()
	return each(rest, others, func(pod *corev1.Pod) error {
		err := evict(pod)
		if givenUp(err) {
			stop() // calls that are under way go on
		}
		return err
	})
}

// notDeleted leaves out the pods of which the API server has accepted the deletion for a gang, whether the cache
// shows that or not yet.
func (p *Plugin) notDeleted(key string, pods []*corev1.Pod) []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return ok && g.deleted[pod.UID] })
}

// recordEvictions notes how evictions for a gang have ended. Those that failed are repeated after a pause, which doubles; of
// those that were given up it is looked again whether they are wanted.
func (p *Plugin) recordEvictions(ctx context.Context, key string, err error) {
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot evict pods for a gang", "gang", key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	switch {
	case !ok || g.evictsAgain:
		return
	case err == nil:
		g.evictPause = 0
		return
	case givenUp(err):
		g.evictPause = 0
		p.after(evictAgain, func() { p.checkEvictions(key) })
		return
	}
	g.evictPause = min(max(2*g.evictPause, evictAgain), maxBackoff)
	g.evictsAgain = true
	p.after(g.evictPause, func() {
		p.mu.Lock()
		g.evictsAgain = false
		p.mu.Unlock()
		p.checkEvictions(key)
	})
}

// checkEvictions has the worker look at whom a gang evicts.
func (p *Plugin) checkEvictions(key string) {
	p.work.preempt(key)
	p.work.add(clusterstate.Change{Gang: key})
}

// pauses reports whether evictions for a gang have failed, and are repeated in a while.
func (p *Plugin) pauses(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return ok && g.evictsAgain
}

var (
	// errUndeletable means that nobody counts on a pod's end for now.
	errUndeletable = errors.New("it is no victim for now")
	// errUnwanted means that a gang was decided about again since its evictions began.
	errUnwanted = errors.New("the gang does not wait for this place any more")
)

// givenUp reports whether the evictions that an error has ended are not to be repeated as they were.
func givenUp(err error) bool { return errors.Is(err, errUndeletable) || errors.Is(err, errUnwanted) }

// noteRefusal notes that a pod is not deleted for a gang when the error is the API server's answer that it will not:
// nobody counts on the pod's end until the API server answers otherwise, or the pod changes. An answer that may be
// another one a moment later counts when it was given refusedAfter times. noteRefusal returns the error.
func (p *Plugin) noteRefusal(ctx context.Context, key string, pod *corev1.Pod, err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}
	status := answer.Status()
	p.mu.Lock()
	g, ok := p.gangs[key]
	refuses := false
	if ok {
		if g.refusals == nil {
			g.refusals, g.failures = map[types.UID]string{}, map[types.UID]int{}
		}
		g.failures[pod.UID]++
		refuses = final(status.Code) || g.failures[pod.UID] >= refusedAfter
	}
	if refuses {
		delete(g.failures, pod.UID)
		g.refusals[pod.UID] = fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, strings.TrimSuffix(status.Message, "."))
	}
	p.mu.Unlock()
	if refuses {
		p.refused(ctx, pod)
		return fmt.Errorf("%w; %w", err, errUndeletable)
	}
	return err
}

// final reports whether an answer of the API server will be the same a moment later.
func final(code int32) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return code < http.StatusInternalServerError
}

// refused notes that the API server refuses to delete a pod, and asks it again after a pause that doubles. Nobody is
// evicted beside the pod, nor waits for it, before it answers otherwise.
func (p *Plugin) refused(ctx context.Context, pod *corev1.Pod) {
	refusals := p.cache.SetUndeletable(pod.UID)
	if refusals == 0 {
		return
	}
	pause := maxBackoff
	if refusals < 10 {
		pause = min(minBackoff<<(refusals-1), maxBackoff)
	}
	p.after(pause, func() {
		p.rechecks.run(string(pod.UID), func() {
			switch {
			case p.cache.Undeletable(pod.UID) != refusals: // it has changed or gone, or was refused again
			case p.wasRefused(pod.UID) && p.refuses(ctx, pod):
				p.refused(ctx, pod)
			default:
				p.cache.SetDeletable(pod.UID)
			}
		})
	})
}

// refuses reports whether the API server says that it would not delete a pod.
func (p *Plugin) refuses(ctx context.Context, pod *corev1.Pod) bool {
	err := p.delete(ctx, pod, metav1.DryRunAll)
	return err != nil && !inconclusive(err)
}

// wasRefused reports whether the API server has refused to delete a pod for a gang that waits still.
func (p *Plugin) wasRefused(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gangs {
		if _, ok := g.refusals[pod]; ok {
			return true
		}
	}
	return false
}

// refusalText says which pods the API server refuses to delete for a gang, and what it answers, "" when there are none.
func (p *Plugin) refusalText(key string) string {
	var texts []string
	p.mu.Lock()
	if g, ok := p.gangs[key]; ok {
		for pod, text := range g.refusals {
			if p.cache.Undeletable(pod) > 0 {
				texts = append(texts, text)
			}
		}
	}
	p.mu.Unlock()
	slices.Sort(texts)
	switch len(texts) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" The API server refuses to delete %s.", texts[0])
	}
	return fmt.Sprintf(" The API server refuses to delete %d pods, %s.", len(texts), texts[0])
}
