package fleet

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clientfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

// A cluster takes no new job as long as its picture lacks the place of one that was sent there before.
func TestPlacesThatAreNotKnownYet(t *testing.T) {
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	c := newController(t.Context(), client)
	for name, text := range map[string]string{
		"sent":    `{metadata: {name: sent, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}, clusters: [{name: a}]}}`,
		"known":   `{metadata: {name: known, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}, clusters: [{name: b}]}}`,
		"waiting": `{metadata: {name: waiting, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}}}`,
	} {
		c.setBinding(t.Context(), object(t, text))
		c.sent["default/"+name] = name == "known"
	}
	assert.Equal(t, map[string]bool{"a": true}, c.incomplete())
	c.sent["default/sent"] = true
	assert.Empty(t, c.incomplete())

	m := newMember(t)
	m.end = func() {}
	c.members["b"] = m
	c.forget("b", m)
	assert.Equal(t, map[string]bool{"b": true}, c.incomplete(), "the next picture of the cluster lacks it")
	c.removeBinding(object(t, `{metadata: {name: known, namespace: default}}`))
	assert.Empty(t, c.incomplete())
}

// A hub whose clusters are served by another API server than its own, as Karmada's is, has no CRD of them.
func TestClustersWithoutACRD(t *testing.T) {
	hub, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	cluster := object(t, `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m}}`)
	hub.Dynamic = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{clusters: "ClusterList"}, cluster)
	c := newController(t.Context(), hub)
	known, err := c.followClusters(t.Context())
	require.NoError(t, err)
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), known))
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Contains(t, c.clusters, "m")
}

// forbids is an API server that lets nobody read the objects of a group.
type forbids struct {
	http.RoundTripper
	group string
}

func (f forbids) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/apis/"+f.group+"/v1/namespaces/") {
		body := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader(body)), Header: header, Request: r}, nil
	}
	return f.RoundTripper.RoundTrip(r)
}

// Of a job whose object cannot be read, as of a kind that is none of jobs and came with a policy, nobody knows the place. No others wait
// for it.
func TestAJobOfWhichNothingIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		kind, forbidden string
	}{
		"it has gone":        {kind: jobsText},
		"no such kind":       {},
		"it may not be read": {kind: jobsText, forbidden: "kubeflow.org"},
	} {
		t.Run(name, func(t *testing.T) {
			w, server := newHubWorld(t, "{}"), kubetest.Start(t)
			if test.kind != "" {
				server.Put(object(t, test.kind))
			}
			config := server.Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				if test.forbidden == "" {
					return next
				}
				return forbids{next, test.forbidden}
			})
			client, err := kube.New(config)
			require.NoError(t, err)
			w.controller.hub = client
			w.setBinding(t.Context(), object(t, bindingText("placement: {}, clusters: [{name: m}]")))
			require.Equal(t, map[string]bool{"m": true}, w.incomplete())
			require.NoError(t, w.reconcile(t.Context(), "default/a"))
			assert.Empty(t, w.incomplete())
		})
	}
}

// Nor do others wait for one that cannot be read for a while.
func TestAJobThatCannotBeReadForAWhile(t *testing.T) {
	w := newHubWorld(t, "{}") // no hub answers
	w.setBinding(t.Context(), object(t, bindingText("placement: {}, clusters: [{name: m}]")))
	for range unreadAfter {
		require.Error(t, w.reconcile(t.Context(), "default/a"))
		require.Equal(t, map[string]bool{"m": true}, w.incomplete())
		w.work.AddRateLimited("default/a")
	}
	require.Error(t, w.reconcile(t.Context(), "default/a"))
	assert.Empty(t, w.incomplete())
}

// A job that has a place nowhere is told so, and of a cluster that cannot be followed, or not for a while, why nobody knows.
func TestClustersOfWhichNothingIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*hubWorld)
		told   string
	}{
		"it is looked at":    {change: func(w *hubWorld) { w.m.began = time.Now() }},
		"it does not answer": {change: func(w *hubWorld) { w.m.began = time.Now().Add(-quiet) }, told: "m: its state is not known yet"},
		"nobody has tried":   {change: func(w *hubWorld) { delete(w.members, "m") }},
		"nobody knows how":   {change: func(w *hubWorld) { delete(w.members, "m"); w.follow(t) }, told: "m: it cannot be followed: the hub does not say how it is reached: its Cluster needs an apiEndpoint and a secretRef, as those of mode Push have them"},
		"its credentials are wrong": {change: func(w *hubWorld) {
			delete(w.members, "m")
			w.controller.hub.Typed = clientfake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "s", Name: "m"}, Data: map[string][]byte{"token": []byte("t"), "caBundle": []byte("none")}})
			w.setCluster(t.Context(), object(t, strings.Replace(clusterText, "status:", `spec: {apiEndpoint: "https://127.0.0.1:1", secretRef: {namespace: s, name: m}}, status:`, 1)))
			w.follow(t)
		}, told: "m: it cannot be followed: set up the connection to https://127.0.0.1:1: unable to load root certificates: unable to parse bytes as PEM block"},
		"it is none of the fleet": {change: func(w *hubWorld) {
			delete(w.members, "m")
			w.follow(t)
			w.removeCluster(object(t, clusterText))
			w.follow(t)
		}, told: "the fleet has no clusters"},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newHubWorld(t, "{}"), object(t, jobText)
			w.m.synced.Store(false)
			test.change(w)
			require.NoError(t, w.decide(t, o))
			b, err := w.hub.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			said, err := bindingOf(b)
			require.NoError(t, err)
			assert.Equal(t, test.told, said.said())
			assert.True(t, w.waiting["default/a"])
		})
	}
}

// follow has the controller follow cluster m as the hub says, which may fail.
func (w *hubWorld) follow(t *testing.T) {
	t.Helper()
	_ = w.connect(t.Context(), "m")
}

// A cluster that cannot be read is not one that was removed: a job may run there.
func TestAClusterThatCannotBeRead(t *testing.T) {
	w := newHubWorld(t, "{}")
	w.setCluster(t.Context(), object(t, `{metadata: {name: m}, spec: {zones: 1}}`))
	b, err := bindingOf(object(t, bindingText("placement: {}, gracefulEvictionTasks: [{fromCluster: m}]")))
	require.NoError(t, err)
	assert.NotEmpty(t, w.leaves(t.Context(), b, object(t, jobText), newToCome(gang(t, "a", 2, 1))))
}

// Sums over the nodes of a cluster, which its hub writes all the time, have no job tried again.
func TestWhatCountsOfACluster(t *testing.T) {
	w := newHubWorld(t, "{}")
	w.drain()
	changed := func(text string) bool {
		t.Helper()
		w.setCluster(t.Context(), object(t, text))
		defer w.drain()
		return w.work.Len() > 1 // beside how it is reached
	}
	const sums = `, nodeSummary: {totalNum: 7}, resourceSummary: {allocated: {cpu: "3"}}}}`
	assert.False(t, changed(clusterText))
	assert.False(t, changed(strings.TrimSuffix(clusterText, "}}")+sums))
	for old, now := range map[string]string{
		"metadata: {name: m}": "metadata: {name: m, labels: {tier: gpu}}", `status: "True"`: `status: "False"`, "kind: PyTorchJob": "kind: MPIJob", "status: {cond": "spec: {taints: [{key: a, effect: NoSchedule}]}, status: {cond",
	} {
		assert.True(t, changed(strings.Replace(clusterText, old, now, 1)), now)
		assert.True(t, changed(clusterText))
	}
}

// Jobs that wait are tried again in the order in which they came.
func TestTheOrderOfJobsThatWait(t *testing.T) {
	w := newHubWorld(t, "{}")
	for name, at := range map[string]string{"b": "2026-01-01T00:00:02Z", "c": "2026-01-01T00:00:01Z", "a10": "2026-01-01T00:00:03Z", "a9": "2026-01-01T00:00:03Z"} {
		w.setBinding(t.Context(), object(t, strings.Replace(bindingText("placement: {}"), "name: a,", "name: "+name+", creationTimestamp: \""+at+"\",", 1)))
		w.waiting["default/"+name] = true
	}
	w.drain()
	w.mu.Lock()
	w.retry()
	w.mu.Unlock()
	var order []string
	for range 4 {
		key, _ := w.work.Get()
		order = append(order, key)
		w.work.Done(key)
	}
	assert.Equal(t, []string{"default/c", "default/b", "default/a9", "default/a10"}, order)
}

// A job that nobody can read is told so while its policy holds it, too: the queue of the hub cannot take it either.
func TestJobsThatCannotBeRead(t *testing.T) {
	const trainJobs = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: trainjobs.trainer.kubeflow.org},
  spec: {group: trainer.kubeflow.org, scope: Namespaced, names: {kind: TrainJob, plural: trainjobs}, versions: [{name: v1alpha1, served: true, storage: true}]}}`
	for held, says := range map[string]string{
		"":                                 "a TrainJob has its pods in a TrainingRuntime",
		", suspension: {scheduling: true}": "its policy holds it for the queue of the hub, which cannot take it: a TrainJob has its pods in a TrainingRuntime",
	} {
		w := newHubWorld(t, "{}")
		server := kubetest.Start(t)
		server.Put(object(t, trainJobs))
		server.Put(object(t, `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a, namespace: default}, spec: {runtimeRef: {name: a}}}`))
		b := object(t, strings.NewReplacer("kubeflow.org/v1,", "trainer.kubeflow.org/v1alpha1,", "kind: PyTorchJob", "kind: TrainJob").Replace(bindingText("placement: {}"+held)))
		server.Put(object(t, bindingsText))
		b.SetResourceVersion("")
		server.Put(b)
		client, err := kube.New(server.Config())
		require.NoError(t, err)
		w.controller.hub = client
		stored, err := client.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		w.setBinding(t.Context(), stored)
		require.NoError(t, w.reconcile(t.Context(), "default/a"))
		stored, err = client.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		told, err := bindingOf(stored)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(told.said(), says), told.said())
	}
}
