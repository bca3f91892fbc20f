package trainingjob

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
)

// A job of which no pod can be created is given up after a while, not sooner, and only then.
func TestPatienceWithRefusals(t *testing.T) {
	const uid = k8stypes.UID("job")
	warning := func(of k8stypes.UID, reason, message string) *corev1.Event {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{UID: of}, Type: corev1.EventTypeWarning, Reason: reason, Message: message}
	}
	const born = 1000
	workers := func(of string, made int64) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{CreationTimestamp: metav1.Unix(made, 0)},
			InvolvedObject: corev1.ObjectReference{Kind: statefulSet, Name: of, UID: "set"}, Type: corev1.EventTypeWarning,
			Reason: reasonSetFailedCreate, Message: "Create Pod j-worker-0 in StatefulSet j-worker failed",
		}
	}
	const forbidden = `Error creating: pods "j-worker-0" is forbidden: violates PodSecurity "baseline:latest"`
	const tooSmall = `Error creating: forbidden: exceeded quota: q, requested: count/x=1,pods=1, used: count/x=0,pods=0, limited: count/x=0,pods=9`
	const usedUp = `Error creating: forbidden: exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9`
	roleOf := func(of string) *corev1.Event {
		event := workers(of, born)
		event.InvolvedObject.Kind, event.Message = "Job", "forbidden: no"
		return event
	}
	for name, test := range map[string]struct {
		events  []*corev1.Event
		pod     bool // a pod appears after them
		jobs    bool // Jobs of a JobSet appear after them
		givesUp bool
		says    string
	}{
		"no pod can be created": {[]*corev1.Event{warning(uid, reasonFailedCreate, forbidden)}, false, false, true, forbidden},
		"again and again": {[]*corev1.Event{
			warning(uid, reasonFailedCreate, "for another reason"), warning(uid, reasonFailedCreate, forbidden), warning(uid, reasonFailedCreate, forbidden),
		}, false, false, true, forbidden},
		"a pod appears":                        {[]*corev1.Event{warning(uid, reasonFailedCreate, forbidden)}, true, false, false, ""},
		"the quota is full":                    {[]*corev1.Event{warning(uid, reasonFailedCreate, "forbidden: exceeded quota: team")}, false, false, false, "forbidden: exceeded quota: team"},
		"of another job":                       {[]*corev1.Event{warning("another", reasonFailedCreate, forbidden)}, false, false, false, ""},
		"of the workers of an MPIJob v1alpha1": {[]*corev1.Event{workers("j-worker", born)}, false, false, true, "Create Pod j-worker-0 in StatefulSet j-worker failed"},
		"of a role of a JobSet":                {[]*corev1.Event{roleOf("j-worker-0")}, false, false, true, "forbidden: no"},
		"of a role of another one":             {[]*corev1.Event{roleOf("k-worker-0")}, false, false, false, ""},
		"of workers before it was created":     {[]*corev1.Event{workers("j-worker", born-1)}, false, false, false, ""},
		"of workers of another job":            {[]*corev1.Event{workers("k-worker", born)}, false, false, false, ""},
		"a quota that is too small for it":     {[]*corev1.Event{warning(uid, reasonFailedCreate, tooSmall)}, false, false, true, tooSmall},
		"a quota that others use":              {[]*corev1.Event{warning(uid, reasonFailedCreate, usedUp)}, false, false, false, usedUp},
		"no JobSet of a TrainJob":              {[]*corev1.Event{warning(uid, reasonTrainJobFailed, forbidden)}, false, false, true, forbidden},
		"no JobSet at first":                   {[]*corev1.Event{warning(uid, reasonTrainJobFailed, forbidden)}, false, true, false, "late news"},
		"no service of a JobSet":               {[]*corev1.Event{warning(uid, reasonServiceFailed, forbidden)}, false, false, true, forbidden},
		"another warning":                      {[]*corev1.Event{warning(uid, "PodGroupStuck", "slow")}, false, false, false, "slow"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, giveUp := context.WithCancelCause(t.Context())
				defer giveUp(nil)
				f := &refusalFollower{uid: uid, since: metav1.Unix(born, 0), makers: []maker{{statefulSet, "j-worker"}, {"Job", "j-worker-0"}}, giveUp: giveUp}
				for _, event := range test.events {
					f.take(ctx, event)
				}
				if test.pod {
					f.pod()
				}
				if test.jobs {
					f.begin()
					f.take(ctx, warning(uid, reasonTrainJobFailed, "late news"))
				}
				time.Sleep(patience - time.Nanosecond) // the clock is the test's own
				assert.NoError(t, ctx.Err())
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if test.givesUp {
					assert.EqualError(t, context.Cause(ctx), "none of its pods can be created within 1m0s")
				} else {
					assert.NoError(t, ctx.Err())
				}
				assert.Equal(t, test.says, f.reason())
			})
		})
	}
}

// Pods that wait without a word from a scheduler wait for one that is not there.
func TestPodsThatNoSchedulerLooksAt(t *testing.T) {
	scheduled := func(status corev1.ConditionStatus, message string) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, Message: message}}}
	}
	pending := &corev1.Pod{}
	refused := &corev1.Pod{Status: scheduled(corev1.ConditionFalse, "1 of 2 members fit")}
	bound := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: scheduled(corev1.ConditionTrue, "")}
	for name, test := range map[string]struct {
		seen    []*corev1.Pod
		ignored bool
		reason  string
	}{
		"no pods":                  {nil, false, ""},
		"nobody looks":             {[]*corev1.Pod{pending, pending}, true, ""},
		"refused":                  {[]*corev1.Pod{pending, refused}, false, "1 of 2 members fit"},
		"one bound, one still new": {[]*corev1.Pod{pending, bound, pending}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &podFollower{seen: func() {}}
			for _, pod := range test.seen {
				f.take(t.Context(), pod)
			}
			assert.Equal(t, test.ignored, f.ignored())
			assert.Equal(t, test.reason, f.reason())
		})
	}
}
