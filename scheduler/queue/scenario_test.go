package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// fleetTree is the tree of the document on fleets, with the test's namespace.
const fleetTree = `
name: root
max: {cpu: 999900, memory: 400000Gi, kube-queue/max-jobs: 10000000000, nvidia.com/gpu: 100000}
min: {cpu: 999900, memory: 400000Gi, kube-queue/max-jobs: 10000000000, nvidia.com/gpu: 100000}
children:
- name: child-2
  max: {kube-queue/max-jobs: 1, cpu: 10000, nvidia.com/gpu: 10000, memory: 10000Gi}
  namespaces: [NS]
`

// TestFleetDocument does what the document on fleets shows: the tree, what
// `kubectl get queue -n kube-queue` prints, and one job at a time.
func TestFleetDocument(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(fleetTree)
	s.await("the queues", func() (bool, string) { q := s.queues(); return len(q) == 2, fmt.Sprint(q) })

	queues := s.queues()
	assert.Regexp(t, `^root-[a-z0-9]{5}$`, queues["root"].Name)
	assert.Regexp(t, `^root-child-2-[a-z0-9]{5}$`, queues["root/child-2"].Name)
	assert.Equal(t, contract.PolicyPriority, queues["root"].Spec.QueuePolicy)

	// What the server gives kubectl to print.
	raw, err := s.client.Typed.Discovery().RESTClient().Get().AbsPath("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	var shown []string
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			shown = append(shown, column.Name)
		}
	}
	assert.Equal(t, []string{"Name", "Age"}, shown)
	var names []any
	for _, row := range table.Rows {
		names = append(names, row.Cells[0])
	}
	assert.ElementsMatch(t, []any{queues["root"].Name, queues["root/child-2"].Name}, names)

	s.training(contract.PyTorchJobKind, "Master", 1, batch{name: "first", runFor: "2s"})
	s.await("the first to start", s.phase("first-py-qu", contract.UnitRunning, contract.UnitSucceed))
	s.training(contract.PyTorchJobKind, "Master", 1, batch{name: "second", runFor: "1s"})
	s.training(contract.MPIJobKind, "Launcher", 1, batch{name: "third"})
	s.await("the second to wait", func() (bool, string) {
		u := s.unit("second-py-qu")
		return u.Status.Position == 1 || u.Status.Phase != "" && u.Status.Phase != contract.UnitEnqueued, fmt.Sprintf("%+v", u.Status)
	})
	s.await("the second to run", s.phase("second-py-qu", contract.UnitRunning, contract.UnitSucceed))
	assert.Equal(t, contract.UnitSucceed, s.unit("first-py-qu").Status.Phase)
	assert.Equal(t, queues["root/child-2"].Name, s.unit("second-py-qu").Spec.Queue)
	s.await("the third to be released", s.phase("third-mpi-qu", contract.UnitDequeued, contract.UnitRunning))
}

// limits watches batch Jobs and notes the most that were released at one time, and the
// order in which they were.
type limits struct {
	mu   sync.Mutex
	out  map[types.UID]bool
	ever map[types.UID]bool
	most int
	// order are the names in the order of their release.
	order []string
}

func (s *testCluster) limits() *limits {
	s.t.Helper()
	l := &limits{out: map[types.UID]bool{}, ever: map[types.UID]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	w, err := s.client.Typed.BatchV1().Jobs(s.namespace).Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok {
				l.take(job)
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return l
}

func (l *limits) take(job *batchv1.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	finished := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
	if finished || *job.Spec.Suspend {
		delete(l.out, job.UID)
		return
	}
	l.out[job.UID] = true
	l.most = max(l.most, len(l.out))
	if !l.ever[job.UID] {
		l.ever[job.UID] = true
		l.order = append(l.order, job.Name)
	}
}

func (l *limits) seen() (most int, order []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most, slices.Clone(l.order)
}

func flatTree(limits string) string {
	return "name: root\nmin: {cpu: 100}\nmax: {cpu: 100}\nchildren:\n- name: leaf\n  namespaces: [NS]\n  max: {" + limits + "}\n"
}

// allSucceed waits until the units of all jobs have succeeded.
func (s *testCluster) allSucceed(names []string) {
	s.t.Helper()
	s.await("all jobs to succeed", func() (bool, string) {
		for _, name := range names {
			if ok, text := s.phase(name, contract.UnitSucceed)(); !ok {
				return false, text
			}
		}
		return true, ""
	})
}

func TestMaxJobsOneAtATime(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 1"))
	s.awaitController()
	limits := s.limits()
	var names []string
	for _, i := range rand.Perm(6) { // names say nothing about the order
		name := fmt.Sprintf("job-%d", i)
		s.submit(batch{name: name, runFor: "1ms"})
		names = append(names, name)
	}
	s.allSucceed(names)
	most, order := limits.seen()
	assert.Equal(t, 1, most)
	assert.Equal(t, names, order, "by arrival, within one second too")
}

// The limit of the topmost node is that of all leaves together.
func TestMaxJobsOfTheRoot(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(`
name: root
min: {cpu: 100, kube-queue/max-jobs: 1}
max: {cpu: 100, kube-queue/max-jobs: 1}
children:
- {name: left, max: {kube-queue/max-jobs: 2}}
- {name: right, namespaces: [NS]}
`)
	s.awaitController()
	limits := s.limits()
	var names []string
	for i := range 4 {
		name := fmt.Sprintf("job-%d", i)
		s.submit(batch{name: name, runFor: "1ms", quota: []string{"left", "right"}[i%2]})
		names = append(names, name)
	}
	s.allSucceed(names)
	most, _ := limits.seen()
	assert.Equal(t, 1, most)
}

// TestOrderWithinASecond fills the line while a controller runs, once more while none
// does, and releases it under a third controller. Jobs that a controller saw arrive go
// in the order in which the API server accepted them, whatever happened to them since;
// those that were found there, by their names.
func TestOrderWithinASecond(t *testing.T) {
	s := newTestCluster(t)
	first := startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 1"))
	s.awaitController()
	s.submit(batch{name: "runs"})
	s.await("the first job to run", s.phase("runs", contract.UnitRunning))
	inLine := func(names []string) {
		t.Helper()
		s.await("all jobs to stand in line", func() (bool, string) {
			for _, name := range names {
				if u := s.unit(name); u.Status.Position == 0 {
					return false, fmt.Sprintf("%s: %+v", name, u.Status)
				}
			}
			return true, ""
		})
	}
	seen := s.submitWithinASecond("seen", 8)
	inLine(seen)
	first.End(syscall.SIGKILL)
	found := s.submitWithinASecond("found", 8)
	for _, name := range slices.Backward(found) { // the latest change tells nothing
		s.touch(name)
	}
	second := startController(t)
	inLine(found)
	second.End(syscall.SIGKILL)
	for _, name := range slices.Backward(seen) {
		s.touch(name)
	}
	limits := s.limits()
	startController(t)
	s.remove("runs")
	s.allSucceed(slices.Concat(seen, found))
	_, order := limits.seen()
	order = slices.DeleteFunc(order, func(name string) bool { return name == "runs" })
	slices.Sort(found)
	assert.Equal(t, slices.Concat(seen, found), order)
}

// submitWithinASecond submits jobs until all of them have the same time of creation, and
// returns their names in the order in which they were accepted, which names do not tell.
func (s *testCluster) submitWithinASecond(prefix string, count int) []string {
	s.t.Helper()
	for {
		var names []string
		times := map[int64]bool{}
		for _, i := range rand.Perm(count) {
			name := fmt.Sprintf("%s-%02d", prefix, i)
			times[s.submit(batch{name: name, runFor: "1ms"}).CreationTimestamp.Unix()] = true
			names = append(names, name)
		}
		if len(times) == 1 {
			return names
		}
		for _, name := range names {
			s.remove(name)
		}
	}
}

// touch changes a job without consequence.
func (s *testCluster) touch(name string) {
	s.t.Helper()
	_, err := s.client.Typed.BatchV1().Jobs(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"true"}}}`), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

func TestPriorityPassesAndBlockDoesNot(t *testing.T) {
	s := newTestCluster(t)
	localtest.CreatePriorityClass(t, s.client.Typed, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Value: 100})
	controller := startController(t)
	s.tree(flatTree("cpu: 10"))
	s.submit(batch{name: "runs", cpu: "6"})
	s.await("the first job to run", s.phase("runs", contract.UnitRunning))

	s.submit(batch{name: "big", cpu: "8", class: s.namespace})
	s.await("the big job to wait", func() (bool, string) {
		u := s.unit("big")
		return u.Status.Position == 1, fmt.Sprintf("%+v", u.Status)
	})
	assert.Equal(t, int32(100), *s.unit("big").Spec.Priority)
	assert.Equal(t, "quota root/leaf: max of cpu is 10, 6 is used and 8 is asked for", s.unit("big").Status.Message)
	s.submit(batch{name: "small-1"})
	s.await("a small job to pass", s.phase("small-1", contract.UnitRunning))

	// The user's policy stays, over a change of the tree and a restart too.
	queue := s.queues()["root/leaf"]
	_, err := s.client.Dynamic.Resource(queueGVR).Namespace(contract.QueueNamespace).Patch(t.Context(), queue.Name, types.MergePatchType, []byte(`{"spec":{"queuePolicy":"Block"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for blocked, n := false, 0; !blocked; n++ { // until the controller has been shown the policy, small jobs pass
		probe := fmt.Sprint("probe-", n)
		s.submit(batch{name: probe})
		s.await(probe+" to pass or to be blocked", func() (bool, string) {
			u := s.unit(probe)
			blocked = u.Status.Position == 2 && strings.HasPrefix(u.Status.Message, "nothing passes ")
			return blocked || u.Status.Phase == contract.UnitRunning, fmt.Sprintf("%+v", u.Status)
		})
		s.remove(probe)
	}
	s.submit(batch{name: "small-2"})
	s.await("a small job to be blocked", func() (bool, string) {
		u := s.unit("small-2")
		return u.Status.Position == 2, fmt.Sprintf("%+v", u.Status)
	})
	assert.Contains(t, s.unit("small-2").Status.Message, "nothing passes "+s.namespace+"/big, which waits: quota root/leaf")
	controller.End(syscall.SIGKILL)
	startController(t)
	s.tree(flatTree("cpu: 12"))
	s.submit(batch{name: "small-3"})
	s.await("another one to be blocked", func() (bool, string) {
		u := s.unit("small-3")
		return u.Status.Position == 3, fmt.Sprintf("%+v", u.Status)
	})
	assert.Equal(t, contract.PolicyBlock, s.queues()["root/leaf"].Spec.QueuePolicy)

	s.tree(flatTree("cpu: 100"))
	for _, name := range []string{"big", "small-2", "small-3"} {
		s.await(name+" to run", s.phase(name, contract.UnitRunning))
	}
}

func TestGoesBackWhenPodsDoNotRun(t *testing.T) {
	s := newTestCluster(t)
	startController(t, "--pods-ready-timeout=2s", "--requeue-backoff=10s", "--requeue-backoff-max=20s")
	s.tree(flatTree("kube-queue/max-jobs: 1"))
	s.submit(batch{name: "stuck", nowhere: true})
	s.await("the job to be released", s.phase("stuck", contract.UnitDequeued, contract.UnitBackoff))
	s.submit(batch{name: "next", runFor: "1s"})
	s.await("the job to go back", func() (bool, string) {
		u := s.unit("stuck")
		return u.Status.Phase == contract.UnitBackoff && strings.Contains(u.Status.Message, "only 0 of 1 pods ran 2s after attempt 1"), fmt.Sprintf("%+v", u.Status)
	})
	s.awaitEvents("stuck", "Released: left queue root/leaf, attempt 1",
		"Requeued: only 0 of 1 pods ran 2s after attempt 1; in line again in 10s")
	s.await("the next job to have its turn", s.phase("next", contract.UnitSucceed))
	s.await("the second attempt", func() (bool, string) {
		u := s.unit("stuck")
		return u.Status.Attempts == 2, fmt.Sprintf("%+v", u.Status)
	})
	s.await("the job to go back again", func() (bool, string) {
		u := s.unit("stuck")
		return u.Status.Phase == contract.UnitBackoff && u.Status.RequeueState.Count == 2, fmt.Sprintf("%+v", u.Status)
	})
	s.await("the job to be suspended", func() (bool, string) {
		job, err := s.client.Typed.BatchV1().Jobs(s.namespace).Get(context.Background(), "stuck", metav1.GetOptions{})
		require.NoError(t, err)
		return *job.Spec.Suspend, fmt.Sprint(job.Status)
	})
}

// TestKilledAtAnyPoint kills the controller again and again while jobs come and go.
func TestKilledAtAnyPoint(t *testing.T) {
	s := newTestCluster(t)
	s.tree(flatTree("kube-queue/max-jobs: 2"))
	limits := s.limits()
	var names []string
	for i := range 24 {
		name := fmt.Sprintf("job-%d", i)
		s.submit(batch{name: name, runFor: "1ms"})
		names = append(names, name)
	}
	for kills := range 12 {
		controller := startController(t, "--leader-elect=false")
		started := len(func() []string { _, order := limits.seen(); return order }())
		more := 1 + rand.IntN(2)
		s.await("more jobs to start", func() (bool, string) {
			_, order := limits.seen()
			return len(order) >= min(started+more, len(names)), fmt.Sprintf("kill %d: %v", kills, order)
		})
		controller.End(syscall.SIGKILL)
	}
	startController(t)
	s.allSucceed(names)
	most, _ := limits.seen()
	assert.Equal(t, 2, most)
	for _, name := range names {
		assert.Equal(t, int64(1), s.unit(name).Status.Attempts, name)
	}
}

// TestHandOver puts the first controller to sleep, lets a second one take over, and
// wakes the first: it releases nothing any more, and ends.
func TestHandOver(t *testing.T) {
	s := newTestCluster(t)
	s.tree(flatTree("kube-queue/max-jobs: 1"))
	limits := s.limits()
	first := startController(t)
	var names []string
	for i := range 12 {
		name := fmt.Sprintf("job-%d", i)
		s.submit(batch{name: name, runFor: "1ms"})
		names = append(names, name)
	}
	outAtLeast := func(n int) func() (bool, string) {
		return func() (bool, string) { _, order := limits.seen(); return len(order) >= n, fmt.Sprint(order) }
	}
	s.await("a job to start", outAtLeast(1))
	require.NoError(t, first.Command.Process.Signal(syscall.SIGSTOP))
	_, before := limits.seen()
	startController(t)
	s.await("the second controller to release jobs", outAtLeast(len(before)+2))
	require.NoError(t, first.Command.Process.Signal(syscall.SIGCONT))
	s.allSucceed(names)
	most, _ := limits.seen()
	assert.Equal(t, 1, most)
	first.End(syscall.SIGTERM)
	assert.Contains(t, first.Log.String(), "another queue controller has taken over")
}

func TestTreeEdits(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 1"))
	s.submit(batch{name: "runs"})
	s.await("the job to run", s.phase("runs", contract.UnitRunning))
	s.submit(batch{name: "waits", runFor: "1ms"})
	s.await("the job to wait", s.phase("waits", contract.UnitEnqueued))
	before := s.queues()
	queued := "Queued: position 1 in queue root/leaf: quota root/leaf: max of jobs is 1, 1 is used and 1 is asked for"
	s.awaitEvents("waits", queued)

	s.tree("name: root\nmin: {cpu: 100}\nmax: {cpu: 100}\nchildren:\n- name: other\n")
	s.await("the job to lose its leaf", func() (bool, string) {
		u := s.unit("waits")
		return u.Status.Message == "its namespace "+s.namespace+" belongs to no leaf of the quota tree", u.Status.Message
	})
	s.await("the new leaf's queue", func() (bool, string) { q := s.queues(); return q["root/other"].Name != "", fmt.Sprint(q) })
	assert.Equal(t, before["root/leaf"].Name, s.queues()["root/leaf"].Name, "a queue with units stays")

	s.tree("name: root\nmin: {cpu: 100}\nmax: {cpu: 100}\nchildren:\n- name: other\n  namespaces: [NS]\n")
	s.await("the job to run in its new leaf", s.phase("waits", contract.UnitSucceed))
	s.awaitEvents("waits", queued, "Released: left queue root/other, attempt 1")
	s.await("the old leaf's queue to go", func() (bool, string) {
		q := s.queues()
		return len(q) == 2 && q["root/leaf"].Name == "", fmt.Sprint(q)
	})
	assert.Equal(t, s.queues()["root/other"].Name, s.unit("runs").Spec.Queue)
}

// MPIJobs v1alpha1, as arena and the provider write them, are held by their annotation and
// take their turn like others. They count as running once launcher and workers run.
func TestAlphaMPIJobs(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 1, cpu: 3"))
	s.awaitController()
	for _, name := range []string{"first", "second"} {
		s.alpha(name)
		s.await(name+" to have a unit", func() (bool, string) { u := s.unit(name + "-mpi-qu"); return u.Name != "", name })
	}
	s.await("the first job to run", s.phase("first-mpi-qu", contract.UnitRunning))
	pods := func(name string) int {
		list, err := s.client.Typed.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: contract.ArenaMPIJobLabel + "=" + name})
		require.NoError(t, err)
		return len(list.Items)
	}
	assert.Equal(t, 3, pods("first"), "the launcher and two workers")
	second := s.unit("second-mpi-qu")
	assert.Equal(t, contract.UnitEnqueued, second.Status.Phase)
	assert.Contains(t, second.Status.Message, "max of jobs is 1")
	assert.Zero(t, pods("second"))
	cluster, err := clusterlist.Snapshot(t.Context(), s.client)
	require.NoError(t, err)
	around, err := explain.ReadAround(t.Context(), s.client, s.namespace)
	require.NoError(t, err)
	answers := explain.Find(cluster, around, s.namespace, "second")
	require.Len(t, answers, 1, "kubectl gpuplan knows it")
	assert.Equal(t, explain.Queued, answers[0].State)
	s.await("two CPUs to be charged once", func() (bool, string) {
		q := s.queues()["root/leaf"].Status
		return q.Active == 1 && q.Pending == 1, fmt.Sprint(q)
	})
	s.await("the tree to show what the workers use", func() (bool, string) {
		object, err := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(t, err)
		used, _, _ := unstructured.NestedMap(object.Object, "status", "root", "used")
		return assert.ObjectsAreEqual(map[string]any{"cpu": "2", contract.MaxJobsKey: "1"}, used), fmt.Sprint(used)
	})

	suspend := []byte(`{"metadata": {"annotations": {"` + contract.SuspendAnnotation + `": "true"}}}`)
	_, err = s.client.Dynamic.Resource(mpiGVR).Namespace(s.namespace).Patch(t.Context(), "first", types.MergePatchType, suspend, metav1.PatchOptions{})
	require.NoError(t, err)
	s.await("the second job to run in its place", s.phase("second-mpi-qu", contract.UnitRunning))
	s.await("the first job to wait in line", s.phase("first-mpi-qu", contract.UnitEnqueued))
	require.NoError(t, s.client.Dynamic.Resource(mpiGVR).Namespace(s.namespace).Delete(t.Context(), "second", metav1.DeleteOptions{}))
	s.await("the first job to run again", s.phase("first-mpi-qu", contract.UnitRunning))
}

// JobSets take their turn as a whole: the Jobs of their roles are neither queued nor charged by themselves.
func TestJobSets(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 1, cpu: 4"))
	s.awaitController()
	for _, name := range []string{"first", "second"} {
		s.jobSet(name)
		s.await(name+" to have a unit", func() (bool, string) { u := s.unit(name + "-js-qu"); return u.Name != "", name })
	}
	s.await("the first job to run", s.phase("first-js-qu", contract.UnitRunning))
	second := s.unit("second-js-qu")
	assert.Equal(t, contract.UnitEnqueued, second.Status.Phase)
	assert.Contains(t, second.Status.Message, "max of jobs is 1")
	units, err := s.client.Dynamic.Resource(unitGVR).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, units.Items, 2)
	around, err := explain.ReadAround(t.Context(), s.client, s.namespace)
	require.NoError(t, err)
	cluster, err := clusterlist.Snapshot(t.Context(), s.client)
	require.NoError(t, err)
	answers := explain.Find(cluster, around, s.namespace, "second")
	require.Len(t, answers, 1, "kubectl gpuplan knows it")
	assert.Equal(t, explain.Queued, answers[0].State)
	assert.Equal(t, contract.JobSetKind, answers[0].Job)
	assert.Empty(t, explain.Find(cluster, around, s.namespace, "second-driver-0"), "a part of it is no job")
	s.await("three CPUs to be charged once", func() (bool, string) {
		object, err := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(t, err)
		used, _, _ := unstructured.NestedMap(object.Object, "status", "root", "used")
		return assert.ObjectsAreEqual(map[string]any{"cpu": "3", contract.MaxJobsKey: "1"}, used), fmt.Sprint(used)
	})
	require.NoError(t, s.client.Dynamic.Resource(jobSetGVR).Namespace(s.namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	s.await("the second job to run in its place", s.phase("second-js-qu", contract.UnitRunning))
}

// A job that names a leaf which the tree lacks is held, and says so, until the tree has it.
func TestUnknownLeaf(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("cpu: 50"))
	s.submit(batch{name: "typo", quota: "late", runFor: "1ms"})
	missing := `the quota tree has no leaf "late"; its leaves are leaf`
	s.await("the job to be held", func() (bool, string) {
		u := s.unit("typo")
		return u.Status.Phase == contract.UnitEnqueued && u.Status.Message == missing, u.Status.Message
	})
	s.awaitEvents("typo", "Queued: "+missing)
	s.tree("name: root\nmin: {cpu: 100}\nmax: {cpu: 100}\nchildren:\n- name: late\n")
	s.await("the job to run", s.phase("typo", contract.UnitSucceed))
}

func TestTreeStatus(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 1, cpu: 50"))
	s.awaitController()
	s.submit(batch{name: "runs", cpu: "1500m"})
	s.submit(batch{name: "waits", cpu: "2"})
	s.await("the status of the tree", func() (bool, string) {
		object, err := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(t, err)
		status, _, _ := unstructured.NestedMap(object.Object, "status", "root")
		want := map[string]any{"used": map[string]any{"cpu": "1500m", contract.MaxJobsKey: "1"}, "request": map[string]any{"cpu": "3500m", contract.MaxJobsKey: "2"}}
		leaf := map[string]any{"name": "leaf", "namespaces": []any{s.namespace}, "used": want["used"], "request": want["request"]}
		root := map[string]any{"name": "root", "used": want["used"], "request": want["request"], "children": []any{leaf}}
		return assert.ObjectsAreEqual(root, status), fmt.Sprint(status)
	})
	s.remove("waits")
	trees := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace)
	foreign := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Checked", "status": "True", "lastProbeTime": "yesterday"},
	}}}}
	foreign.SetGroupVersionKind(treeGVR.GroupVersion().WithKind(contract.QuotaTreeKind))
	foreign.SetName(contract.QuotaTreeName)
	_, err := trees.ApplyStatus(t.Context(), contract.QuotaTreeName, foreign, metav1.ApplyOptions{FieldManager: "other", Force: true})
	require.NoError(t, err)
	s.submit(batch{name: "more", cpu: "3"})
	s.await("the status of the tree beside a condition of others", func() (bool, string) {
		object, err := trees.Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(t, err)
		asked, _, _ := unstructured.NestedString(object.Object, "status", "root", "request", "cpu")
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		return asked == "4500m" && len(conditions) == 2 && strings.Contains(fmt.Sprint(conditions), "lastProbeTime:yesterday"), fmt.Sprint(object.Object["status"])
	})
	s.await("the status of the queue", func() (bool, string) {
		q := s.queues()
		leaf := q["root/leaf"].Status
		return leaf.Active == 1 && leaf.Pending == 1 && q["root"].Status.Pending == 1 && len(leaf.QueueItemDetails["active"]) == 1, fmt.Sprint(q)
	})
}

// Where the tree's CRD is of others and has no conditions, people read of its use all the same.
func TestTreeWithoutConditions(t *testing.T) {
	s := newTestCluster(t)
	s.tree(flatTree("cpu: 50"))
	ours := s.setTreeStatusSchema(false, map[string]any{"type": "object", "properties": map[string]any{
		"root": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}})
	t.Cleanup(func() { s.setTreeStatusSchema(true, ours) })
	startController(t)
	s.awaitController()
	s.submit(batch{name: "runs", cpu: "1500m"})
	s.await("the status of the tree", func() (bool, string) {
		object, err := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(t, err)
		used, _, _ := unstructured.NestedString(object.Object, "status", "root", "used", "cpu")
		return used == "1500m", fmt.Sprint(object.Object["status"])
	})
}

// A tree that turns invalid releases nothing, over a restart too, and says why in its
// condition, in an event and on the units. Its Queues stay.
func TestTreeTurnsInvalid(t *testing.T) {
	s := newTestCluster(t)
	controller := startController(t)
	tree := func(attributes string) {
		s.tree(flatTree("kube-queue/max-jobs: 1") + "  attributes: " + attributes + "\n")
	}
	tree("{}")
	s.submit(batch{name: "runs"})
	s.await("the job to run", s.phase("runs", contract.UnitRunning))
	before := s.queues()
	tree("{" + contract.LendLimitAttribute + ": '{'}") // no admission policy can read it
	inForce := func(status, text string) {
		t.Helper()
		s.await("the condition of the tree", func() (bool, string) {
			object, err := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
			require.NoError(t, err)
			list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
			return len(list) == 1 && list[0].(map[string]any)["status"] == status && strings.Contains(fmt.Sprint(list), text), fmt.Sprint(list)
		})
	}
	inForce("False", "quota tree is invalid: ")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := s.client.Typed.CoreV1().Events(contract.QuotaTreeNamespace).List(context.Background(), metav1.ListOptions{FieldSelector: fields.Set{
			"reason": "ElasticQuotaTreeInvalid", "involvedObject.kind": contract.QuotaTreeKind, "involvedObject.name": contract.QuotaTreeName,
		}.String()})
		require.NoError(c, err)
		assert.NotEmpty(c, list.Items)
	}, settled, 100*time.Millisecond)
	s.remove("runs")
	held := func(name string) {
		t.Helper()
		s.submit(batch{name: name, runFor: "1ms"})
		s.await("the job to say why it waits", func() (bool, string) {
			u := s.unit(name)
			return u.Status.Phase == contract.UnitEnqueued && strings.Contains(u.Status.Message, "quota tree is invalid: "), fmt.Sprintf("%+v", u.Status)
		})
	}
	held("waits")
	controller.End(syscall.SIGKILL)
	startController(t)
	held("comes")
	assert.Equal(t, before["root/leaf"].Name, s.queues()["root/leaf"].Name)
	tree("{}")
	inForce("True", "its limits count")
	s.allSucceed([]string{"waits", "comes"})
}

// TestWaysIntoTheQueue goes through the ways in which a job asks for the queue or not.
func TestWaysIntoTheQueue(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 100"))
	s.training(contract.PyTorchJobKind, "Master", 1, batch{name: "arena", running: true, annotations: map[string]string{contract.SuspendAnnotation: "true"}})
	s.await("the job with arena's annotation to run", s.phase("arena-py-qu", contract.UnitRunning))
	object, err := s.client.Dynamic.Resource(pytorchGVR).Namespace(s.namespace).Get(t.Context(), "arena", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "false", object.GetAnnotations()[contract.SuspendAnnotation])

	s.submit(batch{name: "held", annotations: map[string]string{contract.QueueAnnotation: "false"}})
	s.submit(batch{name: "own", running: true})
	s.submit(batch{name: "queued"})
	s.await("the suspended job to run", s.phase("queued", contract.UnitRunning))
	s.submit(batch{name: "last"})
	s.await("a later job to run", s.phase("last", contract.UnitRunning))
	assert.Empty(t, s.unit("held").Name)
	assert.Empty(t, s.unit("own").Name)
	s.await("all jobs that run to be counted", func() (bool, string) {
		q := s.queues()["root/leaf"]
		return q.Status.Active == 4 && q.Status.Pending == 0, fmt.Sprintf("%+v", q.Status)
	})
}
