package queue

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// refusing is a writer to an API server that answers writes as refuse says, by verb and name;
// asked are the writes.
func refusing(s *state, refuse func(verb, name string) error) (w *writer, asked func() []string) {
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	var writes []string
	client.PrependReactor("*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		var name string
		switch action := action.(type) {
		case k8stesting.CreateActionImpl:
			object, _ := action.Object.(metav1.Object)
			name = object.GetName()
		case k8stesting.UpdateActionImpl:
			object, _ := action.Object.(metav1.Object)
			name = object.GetName()
		case k8stesting.PatchActionImpl:
			name = action.Name
		}
		writes = append(writes, action.GetVerb()+" "+name)
		err := refuse(action.GetVerb(), name)
		return err != nil, nil, err
	})
	w = newWriter(client, s, nil, nil, record.NewFakeRecorder(100))
	w.now = func() time.Time { return now }
	return w, func() []string {
		all := writes
		writes = nil
		return all
	}
}

// said are the events so far.
func (w *writer) said() (all []string) {
	events := w.events.(*record.FakeRecorder).Events
	for len(events) > 0 {
		all = append(all, <-events)
	}
	return all
}

func noRoom(name string) error {
	return apierrors.NewForbidden(units().GroupResource(), name, errors.New("exceeded quota: objects"))
}

// registered are the metrics of this process.
var registered = sync.OnceValue(newMeters)

// A write that is refused does not keep what people read of the others from being written.
func TestRefusedWriteStopsNoReports(t *testing.T) {
	s := world(t)
	s.queueUp(t, object("a", nil), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
	s.queueUp(t, object("b", nil), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
	w, asked := refusing(s, func(verb, name string) error {
		if verb == "patch" {
			return apierrors.NewForbidden(batchv1.Resource("jobs"), name, errors.New("a policy"))
		}
		return nil
	})
	w.log, w.meters = &releaseLog{releasing: map[string]int64{"team/a@unit-a": 1}}, registered()
	c := &controller{timing: patient, state: s, meters: w.meters, work: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[pass]())}
	defer c.work.ShutDown()
	require.ErrorContains(t, c.pass(t.Context(), w, newReporter(w)), "a policy")
	require.ErrorContains(t, c.pass(t.Context(), w, newReporter(w)), "a policy")
	said := w.said()
	require.Len(t, said, 1, "once")
	assert.Contains(t, said[0], "Warning ReleaseRefused cannot be resumed: ")
	assert.Subset(t, asked(), []string{"patch a", "update b", "update "}, "the place of b, and the status of the tree, which has no name here")
}

// A unit that is refused keeps none of the others from the queue, its job is told why once, and it
// is asked for again after a pause. What concerns all units ends the attempt.
func TestRefusedUnit(t *testing.T) {
	type attempt struct {
		after time.Duration
		asked string
		said  int
	}
	for name, test := range map[string]struct {
		refuse   error
		took     time.Duration
		attempts []attempt
		fails    bool
	}{
		"by a quota": {refuse: noRoom("a"), attempts: []attempt{
			{0, "create a, create b", 1}, {time.Millisecond, "", 0}, {firstPause, "create a", 0}, {firstPause, "", 0}, {2 * firstPause, "create a", 0}}},
		"for its name": {
			refuse:   apierrors.NewInvalid(schema.GroupKind{}, "a", nil),
			attempts: []attempt{{0, "create a, create b", 1}}},
		"as its namespace is gone": {
			refuse:   apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "team"),
			attempts: []attempt{{0, "create a, create b", 1}}},
		"by a slow webhook": {
			refuse: apierrors.NewInternalError(errors.New("failed calling webhook")), took: refusalsTake,
			attempts: []attempt{{0, "create a", 1}, {time.Millisecond, "create b", 0}}},
		"by a busy server": {
			refuse: apierrors.NewTooManyRequests("busy", 1), fails: true,
			attempts: []attempt{{0, "create a", 0}, {time.Millisecond, "create a", 0}}},
		"as no unit is known": {
			refuse: apierrors.NewGenericServerResponse(http.StatusNotFound, "post", units().GroupResource(), "", "404 page not found", 0, true), fails: true,
			attempts: []attempt{{0, "create a", 0}}},
		"by no answer": {
			refuse: &url.Error{Op: "Post", URL: "https://api", Err: errors.New("connection refused")}, fails: true,
			attempts: []attempt{{0, "create a", 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			s.put(t, object("a", nil))
			s.put(t, object("b", func(j *batchv1.Job) { j.CreationTimestamp = metav1.NewTime(now) }))
			at := now
			w, asked := refusing(s, func(_, name string) error {
				if name != "a" {
					return nil
				}
				at = at.Add(test.took)
				return test.refuse
			})
			w.now = func() time.Time { return at }
			for _, attempt := range test.attempts {
				at = at.Add(attempt.after)
				p := s.plan(patient, at, nil)
				again, err := w.enqueue(t.Context(), p.enqueue)
				assert.Equal(t, test.fails, err != nil, err)
				assert.Equal(t, attempt.asked, strings.Join(asked(), ", "))
				said := w.said()
				require.Len(t, said, attempt.said)
				if attempt.said > 0 {
					assert.Contains(t, said[0], "Warning QueueUnitRefused is not in line until its QueueUnit can be made: create QueueUnit team/a: ")
				}
				assert.Equal(t, test.fails, again.IsZero())
			}
		})
	}
}
