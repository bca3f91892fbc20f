package queue

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Reasons of the events on jobs.
const (
	eventQueued    = "Queued"
	eventReleased  = "Released"
	eventRequeued  = "Requeued"
	eventNameTaken = "QueueUnitNameTaken"
	eventRefused   = "QueueUnitRefused"
	// eventReleaseRefused is the reason of one that says why the job is not resumed.
	eventReleaseRefused = "ReleaseRefused"
)

// newRecorder returns a recorder that works until ctx ends.
func newRecorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: contract.QueueControllerName})
}

// nameTaken tells a job, once, that someone else's unit has the name of its own.
func (w *writer) nameTaken(t taken) {
	if w.told[t.job.uid] == t.unit.UID {
		return
	}
	w.told[t.job.uid] = t.unit.UID
	w.events.Eventf(t.job.about(), corev1.EventTypeWarning, eventNameTaken,
		"%s %s of this namespace is not this job's, and has its name: the job waits until it is deleted", contract.QueueUnitKind, t.unit.Name)
}

// record puts a new phase of a unit into an event on its job. What changes within a phase,
// the place in the queue above all, is in the unit's status only.
func (w *writer) record(e *entry, status contract.QueueUnitStatus) {
	if status.Phase == e.unit.Status.Phase {
		return
	}
	switch status.Phase {
	case contract.UnitEnqueued:
		text := status.Message
		if status.Position > 0 {
			text = fmt.Sprintf("position %d in queue %s: %s", status.Position, e.path, text)
		}
		w.events.Event(e.job.about(), corev1.EventTypeNormal, eventQueued, text)
	case contract.UnitDequeued:
		if status.Attempts == e.unit.Status.Attempts {
			return // it has lost pods since it was released
		}
		w.events.Eventf(e.job.about(), corev1.EventTypeNormal, eventReleased, "left queue %s, attempt %d", e.path, status.Attempts)
	case contract.UnitBackoff:
		w.events.Event(e.job.about(), corev1.EventTypeWarning, eventRequeued, status.Message)
	}
}
