package fleetplan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
	return obj
}

// world is a fleet of clusters with one node of eight V100 each, called node in each of them.
type world struct {
	hub     *kubetest.Server
	members map[string]*kubetest.Server
	*fleetplan.Fleet
	applying bool
}

func newWorld(t *testing.T, members ...string) *world {
	t.Helper()
	w := &world{hub: kubetest.Start(t), members: map[string]*kubetest.Server{}}
	w.hub.Put(object(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: clusters.cluster.karmada.io},
  spec: {group: cluster.karmada.io, scope: Cluster, names: {kind: Cluster, plural: clusters}, versions: [{name: v1alpha1, served: true, storage: true}]}}`))
	for _, name := range members {
		w.members[name] = kubetest.Start(t)
		w.cluster(t, name, "True", w.members[name].Config().Host)
		w.hub.Put(object(t, `{apiVersion: v1, kind: Secret, metadata: {name: `+name+`, namespace: fleet}, data: {token: eA==}}`))
		w.members[name].Put(object(t, fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: node, labels: {%s: v100, %s: topology, %s: ecs.gn6v-c10g1.20xlarge}},
  status: {conditions: [{type: Ready, status: "True"}], capacity: {aliyun.com/gpu: "8", cpu: "80", memory: 300Gi, pods: "100"}, allocatable: {aliyun.com/gpu: "8", cpu: "80", memory: 300Gi, pods: "100"}}}`,
			contract.NodePoolNameLabel, contract.NodeModeLabel, contract.InstanceTypeLabel)))
	}
	client, err := kube.New(w.hub.Config())
	require.NoError(t, err)
	w.Fleet = fleetplan.New(client, func() bool { return w.applying }, func(labels map[string]string) bool { return labels["mine"] != "" })
	return w
}

// cluster has the hub tell of a cluster.
func (w *world) cluster(t *testing.T, name, ready, address string) {
	t.Helper()
	w.hub.Put(object(t, fmt.Sprintf(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: %s}, spec: {apiEndpoint: "%s", secretRef: {namespace: fleet, name: %[1]s}},
  status: {conditions: [{type: Ready, status: "%[3]s", lastTransitionTime: "2026-01-01T00:00:00Z", reason: r, message: ""}], apiEnablements: [{groupVersion: kubeflow.org/v1, resources: [{kind: PyTorchJob}]}]}}`, name, address, ready)))
}

// runs has a pod of a job hold GPUs of a cluster.
func (w *world) runs(t *testing.T, in, job string, gpus ...int) {
	t.Helper()
	record, err := contract.Allocation{Node: "node", GPUs: gpus}.Annotations()
	require.NoError(t, err)
	pod := object(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default, uid: %[1]s, labels: {%s: %[1]s, mine: "yes", %[4]s: %[1]s, %[5]s: "1"}},
  spec: {nodeName: node, schedulerName: gpuplan-scheduler, containers: [{name: c, resources: {limits: {aliyun.com/gpu: "%[3]d"}, requests: {aliyun.com/gpu: "%[3]d"}}}]}, status: {phase: Running}}`, job, contract.JobNameLabel, len(gpus), contract.TopologyGroupLabel, contract.TopologyReplicasLabel))
	pod.SetAnnotations(record)
	w.members[in].Put(pod)
}

// serveJobs has all serve PyTorchJobs, and the hub have job j, of which it returns the UID.
func (w *world) serveJobs(t *testing.T) (uid string) {
	t.Helper()
	for _, server := range append(slices.Collect(maps.Values(w.members)), w.hub) {
		server.Put(object(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: pytorchjobs.kubeflow.org},
  spec: {group: kubeflow.org, scope: Namespaced, names: {kind: PyTorchJob, plural: pytorchjobs}, versions: [{name: v1, served: true, storage: true}]}}`))
	}
	w.hub.Put(object(t, `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, namespace: default, uid: first}}`))
	client, err := kube.New(w.hub.Config())
	require.NoError(t, err)
	live, err := client.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	return string(live.GetUID())
}

// brought has a cluster have job j as Karmada brings it from the object of a hub.
func (w *world) brought(t *testing.T, in, from string) {
	t.Helper()
	w.members[in].Put(object(t, fmt.Sprintf(`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, namespace: default, labels: {%s: "true"}, annotations: {%s: %s}}}`,
		contract.KarmadaManagedLabel, contract.KarmadaTemplateAnnotation, from)))
}

// job is a gang of workers with two GPUs each, with what the clusters of those names have.
func (w *world) job(t *testing.T, name string, workers int, of ...string) fleetplan.Job {
	t.Helper()
	spec := job.Spec{Namespace: "default", Name: name, Framework: job.PyTorch, Mode: job.Topology, Gang: true, SchedulerName: contract.SchedulerName,
		Roles: map[string]job.Role{"worker": {Replicas: int32(workers), Image: "i", GPUs: 2}}}.Complete()
	o, err := spec.Render()
	require.NoError(t, err)
	pods, err := job.Expected(o)
	require.NoError(t, err)
	gang, err := spec.PlannerGang(nil)
	require.NoError(t, err)
	j := fleetplan.Job{ID: spec.ID(), Kind: o.GroupVersionKind(), Gang: gang, Pods: pods, Policy: &fleetplan.Policy{Name: "p", Scheduler: contract.FleetSchedulerName}, Given: map[string]fleetplan.Given{}}
	for _, of := range of {
		j.Given[of] = w.given(t, of)
	}
	return j
}

// given is what a cluster has now.
func (w *world) given(t *testing.T, name string) (given fleetplan.Given) {
	t.Helper()
	if w.members[name] == nil {
		return given
	}
	client, err := kube.New(w.members[name].Config())
	require.NoError(t, err)
	seen, err := cluster.New(client, func() bool { return false }).Snapshot(t.Context())
	require.NoError(t, err)
	view := seen.View()
	for _, node := range view.Nodes() {
		n, _ := view.Node(node)
		given.Nodes, given.Occupants = append(given.Nodes, n), append(given.Occupants, view.Pods(node)...)
	}
	return given
}

func (w *world) planned(t *testing.T, j fleetplan.Job) fleetplan.Answer {
	t.Helper()
	answer, err := w.Plan(t.Context(), j)
	require.NoError(t, err)
	return answer
}

func says(answer fleetplan.Answer) string {
	var all []string
	for _, f := range answer.Findings {
		kind := "warning"
		if f.Error {
			kind = "error"
		}
		all = append(all, fmt.Sprintf("%s: %s: %s", kind, f.Summary, f.Detail))
	}
	return strings.Join(all, "\n")
}

func TestFindings(t *testing.T) {
	for name, test := range map[string]struct {
		plan     func(t *testing.T, w *world) fleetplan.Answer
		says     []string
		promised string
	}{
		"the tightest fit": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "b", "other", 0, 1, 2, 3)
			return w.planned(t, w.job(t, "j", 2, "a", "b"))
		}, nil, "b"},
		"nowhere": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "other", 0)
			w.Keep("default/other")
			return w.planned(t, w.job(t, "j", 4, "a"))
		}, []string{"error: Job does not fit in any cluster: Job default/j has a place in no cluster of the fleet: a: 3 of 4 members fit", "; b: it is not ready"}, ""},
		"a cluster that is none": {func(t *testing.T, w *world) fleetplan.Answer { return w.planned(t, w.job(t, "j", 1, "c")) },
			[]string{`error: No such cluster in the fleet: Job default/j is given pools of cluster "c", and the clusters of the fleet are a, b.`}, ""},
		"what was not given": {func(t *testing.T, w *world) fleetplan.Answer { return w.planned(t, w.job(t, "j", 1)) }, nil, ""},
		"someone else has it by now": {func(t *testing.T, w *world) fleetplan.Answer {
			j := w.job(t, "j", 4, "a", "b")
			w.runs(t, "a", "other", 0)
			return w.planned(t, j)
		}, []string{"warning: Job goes elsewhere: By the capacity of its pools job default/j goes to cluster a, but not by what is there: 3 of 4 members fit", "As the clusters are now it goes to b; where it is, is known after apply."}, ""},
		"a cluster that does not answer": {func(t *testing.T, w *world) fleetplan.Answer {
			j := w.job(t, "j", 4, "a", "b")
			w.cluster(t, "a", "True", "http://127.0.0.1:1")
			return w.planned(t, j)
		}, []string{"warning: Not all clusters were looked at: Whether job default/j has a place there is not known: a: its state cannot be read: "}, "a"},
		"behind others": {func(t *testing.T, w *world) fleetplan.Answer {
			w.planned(t, w.job(t, "i", 4, "a", "b"))
			j := w.job(t, "j", 4, "a", "b")
			j.After = []string{"default/i"}
			return w.planned(t, j)
		}, nil, "b"},
		"in the same place": {func(t *testing.T, w *world) fleetplan.Answer {
			w.planned(t, w.job(t, "i", 4, "a", "b"))
			return w.planned(t, w.job(t, "j", 4, "a", "b"))
		}, []string{"warning: Two jobs are planned in the same place: Jobs default/i and default/j are each planned on the same GPUs or nodes of cluster a."}, "a"},
		"more jobs than fit": {func(t *testing.T, w *world) fleetplan.Answer {
			for _, name := range []string{"h", "i"} {
				j := w.job(t, name, 4, "a", "b")
				if name == "i" {
					j.After = []string{"default/h"}
				}
				w.planned(t, j)
			}
			return w.planned(t, w.job(t, "j", 4, "a", "b"))
		}, []string{"warning: Job will wait: Job default/j has room in the fleet, but not beside the other jobs of this configuration that are yet to come: one of them waits."}, "a"},
		"more than fit, at once": {func(t *testing.T, w *world) fleetplan.Answer {
			w.planned(t, w.job(t, "h", 4, "a"))
			i := w.job(t, "i", 4, "b")
			i.Immediate = true
			w.planned(t, i)
			return w.planned(t, w.job(t, "j", 4, "a", "b"))
		}, []string{"error: Job will wait: "}, "a"},
		"in the place of one that the queue holds": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "b", "other", 0)
			i := w.job(t, "i", 4)
			w.Expect(t.Context(), i, fleetplan.PlaceOf("a", w.planned(t, w.job(t, "i", 4, "a")).Place.Members))
			return w.planned(t, w.job(t, "j", 4, "a"))
		}, []string{"warning: Job will wait: Job default/j has room in the fleet, but not beside the other jobs of this configuration that are yet to come: one of them waits."}, "a"},
		"behind too many": {func(t *testing.T, w *world) fleetplan.Answer {
			j := w.job(t, "j", 4, "a", "b")
			for i, name := range []string{"h", "i"} {
				b := w.job(t, name, 4, "a", "b")
				if i > 0 {
					b.After = []string{"default/h"}
				}
				w.planned(t, b)
				j.After = append(j.After, b.ID)
			}
			return w.planned(t, j)
		}, []string{"warning: Job will wait: Job default/j has room in the fleet, but not beside the jobs that are placed before it: a: "}, ""},
		"behind one that may leave": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "i", 0, 1, 2, 3, 4, 5)
			w.runs(t, "b", "other", 0)
			w.Keep("default/other")
			return w.planned(t, w.job(t, "j", 4)) // Terraform comes to no other with -parallelism=1
		}, []string{"warning: Job fits only if others leave: Job default/j has room in the fleet once "}, ""},
		"behind one that stays": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "i", 0, 1, 2, 3, 4, 5)
			w.runs(t, "b", "other", 0)
			w.Keep("default/i")
			w.Keep("default/other")
			return w.planned(t, w.job(t, "j", 4))
		}, []string{"error: Job does not fit in any cluster: "}, ""},
		"in an apply that deletes one": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "i", 0, 1, 2, 3, 4, 5)
			w.runs(t, "b", "other", 0)
			w.applying = true
			answer, err := w.Now(t.Context(), w.job(t, "j", 4), nil)
			require.NoError(t, err)
			return answer
		}, []string{"warning: Job fits only if others leave: "}, ""},
		"in a queue, behind what runs": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "h", 0, 1, 2, 3, 4, 5, 6, 7)
			w.runs(t, "b", "i", 0, 1, 2, 3, 4, 5, 6, 7)
			w.Keep("default/h")
			w.Keep("default/i")
			j := w.job(t, "j", 4, "a", "b")
			j.Policy.Held = true
			return w.planned(t, j)
		}, []string{"warning: Job will wait: Job default/j has room in the fleet, but not beside the jobs that run: it waits until they end. Beside them: a: "}, ""},
		"in a queue, and too large": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "h", 0, 1, 2, 3, 4, 5, 6, 7)
			w.Keep("default/h")
			j := w.job(t, "j", 5, "a", "b")
			j.Policy.Held = true
			return w.planned(t, j)
		}, []string{"error: Job does not fit in any cluster: "}, ""},
		"in the place of what it was": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "j", 0, 1, 2, 3, 4, 5)
			w.runs(t, "b", "other", 0)
			return w.planned(t, w.job(t, "j", 4))
		}, nil, ""},
		"where another fleet has one of its name": {func(t *testing.T, w *world) fleetplan.Answer {
			w.serveJobs(t)
			w.brought(t, "a", "elsewhere")
			w.runs(t, "a", "j", 0, 1, 2, 3, 4, 5, 6, 7)
			w.runs(t, "b", "other", 0, 1)
			w.Keep("default/other")
			return w.planned(t, w.job(t, "j", 4))
		}, []string{"error: Job does not fit in any cluster: ", "a: it has another job of that name: an earlier one, someone's there, or that of another fleet; give one of them another name; b: "}, ""},
		"where it is itself": {func(t *testing.T, w *world) fleetplan.Answer {
			w.brought(t, "a", w.serveJobs(t))
			w.runs(t, "a", "j", 0, 1, 2, 3, 4, 5, 6, 7)
			w.runs(t, "b", "other", 0, 1)
			return w.planned(t, w.job(t, "j", 4))
		}, nil, ""},
		"in the place of one that leaves later": {func(t *testing.T, w *world) fleetplan.Answer {
			w.runs(t, "a", "i", 0, 1, 2, 3, 4, 5)
			w.runs(t, "b", "other", 0)
			w.Keep("default/other")
			go func() {
				time.Sleep(50 * time.Millisecond)
				w.Leave("default/i")
			}()
			return w.planned(t, w.job(t, "j", 4))
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			if name == "nowhere" {
				w.cluster(t, "b", "False", w.members["b"].Config().Host)
			}
			answer := test.plan(t, w)
			said := says(answer)
			if len(test.says) == 0 {
				assert.Empty(t, said)
			}
			for _, text := range test.says {
				assert.Contains(t, said, text)
			}
			promised := ""
			if answer.Promised {
				promised = answer.Place.Cluster
			}
			assert.Equal(t, test.promised, promised)
		})
	}
}

// A job that quota holds back is told from one that has no room.
func TestQuotaOfAMember(t *testing.T) {
	w := newWorld(t, "a")
	w.members["a"].Put(object(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.%[1]s},
  spec: {group: %[1]s, scope: Namespaced, names: {kind: %[3]s, plural: %[2]s}, versions: [{name: %[4]s, served: true, storage: true}]}}`, contract.QuotaTreeGroup, contract.QuotaTreeResource, contract.QuotaTreeKind, contract.QuotaTreeVersion)))
	w.members["a"].Put(object(t, fmt.Sprintf(`{apiVersion: %s/%s, kind: %s, metadata: {namespace: %s, name: %s},
  spec: {root: {name: root, min: {aliyun.com/gpu: 8}, max: {aliyun.com/gpu: 8}, children: [{name: team, max: {aliyun.com/gpu: 3}, namespaces: [default]}]}}}`,
		contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeKind, contract.QuotaTreeNamespace, contract.QuotaTreeName)))
	assert.Contains(t, says(w.planned(t, w.job(t, "j", 2, "a"))), "warning: Job will wait for quota: Job default/j has room in the fleet, but not within its quota: a: ")
}

// An apply finds the place that its plan has found, whatever has happened in the clusters, and says at the start of a job what becomes of it.
func TestAnApplyFindsWhatItsPlanHasFound(t *testing.T) {
	w := newWorld(t, "a", "b")
	j := w.job(t, "j", 4, "a", "b")
	planned := w.planned(t, j)
	require.True(t, planned.Promised)
	mark := w.Mark(j.ID)
	assert.NotEqual(t, ledger.Unplanned, mark)

	client, err := kube.New(w.hub.Config())
	require.NoError(t, err)
	apply := fleetplan.New(client, func() bool { return true }, func(map[string]string) bool { return true })
	w.runs(t, "a", "other", 0)
	again, err := apply.Plan(t.Context(), j)
	require.NoError(t, err)
	assert.Equal(t, planned.Place.Members, again.Place.Members)
	assert.Equal(t, mark, apply.Mark(j.ID))
	assert.Empty(t, again.Findings)

	now, err := apply.Now(t.Context(), j, fleetplan.PlaceOf("a", planned.Place.Members))
	require.NoError(t, err)
	assert.False(t, now.Promised)
	assert.False(t, now.Arriving, "its node is there, and someone else has it")
	assert.Equal(t, "b", now.Actual.Cluster)
	assert.Contains(t, says(now), "Job goes elsewhere")

	members := slices.Clone(planned.Place.Members)
	members[0].Node = "v100[1]"
	now, err = apply.Now(t.Context(), j, fleetplan.PlaceOf("a", members))
	require.NoError(t, err)
	assert.True(t, now.Arriving, "the second node of the pool is not")

	// The next job of the same apply does not count on the place of this one.
	next, err := apply.Now(t.Context(), w.job(t, "k", 2), nil)
	require.NoError(t, err)
	assert.Equal(t, "a", next.Actual.Cluster)
}

// A job that waits for one of the same apply is told so, and is not refused.
func TestAnApplyLetsJobsWaitForEachOther(t *testing.T) {
	w := newWorld(t, "a")
	w.applying = true
	_, err := w.Now(t.Context(), w.job(t, "i", 4), nil)
	require.NoError(t, err)
	w.runs(t, "a", "i", 0, 1, 2, 3, 4, 5, 6, 7)
	waits, err := w.Now(t.Context(), w.job(t, "j", 4), nil)
	require.NoError(t, err)
	assert.Contains(t, says(waits), "warning: Job fits only if others leave: ")
}

// An apply places a job behind those before the ones that its after names, also once these were created.
func TestAfterInAChain(t *testing.T) {
	w := newWorld(t, "a", "b")
	chain := func() (jobs []fleetplan.Job) {
		jobs = []fleetplan.Job{w.job(t, "j", 3, "a", "b"), w.job(t, "k", 4, "a", "b"), w.job(t, "l", 1, "a", "b")}
		jobs[1].After, jobs[2].After = []string{jobs[0].ID}, []string{jobs[1].ID}
		return jobs
	}
	marks := map[string]string{}
	places := map[string]*fleetplan.Place{}
	for _, j := range chain() {
		places[j.ID] = w.planned(t, j).Place
		marks[j.ID] = w.Mark(j.ID)
	}
	client, err := kube.New(w.hub.Config())
	require.NoError(t, err)
	apply := fleetplan.New(client, func() bool { return true }, func(map[string]string) bool { return true })
	for _, j := range chain() {
		_, err := apply.Plan(t.Context(), j)
		require.NoError(t, err)
		assert.Equal(t, marks[j.ID], apply.Mark(j.ID), j.ID)
		j.After, j.Given = nil, nil
		_, err = apply.Now(t.Context(), j, places[j.ID])
		require.NoError(t, err)
	}
}

// Jobs that start at once, for which the plan has no place, get one each.
func TestJobsThatStartAtOnce(t *testing.T) {
	w := newWorld(t, "a")
	w.applying = true
	var all sync.WaitGroup
	answers := make([]fleetplan.Answer, 4)
	for i := range answers {
		all.Go(func() {
			answer, err := w.Now(t.Context(), w.job(t, fmt.Sprintf("j%d", i), 1), nil)
			assert.NoError(t, err)
			answers[i] = answer
		})
	}
	all.Wait()
	places := map[string]bool{}
	for _, answer := range answers {
		if assert.NotNil(t, answer.Actual) {
			places[fmt.Sprint(answer.Actual.Members[0].GPUs)] = true
		}
	}
	assert.Len(t, places, len(answers))
}

// A plan says what the queue of the hub makes of a job that its policy holds there.
func TestQueueOfTheHub(t *testing.T) {
	tree := func(most int64, gpus int64) *quota.Tree {
		limits, err := quota.New(quota.Spec{Name: "root", Min: quota.Resources{contract.ResourceTopologyGPU: 100}, Max: quota.Resources{contract.ResourceTopologyGPU: 100}, Children: []quota.Spec{
			{Name: "team", Max: quota.Resources{contract.ResourceTopologyGPU: gpus}, MaxJobs: most, Namespaces: []string{"default"}}}})
		require.NoError(t, err)
		return limits
	}
	for name, test := range map[string]struct {
		held      bool
		tree      *quota.Tree
		leaf      string
		immediate bool
		says      string
	}{
		"not held":            {false, nil, "", true, ""},
		"no tree":             {true, nil, "", false, "warning: The hub has no quota tree: Policy p has job default/j wait in the queue of the hub"},
		"no leaf":             {true, tree(0, 100), "", false, "warning: The hub has no quota for the job: "},
		"room":                {true, tree(4, 100), "team", true, ""},
		"no limit of jobs":    {true, tree(0, 100), "team", true, ""},
		"more than its quota": {true, tree(4, 3), "team", false, "error: Job exceeds its quota: The queue of the hub never lets job default/j go"},
		"behind others":       {true, tree(2, 100), "team", false, "warning: Job will wait in the queue of the hub: The queue of the hub lets 2 jobs of root/team run at a time, and default/planned, default/runs and default/waits come before job default/j."},
		"at once":             {true, tree(3, 100), "team", true, "error: Job will wait in the queue of the hub: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			for _, kind := range []string{contract.QueueKind, contract.QueueUnitKind} {
				w.hub.Put(object(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]ss.%[2]s},
  spec: {group: %[2]s, scope: Namespaced, names: {kind: %[3]s, plural: %[1]ss}, versions: [{name: v1alpha1, served: true, storage: true}]}}`, strings.ToLower(kind), contract.QueueGroup, kind)))
			}
			w.hub.Put(object(t, fmt.Sprintf(`{apiVersion: %s/v1alpha1, kind: %s, metadata: {name: q, namespace: kube-queue, annotations: {%s: root/team}}}`, contract.QueueGroup, contract.QueueKind, contract.QueuePathAnnotation)))
			for unit, phase := range map[string]contract.QueueUnitPhase{"runs": contract.UnitRunning, "waits": contract.UnitEnqueued, "over": contract.UnitSucceed, "j": contract.UnitEnqueued} {
				w.hub.Put(object(t, fmt.Sprintf(`{apiVersion: %s/v1alpha1, kind: %s, metadata: {name: %s-qu, namespace: default}, spec: {queue: q, consumerRef: {kind: ResourceBinding, name: %[3]s-pytorchjob}}, status: {phase: %[4]s}}`, contract.QueueGroup, contract.QueueUnitKind, unit, phase)))
			}
			j := w.job(t, "j", 4)
			j.Policy.Held, j.Gang.Leaf, j.Immediate = test.held, test.leaf, test.immediate
			before := w.job(t, "planned", 1)
			before.Policy.Held, before.Gang.Leaf = true, "team"
			w.planned(t, before)
			found, err := w.Queue(t.Context(), j, test.tree)
			require.NoError(t, err)
			said := says(fleetplan.Answer{Findings: found})
			if test.says == "" {
				assert.Empty(t, said)
			} else {
				assert.Contains(t, said, test.says)
			}
		})
	}
}

func TestPolicies(t *testing.T) {
	w := newWorld(t)
	_, err := w.Policy(t.Context(), "default", "p")
	require.ErrorIs(t, err, fleetplan.ErrNoHub)
	w.PlanPolicy("default", "p", nil)
	_, err = w.Policy(t.Context(), "default", "p")
	require.ErrorIs(t, err, fleetplan.ErrPolicyOpen)
	w.PlanPolicy("default", "p", object(t, `{metadata: {name: p}, spec: {schedulerName: s, suspension: {scheduling: true}, resourceSelectors: [
  {apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: one}, {apiVersion: kubeflow.org/v1, kind: MPIJob, labelSelector: {matchLabels: {team: a}}}, {apiVersion: batch/v1, kind: Job}]}}`))
	p, err := w.Policy(t.Context(), "default", "p")
	require.NoError(t, err)
	assert.Equal(t, "s", p.Scheduler)
	assert.True(t, p.Held)
	for name, test := range map[string]struct {
		framework job.Framework
		name      string
		labels    map[string]string
		has       bool
	}{
		"by name":                  {job.PyTorch, "one", nil, true},
		"another name":             {job.PyTorch, "two", nil, false},
		"by labels":                {job.MPI, "x", map[string]string{"team": "a", "more": ""}, true},
		"other labels":             {job.MPI, "x", nil, false},
		"all of a kind":            {job.Batch, "x", nil, true},
		"a kind that has no entry": {job.JobSet, "x", nil, false},
	} {
		assert.Equal(t, test.has, p.Has(test.framework.GVK(), test.name, test.labels), name)
	}
}

// A job that several policies select is sent by the one that comes first, whichever it names.
func TestAnotherPolicyTakesTheJob(t *testing.T) {
	for name, test := range map[string]struct {
		other string
		taken bool
	}{
		"a later name":       {`{metadata: {name: z}, spec: {resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]}}`, false},
		"an earlier name":    {`{metadata: {name: a}, spec: {resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]}}`, true},
		"a narrower one":     {`{metadata: {name: z}, spec: {resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: j}]}}`, true},
		"a higher priority":  {`{metadata: {name: z}, spec: {priority: 1, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]}}`, true},
		"a lower priority":   {`{metadata: {name: a}, spec: {priority: -1, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: j}]}}`, false},
		"one of other jobs":  {`{metadata: {name: a}, spec: {priority: 1, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: k}]}}`, false},
		"one of other kinds": {`{metadata: {name: a}, spec: {priority: 1, resourceSelectors: [{apiVersion: batch/v1, kind: Job}]}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			w.PlanPolicy("default", "p", object(t, `{metadata: {name: p}, spec: {schedulerName: gpuplan-fleet-scheduler, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]}}`))
			rival := object(t, test.other)
			w.PlanPolicy("default", rival.GetName(), rival)
			j := w.job(t, "j", 1, "a")
			policy, err := w.Policy(t.Context(), "default", "p")
			require.NoError(t, err)
			j.Policy = policy
			answer := w.planned(t, j)
			assert.Equal(t, !test.taken, answer.Promised)
			if test.taken {
				assert.Contains(t, says(answer), "warning: Another policy takes the job: Policies p and "+rival.GetName()+" both select job default/j, and the hub sends it by "+rival.GetName()+": ")
			} else {
				assert.Empty(t, says(answer))
			}
		})
	}
}

// A policy is found in the group that the hub serves: ACK's, Karmada's, or either of both.
func TestPolicyInEachSpelling(t *testing.T) {
	for _, groups := range [][]string{{contract.ACKPolicyGroup}, {contract.KarmadaPolicyGroup}, {contract.ACKPolicyGroup, contract.KarmadaPolicyGroup}} {
		for _, in := range groups {
			w := newWorld(t)
			for _, group := range groups {
				w.hub.Put(object(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: propagationpolicies.%[1]s},
  spec: {group: %[1]s, scope: Namespaced, names: {kind: PropagationPolicy, plural: propagationpolicies}, versions: [{name: v1alpha1, served: true, storage: true}]}}`, group)))
			}
			w.hub.Put(object(t, `{apiVersion: `+in+`/v1alpha1, kind: PropagationPolicy, metadata: {name: p, namespace: default}, spec: {schedulerName: s}}`))
			p, err := w.Policy(t.Context(), "default", "p")
			require.NoError(t, err, "%v, in %s", groups, in)
			assert.Equal(t, "s", p.Scheduler)
			_, err = w.Policy(t.Context(), "default", "other")
			assert.True(t, kube.IsNotFound(err), err)
		}
	}
}
