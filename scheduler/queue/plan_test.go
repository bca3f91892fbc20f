package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// now is the time of all plans in these tests.
var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

var patient = timing{ready: 10 * time.Minute, backoff: time.Minute, longest: time.Hour}

// world is a state with a tree of one leaf, which has the namespace "team" and released
// one job at a time.
func world(t testing.TB) *state {
	t.Helper()
	s := newState(func() {})
	tree := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{
		"name": "root", "children": []any{map[string]any{
			"name": "leaf", "namespaces": []any{"team"}, "max": map[string]any{"cpu": int64(10), contract.MaxJobsKey: int64(1)},
		}},
	}}}}
	tree.SetUID("tree")
	tree.SetResourceVersion("1")
	require.NoError(t, s.setTree(tree))
	return s
}

// object describes a batch Job of one pod with one CPU.
func object(name string, change func(*batchv1.Job)) *batchv1.Job {
	suspended := true
	j := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), ResourceVersion: "7", Generation: 1,
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), Annotations: map[string]string{},
		},
		Spec: batchv1.JobSpec{Suspend: &suspended, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}}},
		}}},
	}
	if change != nil {
		change(j)
	}
	return j
}

func (s *state) put(t testing.TB, j *batchv1.Job) {
	t.Helper()
	o, err := toObject(j)
	require.NoError(t, err)
	require.NoError(t, s.setJob(kinds()[2], o))
}

// queueUp gives a job a unit with a status.
func (s *state) queueUp(t testing.TB, j *batchv1.Job, status contract.QueueUnitStatus) {
	t.Helper()
	s.put(t, j)
	o, err := toObject(&contract.QueueUnit{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, UID: "unit-" + j.UID, ResourceVersion: "8"},
		Spec: contract.QueueUnitSpec{
			ConsumerRef: corev1.ObjectReference{UID: j.UID},
			Resource:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		},
		Status: status,
	})
	require.NoError(t, err)
	require.NoError(t, s.setUnit(o))
}

func released(j *batchv1.Job)  { *j.Spec.Suspend = false }
func deleted(j *batchv1.Job)   { j.DeletionTimestamp = &metav1.Time{Time: now} }
func elsewhere(j *batchv1.Job) { j.Namespace = "elsewhere" }
func annotated(key, value string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Annotations[key] = value }
}

func both(changes ...func(*batchv1.Job)) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		for _, change := range changes {
			change(j)
		}
	}
}

// names lists what a plan does to jobs: "enqueue a, suspend b".
func (p plan) names() string {
	var all []string
	for _, list := range []struct {
		verb    string
		entries []*entry
	}{{"enqueue", p.enqueue}, {"start", p.start}, {"resume", p.resume}, {"back", p.back}, {"phase", p.phases}} {
		for _, e := range list.entries {
			text := list.verb + " " + e.job.object.GetName()
			if list.verb == "phase" {
				text += "=" + string(e.status.Phase)
			}
			all = append(all, text)
		}
	}
	for _, j := range p.suspend {
		all = append(all, "suspend "+j.object.GetName())
	}
	for _, u := range p.drop {
		all = append(all, "drop "+u.Name)
	}
	return strings.Join(all, ", ")
}

func TestWhatIsQueued(t *testing.T) {
	started := func(j *batchv1.Job) { j.Status.StartTime = &metav1.Time{Time: now} }
	finished := func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	}
	kueues := func(j *batchv1.Job) { j.Labels = map[string]string{contract.KueueQueueLabel: "research"} }
	tests := map[string]struct {
		change func(*batchv1.Job)
		want   string
		active int32
	}{
		"suspended in a leaf":              {nil, "enqueue a", 0},
		"suspended in no leaf":             {elsewhere, "", 0},
		"suspended, naming a leaf":         {both(elsewhere, func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{contract.QuotaLabel: "leaf"} }), "enqueue a", 0},
		"suspended, naming no leaf":        {both(elsewhere, func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{contract.QuotaLabel: "typo"} }), "enqueue a", 0},
		"suspended after it ran":           {started, "", 0},
		"running":                          {released, "", 1},
		"finished":                         {both(released, finished), "", 0},
		"declined":                         {annotated(contract.QueueAnnotation, "false"), "", 0},
		"held by Kueue":                    {kueues, "", 0},
		"Kueue let it start":               {both(released, kueues), "", 1},
		"Kueue's, wanted":                  {both(kueues, annotated(contract.QueueAnnotation, "true")), "enqueue a", 0},
		"Kueue's, asked for by arena":      {both(kueues, annotated(contract.SuspendAnnotation, "true")), "enqueue a", 0},
		"asked for by arena":               {both(released, started, annotated(contract.SuspendAnnotation, "true")), "suspend a", 1},
		"asked for by arena, suspended":    {both(started, annotated(contract.SuspendAnnotation, "true")), "enqueue a", 0},
		"wanted in no leaf":                {both(elsewhere, annotated(contract.QueueAnnotation, "true")), "enqueue a", 0},
		"wanted, not suspended":            {both(released, annotated(contract.QueueAnnotation, "true")), "suspend a", 1},
		"wanted, but it has started":       {both(released, started, annotated(contract.QueueAnnotation, "true")), "", 1},
		"suspended, being deleted":         {deleted, "", 0},
		"running, being deleted":           {both(released, deleted), "", 0},
		"arena's annotation, switched off": {both(released, annotated(contract.SuspendAnnotation, "false")), "", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			s.put(t, object("a", test.change))
			p := s.plan(patient, now, nil)
			assert.Equal(t, test.want, p.names())
			assert.Equal(t, test.active, p.counts["root/leaf"].Active)
		})
	}
}

// TestLifeOfAUnit goes through what a unit and its job may look like, as a controller
// finds them at any time, after a crash too.
func TestLifeOfAUnit(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	waiting := contract.QueueUnitStatus{Phase: contract.UnitEnqueued}
	out := func(ago time.Duration) contract.QueueUnitStatus {
		return contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1, LastUpdateTime: at(-ago), Message: "by other words"}
	}
	off := func(in time.Duration) contract.QueueUnitStatus {
		return contract.QueueUnitStatus{Phase: contract.UnitBackoff, Attempts: 1, RequeueState: &contract.RequeueState{Count: 1, RequeueAt: at(in)}}
	}
	tests := map[string]struct {
		change    func(*batchv1.Job)
		status    contract.QueueUnitStatus
		releasing map[string]int64
		want      string
		wake      time.Duration
	}{
		"new":                                   {nil, contract.QueueUnitStatus{}, nil, "start a", 0},
		"waits":                                 {nil, waiting, nil, "start a", 0},
		"in the release log, not resumed":       {nil, waiting, map[string]int64{"team/a@unit-a": 1}, "resume a", 10 * time.Minute},
		"in the release log, resumed":           {released, waiting, map[string]int64{"team/a@unit-a": 1}, "resume a", 0},
		"in the release log of an earlier try":  {nil, off(-1), map[string]int64{"team/a@unit-a": 1}, "start a", 0},
		"an earlier one was in the release log": {nil, waiting, map[string]int64{"team/a@earlier": 1}, "start a", 0},
		"resumed by hand":                       {released, waiting, nil, "phase a=Dequeued", 0},
		"released":                              {released, out(time.Minute), nil, "", 9 * time.Minute},
		"released for too long":                 {released, out(10 * time.Minute), nil, "back a", 0},
		"suspended by hand":                     {nil, out(time.Minute), nil, "start a", 0},
		"off":                                   {nil, off(time.Minute), nil, "", time.Minute},
		"off, by others, without a time":        {nil, contract.QueueUnitStatus{Phase: contract.UnitBackoff}, nil, "start a", 0},
		"off, by others, without a time yet":    {nil, contract.QueueUnitStatus{Phase: contract.UnitBackoff, RequeueState: &contract.RequeueState{Count: 1}}, nil, "start a", 0},
		"off, but not suspended":                {released, off(time.Minute), nil, "suspend a", 0},
		"off, time is over":                     {nil, off(-time.Second), nil, "start a", 0},
		"deleted while it waits":                {deleted, waiting, nil, "drop a", 0},
		"deleted while it is being released":    {deleted, waiting, map[string]int64{"team/a@unit-a": 1}, "drop a", 0},
		"deleted while it runs":                 {both(released, deleted), out(time.Hour), nil, "drop a", 0},
		"declined meanwhile":                    {annotated(contract.QueueAnnotation, "false"), waiting, nil, "drop a", 0},
		"asked to be held again while it is":    {both(released, annotated(contract.SuspendAnnotation, "true")), out(time.Minute), nil, "suspend a", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			s.queueUp(t, object("a", test.change), test.status)
			p := s.plan(patient, now, test.releasing)
			assert.Equal(t, test.want, p.names())
			var wake time.Duration
			if !p.next.IsZero() {
				wake = p.next.Sub(now)
			}
			assert.Equal(t, test.wake, wake)
		})
	}
}

// Pods that have succeeded run as far as their Job goes, also when they have gone: it is not sent back for them.
func TestPodsThatHaveSucceededAndGone(t *testing.T) {
	for name, test := range map[string]struct {
		succeeded, failed string
		there             []corev1.PodPhase
		want              string
	}{
		"none":                       {there: []corev1.PodPhase{corev1.PodRunning}, want: "back a"},
		"too few":                    {succeeded: "0-1", there: []corev1.PodPhase{corev1.PodRunning}, want: "back a"},
		"as many as it lacks":        {succeeded: "0-2", there: []corev1.PodPhase{corev1.PodRunning}, want: "phase a=Running"},
		"one is there still":         {succeeded: "0-2", there: []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}, want: "phase a=Running"},
		"those that are there alone": {succeeded: "0-2", there: []corev1.PodPhase{corev1.PodSucceeded, corev1.PodSucceeded}, want: "back a"},
		"one has failed for good":    {succeeded: "0,3", failed: "1", there: []corev1.PodPhase{corev1.PodRunning}, want: "phase a=Running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			job := object("a", released)
			job.Spec.Completions, job.Spec.Parallelism, job.Spec.CompletionMode = new(int32(4)), new(int32(4)), new(batchv1.IndexedCompletion)
			job.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("250m")
			job.Status.CompletedIndexes, job.Status.FailedIndexes = test.succeeded, &test.failed
			s.queueUp(t, job, contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1, LastUpdateTime: &metav1.Time{Time: now.Add(-time.Hour)}})
			for i, phase := range test.there {
				s.setPod(&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: "team", Name: fmt.Sprint("a-", i), UID: types.UID(fmt.Sprint("pod-", i)),
						OwnerReferences: []metav1.OwnerReference{{UID: "a", Controller: new(true)}},
					},
					Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
				})
			}
			assert.Equal(t, test.want, s.plan(patient, now, nil).names())
		})
	}
}

// A unit that its job has left behind goes, so that the next job of its name finds the name free.
func TestOrphanedUnits(t *testing.T) {
	ours := map[string]string{contract.PartOfLabel: contract.PartOfValue}
	owned := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "a", UID: "gone", Controller: new(true)}}
	for name, test := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		job    types.UID
		want   string
	}{
		"its job is gone":             {ours, nil, "gone", "drop unit"},
		"its job is there":            {ours, nil, "a", "start a"},
		"it goes with its job":        {ours, owned, "gone", ""},
		"it is someone else's":        {nil, nil, "gone", ""},
		"nobody says what it was for": {ours, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			if test.job == "a" {
				s.put(t, object("a", nil))
			}
			o, err := toObject(&contract.QueueUnit{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "unit", UID: "unit", ResourceVersion: "8", Labels: test.labels, OwnerReferences: test.owners},
				Spec: contract.QueueUnitSpec{
					ConsumerRef: corev1.ObjectReference{UID: test.job},
					Resource:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				},
			})
			require.NoError(t, err)
			require.NoError(t, s.setUnit(o))
			assert.Equal(t, test.want, s.plan(patient, now, nil).names())
		})
	}
}

// A job that is not resumed in time, whoever refuses that, goes back and is charged no more. One that
// is resumed only lacks the record of it, however long that takes.
func TestReleaseThatIsRefused(t *testing.T) {
	log := map[string]int64{"team/a@unit-a": 3}
	for name, test := range map[string]struct {
		change func(*batchv1.Job)
		late   string
	}{
		"suspended": {nil, "back a"},
		"resumed":   {released, "resume a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			a := object("a", test.change)
			s.queueUp(t, a, contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Attempts: 2, LastUpdateTime: &metav1.Time{Time: now.Add(-time.Hour)}})
			assert.Equal(t, "resume a", s.plan(patient, now, log).names())
			assert.Equal(t, "resume a", s.plan(patient, now.Add(patient.ready-time.Second), log).names())
			p := s.plan(patient, now.Add(patient.ready), log)
			assert.Equal(t, test.late, p.names())
			assert.Equal(t, int32(1), p.counts["root/leaf"].Active, "until that is on record")
			if test.late == "resume a" {
				return
			}
			status := p.back[0].status
			assert.Equal(t, contract.UnitBackoff, status.Phase)
			assert.Equal(t, int64(3), status.Attempts)
			assert.Equal(t, "could not be resumed within 10m0s in attempt 3; in line again in 1m0s", status.Message)

			noted := world(t)
			noted.queueUp(t, a, status)
			assert.Equal(t, int32(0), noted.plan(patient, now.Add(patient.ready), log).counts["root/leaf"].Active)
			assert.Empty(t, noted.underWay(log), "it is out of the release log")
		})
	}
}

// A controller is killed when it has resumed a job, and the next one finds the job ended.
func TestEndedBeforeItsAttemptWasNoted(t *testing.T) {
	s := world(t)
	ended := func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	}
	s.queueUp(t, object("a", both(released, ended)), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
	p := s.plan(patient, now, map[string]int64{"team/a@unit-a": 1})
	require.Len(t, p.phases, 1)
	assert.Equal(t, int64(1), p.phases[0].status.Attempts)
}

// A place that is taken in any of these ways is not given to another job.
func TestOneAtATime(t *testing.T) {
	holders := map[string]func(*testing.T, *state){
		"running unqueued": func(t *testing.T, s *state) { s.put(t, object("other", released)) },
		"released": func(t *testing.T, s *state) {
			s.queueUp(t, object("other", released), contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1, LastUpdateTime: &metav1.Time{Time: now}})
		},
		"in the release log": func(t *testing.T, s *state) {
			s.queueUp(t, object("other", nil), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
		},
		"going back": func(t *testing.T, s *state) {
			s.queueUp(t, object("other", released), contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1, LastUpdateTime: &metav1.Time{Time: now.Add(-time.Hour)}})
		},
		"resumed by hand": func(t *testing.T, s *state) {
			s.queueUp(t, object("other", released), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
		},
	}
	for name, suspend := range holders {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			suspend(t, s)
			s.queueUp(t, object("a", nil), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
			p := s.plan(patient, now, map[string]int64{"team/other@unit-other": 1})
			assert.Empty(t, p.start)
			assert.Equal(t, int32(1), p.counts["root/leaf"].Active)
		})
	}
}

// Pods that no job's charge stands for use quota all the same.
func TestPodsOfOthersAreCharged(t *testing.T) {
	s := world(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other", UID: "other"},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9500m")},
		}}}},
	}
	s.setPod(pod)
	s.queueUp(t, object("a", nil), contract.QueueUnitStatus{})
	p := s.plan(patient, now, nil)
	require.Len(t, p.phases, 1)
	assert.Equal(t, "quota root/leaf: max of cpu is 10, 9.5 is used and 1 is asked for", p.phases[0].status.Message)
	resized := pod.DeepCopy()
	resized.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("9800m")
	s.setPod(resized)
	assert.Equal(t, "quota root/leaf: max of cpu is 10, 9.8 is used and 1 is asked for", s.plan(patient, now, nil).phases[0].status.Message)
	s.removePod("other")
	assert.Equal(t, "start a", s.plan(patient, now, nil).names())
}

// What runs under a leaf that the tree lacks uses what the root has, and no more of a job than its pods.
func TestLeafThatHasGone(t *testing.T) {
	node := func(name string, children ...any) map[string]any {
		node := map[string]any{"name": name}
		if len(children) > 0 {
			node["children"] = children
		}
		return node
	}
	labels := func(leaf string) map[string]string { return map[string]string{contract.QuotaLabel: leaf} }
	bound := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	const full = "quota root: max of cpu is 2, 2 is used and 1 is asked for"
	for name, test := range map[string]struct {
		leaf    string // what the job and its pods name
		pods    int    // that are bound
		more    int    // that wait
		alone   bool   // the pods are of no job
		jobs    int64  // that the root allows, 0 for any number
		plan    string
		message string
		used    string
		request string
		active  string
	}{
		"a leaf that is there":   {leaf: "leaf", plan: "phase a=Enqueued", message: full, used: "0", request: "3", active: "1"},
		"a leaf that has gone":   {leaf: "gone", pods: 2, plan: "phase a=Enqueued", message: full, used: "2", request: "3", active: "1"},
		"an inner node":          {leaf: "inner", pods: 2, plan: "phase a=Enqueued", message: full, used: "2", request: "3", active: "1"},
		"the root":               {leaf: "root", pods: 2, plan: "phase a=Enqueued", message: full, used: "2", request: "3", active: "1"},
		"one of its pods waits":  {leaf: "gone", pods: 1, more: 1, plan: "start a", used: "1", request: "2", active: "1"},
		"all of its pods wait":   {leaf: "gone", more: 2, plan: "start a", used: "0", request: "1", active: "0"},
		"pods of no job":         {leaf: "gone", pods: 2, alone: true, plan: "phase a=Enqueued", message: full, used: "2", request: "3", active: "0"},
		"it counts as a job":     {leaf: "gone", pods: 1, jobs: 1, plan: "phase a=Enqueued", message: "quota root: max of jobs is 1, 1 is used and 1 is asked for", used: "1", request: "2", active: "1"},
		"pods count as no job":   {leaf: "gone", pods: 1, alone: true, jobs: 1, plan: "start a", used: "1", request: "2", active: "0"},
		"a namespace of no leaf": {pods: 2, plan: "start a", used: "0", request: "1", active: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(func() {})
			leaf := node("leaf")
			leaf["namespaces"] = []any{"team"}
			root := node("root", node("inner", leaf))
			root["max"] = map[string]any{"cpu": int64(2), contract.MaxJobsKey: test.jobs}
			root["min"] = root["max"]
			tree := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": root}}}
			tree.SetResourceVersion("1")
			require.NoError(t, s.setTree(tree))
			var owners []metav1.OwnerReference
			if !test.alone {
				two := int32(2)
				s.put(t, object("old", both(released, elsewhere, func(j *batchv1.Job) {
					j.Spec.Template.Labels, j.Spec.Parallelism, j.Spec.Completions = labels(test.leaf), &two, &two
				})))
				owners = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "old", UID: "old"}, kinds()[2].gvk)}
			}
			for i := range test.pods + test.more {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "old", UID: types.UID(fmt.Sprint(i)), OwnerReferences: owners, Labels: labels(test.leaf)},
					Spec:       object("old", nil).Spec.Template.Spec,
				}
				if i < test.pods {
					bound(p)
				}
				s.setPod(p)
			}
			s.queueUp(t, object("a", nil), contract.QueueUnitStatus{})
			p := s.plan(patient, now, nil)
			assert.Equal(t, test.plan, p.names())
			if test.message != "" {
				require.Len(t, p.phases, 1)
				assert.Equal(t, test.message, p.phases[0].status.Message)
			}
			require.Len(t, p.trees, 1)
			read := func(path ...string) string {
				value, _, _ := unstructured.NestedString(p.trees[0].status, append([]string{"root"}, path...)...)
				return value
			}
			assert.Equal(t, test.used, read("used", "cpu"))
			assert.Equal(t, test.request, read("request", "cpu"))
			assert.Equal(t, test.active, read("used", contract.MaxJobsKey))
			assert.Equal(t, test.active, fmt.Sprint(p.counts["root"].Active))
		})
	}
}

// A job that is deleted and kept by a finalizer holds the quota of the pods that it still has,
// and no place among the jobs.
func TestDeletedJobIsChargedByItsPods(t *testing.T) {
	s := world(t)
	s.queueUp(t, object("old", both(released, deleted)), contract.QueueUnitStatus{Phase: contract.UnitRunning, Attempts: 1})
	s.setPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "old", UID: "pod", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "old", UID: "old"}, kinds()[2].gvk),
		}},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9500m")},
		}}}},
	})
	s.queueUp(t, object("a", nil), contract.QueueUnitStatus{})
	p := s.plan(patient, now, nil)
	assert.Equal(t, int32(0), p.counts["root/leaf"].Active)
	require.Len(t, p.phases, 1)
	assert.Equal(t, "quota root/leaf: max of cpu is 10, 9.5 is used and 1 is asked for", p.phases[0].status.Message)
	s.removePod("pod")
	assert.Equal(t, "start a, drop old", s.plan(patient, now, nil).names())
}

// The MPI operator makes a Job for the launcher of an MPIJob. That is no job of its own:
// it is neither queued nor counted, and its pod is one of the MPIJob's.
func TestLauncherIsPartOfItsJob(t *testing.T) {
	s := world(t)
	mpi := kinds()[3]
	replica := func(n int64) map[string]any {
		return map[string]any{"replicas": n, "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "image": "test", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}},
		}}}}}
	}
	mpiJob := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"runPolicy":       map[string]any{"suspend": false},
		"mpiReplicaSpecs": map[string]any{"Launcher": replica(1), "Worker": replica(2)},
	}}}
	mpiJob.SetGroupVersionKind(mpi.gvk)
	mpiJob.SetNamespace("team")
	mpiJob.SetName("mpi")
	mpiJob.SetUID("mpi")
	mpiJob.SetResourceVersion("5")
	require.NoError(t, s.setJob(mpi, mpiJob))
	owner := func(gvk schema.GroupVersionKind, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: string(uid), UID: uid}, gvk)}
	}
	launcher := object("mpi-launcher", nil)
	launcher.OwnerReferences = owner(mpi.gvk, "mpi")
	s.put(t, launcher)
	p := s.plan(patient, now, nil)
	assert.Empty(t, p.names(), "a suspended launcher is not queued")
	assert.Equal(t, int32(1), p.counts["root/leaf"].Active)

	makers := [][]metav1.OwnerReference{owner(mpi.gvk, "mpi"), owner(mpi.gvk, "mpi"), owner(kinds()[2].gvk, "mpi-launcher")}
	for i, maker := range makers {
		name := fmt.Sprint("mpi-", i)
		s.setPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), OwnerReferences: maker},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		})
	}
	unit, err := toObject(&contract.QueueUnit{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mpi", UID: "unit-mpi", ResourceVersion: "8"},
		Spec:       contract.QueueUnitSpec{ConsumerRef: corev1.ObjectReference{UID: "mpi"}, Resource: s.jobs["mpi"].requests},
		Status:     contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1, LastUpdateTime: &metav1.Time{Time: now}},
	})
	require.NoError(t, err)
	require.NoError(t, s.setUnit(unit))
	p = s.plan(patient, now, nil)
	assert.Equal(t, "phase mpi=Running", p.names(), "all three pods run")
	cpu, _, _ := unstructured.NestedString(p.trees[0].status, "root", "request", "cpu")
	assert.Equal(t, "3", cpu, "nothing is counted twice")
}

// What the API server answered is not undone by an older event.
func TestOlderNewsIsNoNews(t *testing.T) {
	s := world(t)
	newer := object("a", released)
	newer.ResourceVersion = "12"
	s.put(t, newer)
	older := object("a", nil)
	older.ResourceVersion = "9"
	s.put(t, older)
	assert.False(t, s.jobs["a"].suspended)
	assert.Equal(t, int64(12), s.jobs["a"].sequence)
}

// While the quota tree is invalid nothing is released, whether it was valid before or the
// controller has just started; its Queues stay, and it is told what is wrong.
func TestInvalidTreeLetsNothingOut(t *testing.T) {
	valid := world(t).trees[""]
	invalid := valid.DeepCopy()
	invalid.SetResourceVersion("2")
	leaf := map[string]any{"name": "leaf", "namespaces": []any{"team"}, "max": map[string]any{"cpu": int64(10)}, "min": map[string]any{"cpu": int64(11)}}
	require.NoError(t, unstructured.SetNestedSlice(invalid.Object, []any{leaf}, "spec", "root", "children"))
	for name, s := range map[string]*state{"it was valid": world(t), "after a restart": newState(func() {})} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, s.setTree(invalid), "min of cpu is 11000, above its max 10000")
			queue, err := toObject(&contract.Queue{ObjectMeta: metav1.ObjectMeta{
				Namespace: contract.QueueNamespace, Name: "root-leaf-x", UID: "queue", ResourceVersion: "3",
				Labels:      map[string]string{contract.QueueCreatedLabel: contract.QueueCreatedValue},
				Annotations: map[string]string{contract.QueuePathAnnotation: "root/elsewhere"},
			}})
			require.NoError(t, err)
			require.NoError(t, s.setQueue(queue))
			s.queueUp(t, object("a", nil), contract.QueueUnitStatus{})
			s.put(t, object("b", nil))
			p := s.plan(patient, now, nil)
			assert.Equal(t, "enqueue b, phase a=Enqueued", p.names())
			assert.Equal(t, "quota tree is invalid: root/leaf: min of cpu is 11000, above its max 10000; lower min or raise max", p.phases[0].status.Message)
			assert.Empty(t, p.deleteQueues)
			require.Len(t, p.trees, 1)
			require.NotNil(t, p.trees[0].news)
			assert.Equal(t, treeInvalid, p.trees[0].news.Reason)

			back := valid.DeepCopy()
			back.SetResourceVersion("9")
			require.NoError(t, s.setTree(back))
			assert.Equal(t, "enqueue b, start a", s.plan(patient, now, nil).names())
		})
	}
}

// The scheduler starts nothing that an invalid tree governs. A job that was released before has its
// time to run when the tree is valid again, whatever time that was and whoever works then.
func TestInvalidTreeSendsNobodyBack(t *testing.T) {
	valid := world(t).trees[""]
	invalid := valid.DeepCopy()
	invalid.SetResourceVersion("2")
	require.NoError(t, unstructured.SetNestedField(invalid.Object, "many", "spec", "root", "max", "cpu"))
	s := world(t)
	require.Error(t, s.setTree(invalid))
	status := contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1, LastUpdateTime: &metav1.Time{Time: now.Add(-time.Hour)}}
	s.queueUp(t, object("a", released), status)
	p := s.plan(patient, now, nil)
	assert.Empty(t, p.names())
	require.Len(t, p.positions, 1)
	status = p.positions[0].status
	assert.Equal(t, s.bar.Why, status.Message)

	for name, again := range map[string]struct {
		after time.Duration
		want  string
	}{"the tree is valid": {0, ""}, "its pods had their time": {patient.ready, "back a"}} {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			s.queueUp(t, object("a", released), status)
			p := s.plan(patient, now, nil)
			require.Len(t, p.positions, 1)
			s = world(t)
			s.queueUp(t, object("a", released), p.positions[0].status)
			assert.Equal(t, again.want, s.plan(patient, now.Add(again.after), nil).names())
		})
	}
}

// Of two trees the older one is in force, and the other is told so; it takes over when
// the older one goes. An answer does not bring a tree back.
func TestTwoTrees(t *testing.T) {
	s := world(t)
	old := s.trees[""]
	young := old.DeepCopy()
	young.SetName("young")
	young.SetUID("young")
	young.SetCreationTimestamp(metav1.NewTime(now))
	require.NoError(t, s.setTree(young))
	p := s.plan(patient, now, nil)
	require.Len(t, p.trees, 2)
	assert.Nil(t, p.trees[0].news)
	assert.Equal(t, treeNotOldest, p.trees[1].news.Reason)
	require.NoError(t, s.removeTree(old))
	answer := old.DeepCopy()
	answer.SetResourceVersion("5")
	require.NoError(t, s.answerTree(answer))
	p = s.plan(patient, now, nil)
	require.Len(t, p.trees, 1)
	assert.Equal(t, "young", p.trees[0].object.GetName())
	require.NoError(t, s.removeTree(young))
	assert.Empty(t, s.plan(patient, now, nil).trees)
}

// What is written of a tree is its use and one condition: those of others stay as they are. Nothing
// is written when both are as they should be.
func TestTreeReportIsOurs(t *testing.T) {
	s := world(t)
	p := s.plan(patient, now, nil)
	require.Len(t, p.trees, 1)
	written := s.trees[""].DeepCopy()
	written.Object["status"] = runtime.DeepCopyJSON(p.trees[0].status)
	written.SetResourceVersion("5")
	require.NoError(t, s.setTree(written))
	assert.Empty(t, s.plan(patient, now, nil).trees)

	ours, _, _ := unstructured.NestedSlice(written.Object, "status", "conditions")
	require.Len(t, ours, 1)
	foreign := map[string]any{"type": "Checked", "status": "True", "lastTransitionTime": "yesterday"}
	both := written.DeepCopy()
	require.NoError(t, unstructured.SetNestedSlice(both.Object, []any{foreign, ours[0]}, "status", "conditions"))
	both.SetResourceVersion("6")
	require.NoError(t, s.setTree(both))
	assert.Empty(t, s.plan(patient, now, nil).trees)

	edited := both.DeepCopy()
	edited.SetGeneration(7)
	edited.SetResourceVersion("7")
	require.NoError(t, s.setTree(edited))
	p = s.plan(patient, now.Add(time.Hour), nil)
	require.Len(t, p.trees, 1)
	again := maps.Clone(ours[0].(map[string]any))
	again["observedGeneration"] = int64(7)
	assert.Equal(t, []any{foreign, again}, p.trees[0].status["conditions"])
	assert.NotEmpty(t, p.trees[0].status["root"])
}

func TestTimeOffDoubles(t *testing.T) {
	var all []time.Duration
	for count := range int32(8) {
		all = append(all, timing{backoff: time.Minute, longest: 20 * time.Minute}.off(count+1))
	}
	assert.Equal(t, []time.Duration{1 * time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 20 * time.Minute, 20 * time.Minute, 20 * time.Minute}, all)
}

func TestQueuePrefix(t *testing.T) {
	assert.Equal(t, "root-", queuePrefix("root"))
	assert.Equal(t, "root-child-2-", queuePrefix("root/child-2"))
	assert.Equal(t, "root-a-b-", queuePrefix("root/A_b"))
	long := queuePrefix("root/" + strings.Repeat("x", 80))
	assert.Len(t, long, 58)
	assert.Equal(t, strings.Repeat("x", 57)+"-", long)
}

// BenchmarkPlan is a pass with a long line: one job runs and 4,000 wait.
func BenchmarkPlan(b *testing.B) {
	s := world(b)
	s.put(b, object("runs", released))
	for i := range 4000 {
		s.queueUp(b, object(fmt.Sprintf("job-%04d", i), nil), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
	}
	for b.Loop() {
		s.plan(patient, now, nil)
	}
}

// A job whose unit is still to be made has its place in line: one that comes after it is not released first, as after a
// time in which no controller worked. One whose unit is refused has none.
func TestJobIsInLineBeforeItsUnitIsMade(t *testing.T) {
	s := world(t)
	s.queueUp(t, object("late", nil), contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
	s.put(t, object("early", func(j *batchv1.Job) { j.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour)) }))
	p := s.plan(patient, now, nil)
	assert.Equal(t, "enqueue early", p.names())
	require.Len(t, p.positions, 1)
	assert.Equal(t, "quota root/leaf: max of jobs is 1, 1 is used and 1 is asked for", p.positions[0].status.Message)

	s.setUnitless(slices.Values([]types.UID{"early"}))
	assert.Equal(t, "enqueue early, start late", s.plan(patient, now, nil).names())
}
