package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// bindingTo is the binding of a Job of that name, with fields of its spec and status.
func bindingTo(t *testing.T, name string, version int, spec, status string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {name: %[1]s-job, namespace: team, uid: binding-%[1]s, resourceVersion: "%[2]d", creationTimestamp: "2026-11-01T11:00:00Z"}
spec: {resource: {apiVersion: batch/v1, kind: Job, namespace: team, name: %[1]s, uid: %[1]s}, %[3]s}
status: {%[4]s}`, name, version, spec, status), &o.Object))
	return o
}

// putUnit has the queue see the unit of a binding.
func putUnit(t *testing.T, s *state, name string, version int, status contract.QueueUnitStatus) {
	t.Helper()
	unit, err := toObject(&contract.QueueUnit{Spec: contract.QueueUnitSpec{ConsumerRef: corev1.ObjectReference{UID: types.UID("binding-" + name)}}, Status: status})
	require.NoError(t, err)
	unit.SetNamespace("team")
	unit.SetName(name)
	unit.SetUID(types.UID("unit-" + name))
	unit.SetResourceVersion(fmt.Sprint(version))
	require.NoError(t, s.setUnit(unit))
}

// On the hub of a fleet jobs are held and released by their bindings; what they need is said by their objects, and how far they are by
// what their cluster tells.
func TestQueueOfAFleet(t *testing.T) {
	const held = "suspension: {scheduling: true}"
	s := world(t)
	describe := func(name string, version string) {
		o, err := toObject(object(name, func(j *batchv1.Job) { released(j); j.ResourceVersion = version }))
		require.NoError(t, err)
		require.NoError(t, s.describeBound(kinds()[2], o, 0))
	}
	require.NoError(t, s.setBinding(bindingTo(t, "a", 5, held, "")))
	assert.Empty(t, s.plan(patient, now, nil).names(), "nobody knows what it needs")
	describe("a", "6")
	p := s.plan(patient, now, nil)
	require.Equal(t, "enqueue a-job", p.names())
	assert.Equal(t, "a", p.enqueue[0].job.unitName(), "the unit is called after the job")
	assert.EqualValues(t, 1000, p.enqueue[0].job.charge["cpu"])
	require.Equal(t, &corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "team", Name: "a", UID: "a"}, p.enqueue[0].job.about())

	describe("b", "7")
	require.NoError(t, s.setBinding(bindingTo(t, "b", 8, held, "")))
	for i, name := range []string{"a", "b"} {
		o, err := toObject(&contract.QueueUnit{Spec: contract.QueueUnitSpec{ConsumerRef: corev1.ObjectReference{UID: types.UID("binding-" + name)}}})
		require.NoError(t, err)
		o.SetNamespace("team")
		o.SetName(name)
		o.SetUID(types.UID("unit-" + name))
		o.SetResourceVersion(fmt.Sprint(10 + i))
		o.SetAnnotations(map[string]string{contract.ArrivalAnnotation: fmt.Sprint(i)})
		require.NoError(t, s.setUnit(o))
	}
	p = s.plan(patient, now, nil)
	require.Len(t, p.start, 1, "max-jobs is 1")
	assert.Equal(t, "a-job", p.start[0].job.name)

	// It is released, and waits for a cluster for any time.
	status := contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1}
	setStatus := func(name, version string) {
		o := s.units["team/"+name].object.DeepCopy()
		raw, err := plain(status)
		require.NoError(t, err)
		o.Object["status"] = raw
		o.SetResourceVersion(version)
		require.NoError(t, s.setUnit(o))
	}
	require.NoError(t, s.setBinding(bindingTo(t, "a", 20, "suspension: {scheduling: false}", "")))
	setStatus("a", "21")
	p = s.plan(timing{}, now, nil)
	assert.Empty(t, p.start, "the other waits")
	assert.Empty(t, p.back)

	running := "aggregatedStatus: [{clusterName: other, status: {}}, {clusterName: m, status: {active: 1, ready: 1, startTime: \"2026-11-01T11:30:00Z\"}}]"
	require.NoError(t, s.setBinding(bindingTo(t, "a", 30, "suspension: {scheduling: false}, clusters: [{name: m}]", running)))
	p = s.plan(timing{}, now, nil)
	require.Len(t, p.describe, 2, "the units of this test lack what describes their jobs")
	for _, e := range p.describe {
		assert.Equal(t, map[string]contract.QueueUnitPhase{"a-job": contract.UnitRunning, "b-job": contract.UnitEnqueued}[e.job.name], e.status.Phase)
	}
	require.NoError(t, s.setBinding(bindingTo(t, "a", 40, "clusters: [{name: m}]",
		`aggregatedStatus: [{clusterName: m, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}]`)))
	p = s.plan(timing{}, now, nil)
	require.Len(t, p.start, 1, "the first has ended")
	assert.Equal(t, "b-job", p.start[0].job.name)

	s.removeBinding(bindingTo(t, "b", 50, held, ""))
	assert.Empty(t, s.plan(timing{}, now, nil).start)
	require.NoError(t, s.setBinding(bindingTo(t, "c", 60, held, "")))
	settings := bindingTo(t, "settings", 61, held, "")
	require.NoError(t, unstructured.SetNestedField(settings.Object, "ConfigMap", "spec", "resource", "kind"))
	require.NoError(t, s.setBinding(settings))
	assert.NotContains(t, s.jobs, types.UID("binding-settings"), "no job")
	describe("c", "62")
	s.removeDescribed("c")
	assert.EqualValues(t, 1000, s.jobs["binding-c"].charge["cpu"], "its binding will go, too")
}

// Who holds the binding of a job that has a cluster stops nothing there: the job counts, and others wait for it.
func TestABindingThatIsHeldAgain(t *testing.T) {
	for _, phase := range []contract.QueueUnitPhase{contract.UnitDequeued, contract.UnitRunning, contract.UnitEnqueued, contract.UnitBackoff} {
		s := world(t)
		for i, name := range []string{"a", "b"} {
			o, err := toObject(object(name, func(j *batchv1.Job) { released(j); j.ResourceVersion = fmt.Sprint(6 + i) }))
			require.NoError(t, err)
			require.NoError(t, s.describeBound(kinds()[2], o, 0))
		}
		putUnit(t, s, "a", 10, contract.QueueUnitStatus{Phase: phase, Attempts: 1})
		putUnit(t, s, "b", 11, contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
		require.NoError(t, s.setBinding(bindingTo(t, "a", 20, "suspension: {scheduling: true}, clusters: [{name: m}]", "")))
		require.NoError(t, s.setBinding(bindingTo(t, "b", 21, "suspension: {scheduling: true}", "")))
		p := s.plan(timing{}, now, nil)
		assert.Empty(t, p.start, "%s: max-jobs is 1", phase)
		assert.Empty(t, p.suspend, phase)
	}
}

// A job that has failed in a cluster, and goes to another one, counts all the time: the hub shows the failure until the other one tells something.
func TestAJobThatGoesToAnotherCluster(t *testing.T) {
	const let = "suspension: {scheduling: false}"
	const failed = `{clusterName: m, status: {conditions: [{type: Failed, status: "True"}]}}`
	s := world(t)
	for i, name := range []string{"a", "b"} {
		o, err := toObject(object(name, func(j *batchv1.Job) {
			released(j)
			j.ResourceVersion = fmt.Sprint(6 + i)
			if name == "a" {
				j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
			}
		}))
		require.NoError(t, err)
		require.NoError(t, s.describeBound(kinds()[2], o, 0))
	}
	putUnit(t, s, "a", 10, contract.QueueUnitStatus{Phase: contract.UnitFailed, Attempts: 1})
	putUnit(t, s, "b", 11, contract.QueueUnitStatus{Phase: contract.UnitEnqueued})
	require.NoError(t, s.setBinding(bindingTo(t, "b", 20, "suspension: {scheduling: true}", "")))
	for i, test := range []struct {
		spec, status string
		starts       bool
	}{
		{let + ", clusters: [{name: m}]", "aggregatedStatus: [" + failed + "]", true},
		{let, "aggregatedStatus: [" + failed + "]", false},
		{let, "", false},
		{let + ", clusters: [{name: d}]", "aggregatedStatus: [" + failed + "]", false},
		{let + ", clusters: [{name: d}]", "aggregatedStatus: [" + failed + ", {clusterName: d, status: {active: 1}}]", false},
		{let + ", clusters: [{name: d}]", `aggregatedStatus: [{clusterName: d, status: {conditions: [{type: Complete, status: "True"}]}}]`, true},
	} {
		require.NoError(t, s.setBinding(bindingTo(t, "a", 30+i, test.spec, test.status)))
		p := s.plan(timing{}, now, nil)
		assert.Equal(t, test.starts, len(p.start) == 1, "%d: max-jobs is 1", i)
		for _, e := range p.describe {
			if e.job.name == "a-job" && !test.starts {
				assert.Equal(t, contract.UnitDequeued, e.status.Phase, i)
			}
		}
	}
}

// What a policy of the hub holds is queued, whatever the job itself says: nobody else lets it go.
func TestJobsThatDeclineTheQueueOfAHub(t *testing.T) {
	for name, decline := range map[string]func(*batchv1.Job){
		"by annotation": annotated(contract.QueueAnnotation, "false"),
		"to Kueue":      func(j *batchv1.Job) { j.Labels = map[string]string{contract.KueueQueueLabel: "q"} },
	} {
		s := world(t)
		o, err := toObject(object("a", func(j *batchv1.Job) { released(j); decline(j); j.ResourceVersion = "6" }))
		require.NoError(t, err)
		require.NoError(t, s.describeBound(kinds()[2], o, 0))
		require.NoError(t, s.setBinding(bindingTo(t, "a", 20, "suspension: {scheduling: true}", "")))
		assert.Equal(t, "enqueue a-job", s.plan(patient, now, nil).names(), name)
	}
}

// A job that has succeeded, of which its cluster says nothing any more, is not one that goes on.
func TestAJobThatHadSucceeded(t *testing.T) {
	s := world(t)
	o, err := toObject(object("a", func(j *batchv1.Job) { released(j); j.ResourceVersion = "6" }))
	require.NoError(t, err)
	require.NoError(t, s.describeBound(kinds()[2], o, 0))
	putUnit(t, s, "a", 10, contract.QueueUnitStatus{Phase: contract.UnitSucceed, Attempts: 1})
	b := bindingTo(t, "a", 20, "suspension: {scheduling: false}", "")
	b.SetAnnotations(map[string]string{contract.SucceededAnnotation: string(o.GetUID())})
	require.NoError(t, s.setBinding(b))
	for _, job := range s.jobs {
		assert.Equal(t, contract.UnitSucceed, job.finished)
	}
}
