package queue_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

var (
	churnSeed = flag.Uint64("churn.seed", 1, "seed of the first run of jobs that come and go")
	churnRuns = flag.Int("churn.runs", 1, "number of runs of jobs that come and go")
)

// churnSteps is how much happens in a run.
const churnSteps = 40

// TestJobsOfEveryKindComeAndGo has jobs of every kind come, end and go at random, while the controller is killed and the
// quota tree is invalid for a while. No more are out at a time than the limit allows, they leave the queue in the order of
// their arrival, none that has come while the tree is invalid leaves before it is valid, and nothing stays of jobs that are gone.
func TestJobsOfEveryKindComeAndGo(t *testing.T) {
	for i := range *churnRuns {
		seed := *churnSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := &churn{testCluster: newTestCluster(t), Rand: rand.New(rand.NewPCG(seed, 0))}
			c.limit = 1 + c.IntN(3)
			c.follow()
			c.start()
			c.valid(true)
			c.awaitController()
			for n := range churnSteps {
				c.step(n)
			}
			c.restore()
			c.drain()
			c.requireNothingLeft()
			c.judge()
		})
	}
}

// churn is one run.
type churn struct {
	*testCluster
	*rand.Rand
	controller *localtest.Process
	// limit is how many jobs may be out at a time.
	limit int
	// broken is how many more steps the tree is invalid for, away how many no controller runs.
	broken, away int
	mu           sync.Mutex
	seen         []change
	// absences are the resource versions between which no controller ran, bars those between which the tree was known to be
	// invalid.
	absences, bars [][2]int64
}

// change is a job, or a unit, as a watch has shown it.
type change struct {
	object  *unstructured.Unstructured
	version int64
	gone    bool
}

func versionOf(object metav1.Object) int64 {
	version, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return version
}

// follow notes every change of a job or a unit.
func (c *churn) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for _, gvr := range []schema.GroupVersionResource{batchGVR, pytorchGVR, mpiGVR, jobSetGVR, unitGVR} {
		w, err := c.client.Dynamic.Resource(gvr).Namespace(c.namespace).Watch(ctx, metav1.ListOptions{})
		require.NoError(c.t, err)
		done.Go(func() {
			for event := range w.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if !ok || trainingjob.PartOf(object) != nil {
					continue
				}
				c.mu.Lock()
				c.seen = append(c.seen, change{object, versionOf(object), event.Type == watch.Deleted})
				c.mu.Unlock()
			}
		})
	}
	c.t.Cleanup(func() { cancel(); done.Wait() })
}

func (c *churn) start() {
	p, err := localtest.Launch(cluster.kubeconfig, contract.SchedulerName, "queue", "--leader-elect=false", "--v=2")
	require.NoError(c.t, err)
	p.EndWith(c.t)
	c.controller = p
}

// comeBack starts a controller after another.
func (c *churn) comeBack() {
	c.absences[len(c.absences)-1][1] = c.now()
	c.start()
}

// now is the newest resource version.
func (c *churn) now() int64 {
	list, err := c.client.Typed.CoreV1().ConfigMaps(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	version, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	require.NoError(c.t, err)
	return version
}

// valid writes the quota tree, as it should be or invalid.
func (c *churn) valid(yes bool) {
	attributes := "{}"
	if !yes {
		attributes = "{" + contract.LendLimitAttribute + ": '{'}" // no admission policy can read it
	}
	c.tree(flatTree(fmt.Sprint("kube-queue/max-jobs: ", c.limit)) + "  attributes: " + attributes + "\n")
}

// awaitInForce waits until the controller says whether the limits of the tree count.
func (c *churn) awaitInForce(status string) {
	c.await("the condition of the tree", func() (bool, string) {
		tree, err := c.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(c.t, err)
		list, _, _ := unstructured.NestedSlice(tree.Object, "status", "conditions")
		return len(list) == 1 && list[0].(map[string]any)["status"] == status, fmt.Sprint(list)
	})
}

// step does something, or goes on with what was begun.
func (c *churn) step(n int) {
	if c.away > 0 {
		if c.away--; c.away == 0 {
			c.comeBack()
		}
	}
	if c.broken > 0 {
		if c.broken--; c.broken == 0 {
			c.bars[len(c.bars)-1][1] = c.now()
			c.valid(true)
		}
	}
	switch what := c.IntN(20); {
	case what < 11:
		c.come(fmt.Sprintf("%c-%02d", 'a'+c.IntN(26), n)) // names say nothing about the order
	case what < 16:
		c.goes(c.IntN(1 << 20))
	case what < 18 && c.away == 0:
		c.absences = append(c.absences, [2]int64{c.now(), 0})
		c.controller.End(syscall.SIGKILL)
		if c.away = c.IntN(4); c.away == 0 {
			c.comeBack()
		}
	case c.broken == 0 && c.away == 0:
		c.valid(false)
		c.awaitInForce("False")
		c.bars = append(c.bars, [2]int64{c.now(), 0})
		c.broken = 3 + c.IntN(4)
	}
	time.Sleep(time.Duration(c.IntN(120)) * time.Millisecond)
}

// come makes a job of some kind, which ends soon, or runs until it is deleted.
func (c *churn) come(name string) {
	runFor := []string{"1ms", "300ms", ""}[c.IntN(3)]
	switch c.IntN(5) {
	case 0:
		c.submit(batch{name: name, runFor: runFor})
	case 1:
		c.training(contract.PyTorchJobKind, "Master", 1, batch{name: name, runFor: runFor})
	case 2:
		c.training(contract.MPIJobKind, "Launcher", 1, batch{name: name, runFor: runFor})
	case 3:
		c.alpha(name)
	default:
		c.jobSet(name)
	}
}

// jobs lists the jobs that there are, in some order.
func (c *churn) jobs() (all []unstructured.Unstructured) {
	for _, gvr := range []schema.GroupVersionResource{batchGVR, pytorchGVR, mpiGVR, jobSetGVR} {
		list, err := c.client.Dynamic.Resource(gvr).Namespace(c.namespace).List(context.Background(), metav1.ListOptions{})
		require.NoError(c.t, err)
		for _, job := range list.Items {
			if trainingjob.PartOf(&job) == nil {
				all = append(all, job)
			}
		}
	}
	return all
}

// goes deletes one of the jobs.
func (c *churn) goes(target int) {
	if jobs := c.jobs(); len(jobs) > 0 {
		c.delete(&jobs[target%len(jobs)])
	}
}

func (c *churn) delete(job *unstructured.Unstructured) {
	gvr := map[string]schema.GroupVersionResource{"Job": batchGVR, contract.PyTorchJobKind: pytorchGVR, contract.MPIJobKind: mpiGVR, contract.JobSetKind: jobSetGVR}[job.GetKind()]
	background := metav1.DeletePropagationBackground
	err := c.client.Dynamic.Resource(gvr).Namespace(c.namespace).Delete(context.Background(), job.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	if !apierrors.IsNotFound(err) {
		require.NoError(c.t, err)
	}
}

// restore has a controller run, by a valid tree.
func (c *churn) restore() {
	if c.away > 0 {
		c.comeBack()
	}
	if c.broken > 0 {
		c.bars[len(c.bars)-1][1] = c.now()
		c.valid(true)
	}
}

// drain lets jobs take their turn until all have ended, and ends those that do not by themselves.
func (c *churn) drain() {
	c.await("all jobs to have their turn", func() (bool, string) {
		var left []string
		for _, job := range c.jobs() {
			if out(&job) {
				c.delete(&job)
			} else if !ended(&job) {
				left = append(left, job.GetKind()+" "+job.GetName())
			}
		}
		return len(left) == 0, strings.Join(left, ", ")
	})
}

// requireNothingLeft deletes the jobs, of which no unit stays, and no place in the books.
func (c *churn) requireNothingLeft() {
	for _, job := range c.jobs() {
		c.delete(&job)
	}
	c.await("no unit to be left", func() (bool, string) {
		units, err := c.client.Dynamic.Resource(unitGVR).Namespace(c.namespace).List(context.Background(), metav1.ListOptions{})
		require.NoError(c.t, err)
		status := c.queues()["root/leaf"].Status
		return len(units.Items) == 0 && status.Active == 0 && status.Pending == 0, fmt.Sprintf("%d units; %+v", len(units.Items), status)
	})
}

// ended reports whether a job has, by itself.
func ended(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(entry any) bool {
		condition := entry.(map[string]any)
		ends := []any{"Complete", "Completed", "Succeeded", "Failed"}
		return condition["status"] == "True" && slices.Contains(ends, condition["type"])
	})
}

// out reports whether a job has left the queue and has not ended.
func out(job *unstructured.Unstructured) bool {
	if trainingjob.Alpha(job) {
		return !trainingjob.Held(job)
	}
	field := []string{"spec", "suspend"}
	if job.GetKind() == contract.PyTorchJobKind || job.GetKind() == contract.MPIJobKind {
		field = []string{"spec", "runPolicy", "suspend"}
	}
	suspended, _, _ := unstructured.NestedBool(job.Object, field...)
	return !suspended && !ended(job)
}

// turn is what the run has seen of a job.
type turn struct {
	object *unstructured.Unstructured
	// made and queued are the resource versions of the job and of its unit as they appeared, 0 for never.
	made, queued int64
	// seen means that a controller has seen the job arrive, and has not only found it when it started.
	seen      bool
	out, over bool
}

func (t *turn) String() string {
	return fmt.Sprintf("%s %s, made at %d (%s) and queued at %d", t.object.GetKind(), t.object.GetName(), t.made, t.object.GetCreationTimestamp(), t.queued)
}

// before reports whether a job is certain to have its turn before another, where both stand in line: a controller has seen each
// of them arrive, or they are of different seconds.
func (t *turn) before(other *turn) bool {
	at, otherAt := t.object.GetCreationTimestamp(), other.object.GetCreationTimestamp()
	if order := at.Compare(otherAt.Time); order != 0 {
		return order < 0
	}
	return t.seen && other.seen && t.made < other.made
}

// judge goes through all that the run has seen, in the order in which it happened.
func (c *churn) judge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.seen, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	turns := map[types.UID]*turn{}
	released, ordered := 0, 0
	for _, e := range c.seen {
		if e.object.GetKind() == contract.QueueUnitKind {
			uid, _, _ := unstructured.NestedString(e.object.Object, "spec", "consumerRef", "uid")
			if t := turns[types.UID(uid)]; t != nil && t.queued == 0 {
				t.queued, t.seen = e.version, e.object.GetAnnotations()[contract.ArrivalAnnotation] == strconv.FormatInt(t.made, 10)
			}
			continue
		}
		t := turns[e.object.GetUID()]
		if t == nil {
			t = &turn{object: e.object, made: e.version}
			turns[e.object.GetUID()] = t
		}
		was := t.out
		t.out, t.over = out(e.object) && !e.gone, e.gone || ended(e.object)
		if was || !t.out {
			continue
		}
		released++
		n := 0
		for _, other := range turns {
			if other.out {
				n++
			}
		}
		for _, other := range turns {
			if other.queued > 0 && other.before(t) {
				ordered++
			}
			// Jobs that leave together do so in any order.
			if n == c.limit && !other.out && !other.over && other.queued > 0 && other.queued < t.queued && other.before(t) {
				assert.Fail(c.t, "out of turn", "%s leaves the queue at %d before %s; no controller ran in %v, and the tree was invalid in %v", t, e.version, other, c.absences, c.bars)
			}
		}
		assert.LessOrEqual(c.t, n, c.limit, "%s %s leaves the queue", t.object.GetKind(), t.object.GetName())
		for _, bar := range c.bars {
			assert.False(c.t, bar[0] < t.made && e.version < bar[1], "%s %s leaves the queue while the tree is invalid", t.object.GetKind(), t.object.GetName())
		}
	}
	c.t.Logf("%d jobs, %d releases, %d kills, the tree was invalid %d times", len(turns), released, len(c.absences), len(c.bars))
	assert.NotZero(c.t, released)
	assert.NotZero(c.t, ordered)
}
