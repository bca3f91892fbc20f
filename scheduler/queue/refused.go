package queue

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A unit may be refused for reasons that are its job's alone: a quota on objects, a namespace that
// is being deleted, a webhook, a name that is too long. Its job is told and waits, the others go on.
const (
	// longestRefusal is the longest pause after which the API server is asked again.
	longestRefusal = time.Minute
	// refusalsTake is how long refusals may hold up the others in one pass: a webhook may take its time.
	refusalsTake = time.Second
)

// refusal is what the API server said of a job's unit.
type refusal struct {
	text  string
	pause time.Duration
	again time.Time
}

// refused notes and tells why a job gets no unit now.
func (w *writer) refused(ctx context.Context, j *job, err error) {
	before := w.refusals[j.uid]
	next := refusal{text: err.Error(), pause: min(max(2*before.pause, firstPause), longestRefusal)}
	next.again = w.now().Add(next.pause)
	w.refusals[j.uid] = next
	if next.text == before.text {
		return
	}
	klog.FromContext(ctx).Error(err, "A job cannot be queued", "job", j.String())
	w.events.Eventf(j.object, corev1.EventTypeWarning, eventRefused, "is not in line until its %s can be made: %v", contract.QueueUnitKind, err)
}

// setUnitless notes the jobs whose units are refused.
func (s *state) setUnitless(jobs iter.Seq[types.UID]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unitless = map[types.UID]bool{}
	for job := range jobs {
		s.unitless[job] = true
	}
}

// releaseRefused tells a job, once, why the API server does not let it be resumed.
func (w *writer) releaseRefused(ctx context.Context, j *job, err error) {
	if harmless(err) == nil || concernsAll(ctx, err) {
		return
	}
	if before, _ := w.keptBack.Swap(j.uid, err.Error()); before != err.Error() {
		w.events.Eventf(j.object, corev1.EventTypeWarning, eventReleaseRefused, "cannot be resumed: %v", err)
	}
}

// forget drops the refusals of jobs that want no unit any more.
func (w *writer) forget(wanting []*entry) {
	left := map[types.UID]refusal{}
	for _, e := range wanting {
		if r, ok := w.refusals[e.job.uid]; ok {
			left[e.job.uid] = r
		}
	}
	w.refusals = left
}

// concernsAll reports whether a write failed for a reason that is not the object's own, so that
// others would fail as well.
func concernsAll(ctx context.Context, err error) bool {
	var unreached *url.Error
	if ctx.Err() != nil || errors.As(err, &unreached) {
		return true
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonTooManyRequests, metav1.StatusReasonUnauthorized,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonServiceUnavailable:
		return true
	case metav1.StatusReasonNotFound: // the resource itself, or one namespace
		var status apierrors.APIStatus
		return errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Kind != "namespaces")
	}
	return false
}
