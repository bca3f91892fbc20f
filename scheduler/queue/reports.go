package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// reporter writes what only people read: places in the queue, what waits in a queue, what
// of the tree is used. A change of the front of a long line changes every place behind
// it, so this goes at a limited pace; what changes meanwhile is written once.
type reporter struct {
	*writer
	lines, trees *rate.Limiter
	queues       map[string]*rate.Limiter
}

// Paces of reports, and how many may come at once.
const (
	positionsPerSecond, positionsAtOnce = 50, 100
	reportsPerSecond, reportsAtOnce     = 2, 2
)

func newReporter(w *writer) *reporter {
	return &reporter{
		writer: w,
		lines:  rate.NewLimiter(positionsPerSecond, positionsAtOnce),
		trees:  rate.NewLimiter(reportsPerSecond, reportsAtOnce),
		queues: map[string]*rate.Limiter{},
	}
}

// apply writes as much as may be written now, and returns after how long there may be
// more, 0 when everything is written.
func (r *reporter) apply(ctx context.Context, p plan) (later time.Duration, err error) {
	wait := func(limiter *rate.Limiter) bool {
		reservation := limiter.Reserve()
		delay := reservation.Delay()
		if delay == 0 {
			return false
		}
		reservation.Cancel()
		if later == 0 || delay < later {
			later = delay
		}
		return true
	}
	var errs []error
	for i := range p.positions {
		if wait(r.lines) {
			p.positions = p.positions[:i]
			break
		}
	}
	errs = append(errs, each(ctx, p.positions, r.report))
	for _, q := range p.queues {
		limiter := r.queues[q.queue.Name]
		if limiter == nil {
			limiter = rate.NewLimiter(reportsPerSecond, reportsAtOnce)
			r.queues[q.queue.Name] = limiter
		}
		if !wait(limiter) {
			errs = append(errs, harmless(r.reportQueue(ctx, q)))
		}
	}
	for _, t := range p.trees {
		if !wait(r.trees) {
			errs = append(errs, harmless(r.reportTree(ctx, t)))
		}
	}
	return later, errors.Join(errs...)
}

func (r *reporter) reportQueue(ctx context.Context, q queueReport) error {
	next := q.queue.object.DeepCopy()
	status, err := plain(q.status)
	if err != nil {
		return err
	}
	next.Object["status"] = status
	updated, err := r.client.Resource(queues()).Namespace(next.GetNamespace()).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: contract.QueueControllerName})
	if apierrors.IsNotFound(err) {
		r.state.removeQueue(q.queue.object)
	}
	if err != nil {
		return fmt.Errorf("update the status of Queue %s: %w", next.GetName(), err)
	}
	return r.state.answerQueue(updated)
}

func (r *reporter) reportTree(ctx context.Context, t treeReport) error {
	next := t.object.DeepCopy()
	next.Object["status"] = t.status
	updated, err := r.client.Resource(trees()).Namespace(next.GetNamespace()).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: contract.QueueControllerName})
	if err != nil {
		return fmt.Errorf("update the status of %s %s: %w", contract.QuotaTreeKind, next.GetName(), err)
	}
	if t.news != nil {
		r.recordTree(updated, t.news)
	}
	return r.state.answerTree(updated)
}
