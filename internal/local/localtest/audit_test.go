package localtest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// stay is a time through which a pod certainly was on a node of a cluster: what a server that was killed did not come to write down makes
// it shorter, never longer.
type stay struct {
	cluster, gang, pod string
	from, to           time.Time
}

// auditLog calls do with what the API server of a cluster was asked, in the order in which it was written down.
func auditLog(t *testing.T, dataDir string, do func(*auditv1.Event)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dataDir, "log", "audit*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "the platform was started without --audit")
	slices.Sort(files) // those that are full have a time in their names
	for _, name := range files {
		file, err := os.Open(name)
		require.NoError(t, err)
		defer file.Close()
		for lines := bufio.NewReaderSize(file, 1<<20); ; {
			line, err := lines.ReadBytes('\n')
			if err == io.EOF {
				break // what is left was not written to its end
			}
			require.NoError(t, err)
			event := &auditv1.Event{}
			whole := line[max(bytes.LastIndex(line, []byte(`{"kind":"Event",`)), 0):] // behind what a killed server has left
			require.NoError(t, json.Unmarshal(whole, event), "%s: %s", name, line)
			do(event)
		}
	}
}

// object reads an object of a request or an answer, nil where it is of another type or was not written down.
func object[T any](raw *runtime.Unknown, kind string) *T {
	var of metav1.TypeMeta
	read := new(T)
	if raw == nil || json.Unmarshal(raw.Raw, &of) != nil || of.Kind != kind || json.Unmarshal(raw.Raw, read) != nil {
		return nil
	}
	return read
}

func succeeded(event *auditv1.Event) bool {
	return event.Stage == auditv1.StageResponseComplete && event.ResponseStatus != nil && event.ResponseStatus.Code/100 == 2
}

// stays are those of the pods of jobs in a cluster.
func stays(t *testing.T, cluster, dataDir string) (all []stay) {
	t.Helper()
	pods := map[types.UID]*stay{}
	of := func(uid types.UID) *stay {
		if pods[uid] == nil {
			pods[uid] = &stay{cluster: cluster}
		}
		return pods[uid]
	}
	earliest := func(at *time.Time, event time.Time) {
		if at.IsZero() || event.Before(*at) {
			*at = event
		}
	}
	unanswered := map[types.UID]*auditv1.Event{} // deletions
	auditLog(t, dataDir, func(event *auditv1.Event) {
		about := event.ObjectRef
		if about == nil || about.Resource != "pods" || about.Namespace != "default" {
			return
		}
		if event.Verb == "delete" {
			delete(unanswered, event.AuditID)
			if event.Stage == auditv1.StageRequestReceived {
				unanswered[event.AuditID] = event
			}
		}
		if !succeeded(event) {
			return
		}
		if binding := object[corev1.Binding](event.RequestObject, "Binding"); binding != nil && about.Subresource == "binding" {
			earliest(&of(binding.UID).from, event.StageTimestamp.Time)
		}
		pod := object[corev1.Pod](event.ResponseObject, "Pod")
		if pod == nil {
			return
		}
		s := of(pod.UID)
		s.gang, s.pod = pod.Labels[contract.JobNameLabel], pod.Name
		if pod.Spec.NodeName != "" {
			earliest(&s.from, event.StageTimestamp.Time)
		}
		options := object[metav1.DeleteOptions](event.RequestObject, "DeleteOptions")
		atOnce := options != nil && options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 ||
			pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
		if inventory.Finished(pod) || event.Verb == "delete" && atOnce {
			earliest(&s.to, event.RequestReceivedTimestamp.Time)
		}
	})
	for _, event := range unanswered {
		for _, s := range pods {
			if s.pod == event.ObjectRef.Name && s.from.Before(event.RequestReceivedTimestamp.Time) {
				earliest(&s.to, event.RequestReceivedTimestamp.Time)
			}
		}
	}
	now := time.Now()
	for _, s := range pods {
		if s.to.IsZero() {
			s.to = now
		}
		if s.gang != "" && !s.from.IsZero() && s.from.Before(s.to) {
			all = append(all, *s)
		}
	}
	return all
}

// together says which gangs had pods in two clusters at one time.
func together(all []stay) (wrong []string) {
	gangs := map[string][]stay{}
	for _, s := range all {
		gangs[s.gang] = append(gangs[s.gang], s)
	}
	for _, of := range gangs {
		for n, a := range of {
			for _, b := range of[n+1:] {
				if a.cluster != b.cluster && a.from.Before(b.to) && b.from.Before(a.to) {
					wrong = append(wrong, fmt.Sprintf("gang %s: %s was in %s from %s to %s, and %s in %s from %s to %s", a.gang,
						a.pod, a.cluster, a.from, a.to, b.pod, b.cluster, b.from, b.to))
				}
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// outlived is by how much each reservation of a cluster was shown as kept when its time was over, where it was, by name and epoch. ahead is
// by how much the clock that says when it is over is ahead of the API server's.
func outlived(t *testing.T, dataDir string, ahead time.Duration) map[string]time.Duration {
	t.Helper()
	late, kept := map[string]time.Duration{}, map[string]contract.GangReservationStatus{}
	auditLog(t, dataDir, func(event *auditv1.Event) {
		if event.ObjectRef == nil || event.ObjectRef.Resource != contract.GangReservationResource || !succeeded(event) {
			return
		}
		name := event.ObjectRef.Namespace + "/" + event.ObjectRef.Name
		before := kept[name]
		after := contract.GangReservationStatus{}
		if reservation := object[contract.GangReservation](event.ResponseObject, contract.GangReservationKind); reservation != nil && event.Verb != "delete" {
			after = reservation.Status
		}
		if before.Phase == contract.PhaseReserved && before.Expires != nil && (after.Phase != before.Phase || after.Epoch != before.Epoch) {
			if by := event.StageTimestamp.Sub(before.Expires.Add(-ahead)); by > 0 {
				late[fmt.Sprintf("%s of epoch %d", name, before.Epoch)] = by
			}
		}
		kept[name] = after
	})
	return late
}

// The audit logs of two clusters tell when gangs were in both, also where servers were killed before they wrote all down.
func TestGangInTwoClusters(t *testing.T) {
	at := func(second int) metav1.MicroTime {
		return metav1.NewMicroTime(time.Date(2026, 11, 1, 12, 0, second, 0, time.UTC))
	}
	raw := func(object any) *runtime.Unknown {
		text, err := json.Marshal(object)
		require.NoError(t, err)
		return &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}
	}
	pod := func(uid, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "a-master-0", UID: types.UID(uid), Labels: map[string]string{contract.JobNameLabel: "a"}},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	event := func(second int, verb, subresource string, request, response any) auditv1.Event {
		e := auditv1.Event{
			TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"}, AuditID: types.UID(fmt.Sprint(verb, second)), Verb: verb,
			Stage: auditv1.StageResponseComplete, RequestReceivedTimestamp: at(second), StageTimestamp: at(second), ResponseStatus: &metav1.Status{Code: 200},
			ObjectRef: &auditv1.ObjectReference{Resource: "pods", Namespace: "default", Name: "a-master-0", Subresource: subresource},
		}
		if request != nil {
			e.RequestObject = raw(request)
		}
		if response != nil {
			e.ResponseObject = raw(response)
		}
		return e
	}
	created := func(second int, uid string) auditv1.Event { return event(second, "create", "", nil, pod(uid, "", "")) }
	bound := func(second int, uid string) auditv1.Event {
		return event(second, "create", "binding", &corev1.Binding{
			TypeMeta: metav1.TypeMeta{Kind: "Binding"}, ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Target: corev1.ObjectReference{Name: "n"},
		}, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}})
	}
	ran := func(second int, uid string, phase corev1.PodPhase) auditv1.Event {
		return event(second, "patch", "status", nil, pod(uid, "n", phase))
	}
	deleted := func(second int, uid string, seconds int64) auditv1.Event {
		return event(second, "delete", "", &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions"}, GracePeriodSeconds: &seconds}, pod(uid, "n", ""))
	}
	begun := func(e auditv1.Event) auditv1.Event {
		e.Stage, e.ResponseStatus, e.RequestObject, e.ResponseObject = auditv1.StageRequestReceived, nil, nil, nil
		return e
	}
	failed := func(e auditv1.Event) auditv1.Event {
		e.ResponseStatus = &metav1.Status{Code: 409}
		return e
	}
	second := []auditv1.Event{created(8, "2"), bound(10, "2")}
	for name, test := range map[string]struct {
		first []auditv1.Event
		wrong bool
	}{
		"deleted before":           {[]auditv1.Event{created(1, "1"), bound(2, "1"), deleted(3, "1", 30), deleted(4, "1", 0)}, false},
		"is being deleted":         {[]auditv1.Event{created(1, "1"), bound(2, "1"), deleted(3, "1", 30)}, true},
		"deleted after":            {[]auditv1.Event{created(1, "1"), bound(2, "1"), deleted(11, "1", 0)}, true},
		"deletion failed":          {[]auditv1.Event{created(1, "1"), bound(2, "1"), failed(deleted(4, "1", 0))}, true},
		"ended before":             {[]auditv1.Event{created(1, "1"), bound(2, "1"), ran(3, "1", corev1.PodSucceeded)}, false},
		"never bound":              {[]auditv1.Event{created(1, "1")}, false},
		"binding failed":           {[]auditv1.Event{created(1, "1"), failed(bound(2, "1"))}, false},
		"binding not written down": {[]auditv1.Event{created(1, "1"), begun(bound(2, "1")), ran(3, "1", corev1.PodRunning)}, true},
		"killed while deleting":    {[]auditv1.Event{created(1, "1"), bound(2, "1"), begun(deleted(4, "1", 0))}, false},
		"another of its name runs": {[]auditv1.Event{created(1, "1"), bound(2, "1"), deleted(3, "1", 0), created(4, "3"), bound(5, "3")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []stay
			for cluster, events := range map[string][]auditv1.Event{"x": test.first, "y": second} {
				dir := t.TempDir()
				require.NoError(t, os.Mkdir(filepath.Join(dir, "log"), 0o700))
				text := []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","lev`) // a server was killed here
				for _, e := range events {
					line, err := json.Marshal(e)
					require.NoError(t, err)
					text = append(append(text, line...), '\n')
				}
				require.NoError(t, os.WriteFile(filepath.Join(dir, "log", "audit.log"), text, 0o600))
				all = append(all, stays(t, cluster, dir)...)
			}
			assert.Equal(t, test.wrong, len(together(all)) > 0, "%v", all)
		})
	}
}

// auditOf reads the audit logs of clusters: the stays of all pods, and reservations that outlived their time, by the clocks of the
// schedulers, which may be ahead.
func auditOf(t *testing.T, dataDirs map[string]string, ahead map[string]time.Duration) (all []stay, late map[string]time.Duration) {
	t.Helper()
	late = map[string]time.Duration{}
	for _, cluster := range slices.Sorted(maps.Keys(dataDirs)) {
		all = append(all, stays(t, cluster, dataDirs[cluster])...)
		for reservation, by := range outlived(t, dataDirs[cluster], ahead[cluster]) {
			late[cluster+": "+reservation] = by
		}
	}
	return all, late
}
