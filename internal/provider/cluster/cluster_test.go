package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

func put(t *testing.T, server *kubetest.Server, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	server.Put(&unstructured.Unstructured{Object: content})
}

func node(name, pool string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}},
	}
}

func pod(namespace, name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"job": "a"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func names[T metav1.Object](objects []T) []string {
	var out []string
	for _, o := range objects {
		out = append(out, o.GetName())
	}
	return out
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A class that the walk has listed costs no request; one that it has not is asked for by its name until it is there.
func TestStorageClass(t *testing.T) {
	putClass := func(server *kubetest.Server, name string) {
		put(t, server, &storagev1.StorageClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "x",
		})
	}
	for name, test := range map[string]struct {
		refused string // what the user may not list
		gets    int    // of a class that is there from the beginning
	}{
		"listed":          {"", 0},
		"classes are not": {"/storageclasses", 1},
		"nothing can be":  {"/nodes", 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.Start(t)
			putClass(server, "early")
			config := server.Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					if test.refused != "" && strings.HasSuffix(r.URL.Path, test.refused) {
						return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, nil
					}
					return next.RoundTrip(r)
				})
			})
			client, err := kube.New(config)
			require.NoError(t, err)
			c := cluster.New(client, func() bool { return false })
			find := func(name string) error {
				class, err := c.StorageClass(t.Context(), name)
				if err == nil {
					assert.Equal(t, name, class.Name)
				}
				return err
			}
			require.NoError(t, find("early"))
			require.NoError(t, find("early"))
			assert.Equal(t, test.gets, server.Gets()["storageclasses"])

			assert.True(t, kube.IsNotFound(find("late")))
			putClass(server, "late")
			require.NoError(t, find("late"))
			require.NoError(t, find("late"))
			assert.Equal(t, test.gets+2, server.Gets()["storageclasses"])
		})
	}
}

// What others have looked at a moment ago does not show what has gone since.
func TestWhatHasGoneIsSeen(t *testing.T) {
	server := kubetest.Start(t)
	put(t, server, node("n1", "x"))
	put(t, server, pod("default", "runs", "n1", corev1.PodRunning))
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	c := cluster.New(client, func() bool { return true })
	pods := func() []string {
		snapshot, err := c.Recent(t.Context(), time.Hour)
		require.NoError(t, err)
		var names []string
		for _, p := range snapshot.Pods {
			names = append(names, p.Name)
		}
		return names
	}
	assert.Equal(t, []string{"runs"}, pods())
	require.NoError(t, client.Delete(t.Context(), corev1.SchemeGroupVersion.WithKind("Pod"), "default", "runs"))
	assert.Equal(t, []string{"runs"}, pods(), "as it was")
	c.Changed()
	assert.Empty(t, pods())
}

// However many resources look, and however they look, each kind is listed once.
func TestOneListPerKind(t *testing.T) {
	server := kubetest.Start(t)
	put(t, server, node("n1", "x"))
	put(t, server, node("n2", "y"))
	put(t, server, pod("default", "runs", "n1", corev1.PodRunning))
	put(t, server, pod("default", "done", "n1", corev1.PodSucceeded))
	put(t, server, pod("other", "elsewhere", "n2", corev1.PodRunning))
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	changing := false
	c := cluster.New(client, func() bool { return changing })

	look := func() {
		snapshot, err := c.Snapshot(t.Context())
		if !assert.NoError(t, err) {
			return
		}
		view := snapshot.View()
		assert.Equal(t, []string{"n1", "n2"}, view.Nodes())
		view.RemoveNode("n1") // the copy is the caller's
		assert.Len(t, snapshot.Hardware([]string{"n2", "n1", "none"}), 2)
		assert.Len(t, snapshot.PodsOn("n1"), 1, "what has finished holds nothing")
		pods, err := c.Pods(t.Context(), "default", labels.Set{"job": "a"}.AsSelector())
		assert.NoError(t, err)
		assert.Equal(t, []string{"done", "runs"}, names(pods))
		nodes, err := c.Nodes(t.Context(), labels.Set{"pool": "y"}.AsSelector())
		assert.NoError(t, err)
		assert.Equal(t, []string{"n2"}, names(nodes))
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(look)
	}
	all.Wait()
	assert.Equal(t, map[string]int{"nodes": 1, "pods": 1, "poddisruptionbudgets": 1, "jobs": 1, "priorityclasses": 1, "daemonsets": 1, "limitranges": 1, "persistentvolumes": 1, "persistentvolumeclaims": 1, "storageclasses": 1, "csinodes": 1, "deviceclasses": 1}, server.Lists())

	put(t, server, node("n3", "y"))
	look() // still what the walk found
	changing = true
	nodes, err := c.Nodes(t.Context(), labels.Set{"pool": "y"}.AsSelector())
	require.NoError(t, err)
	assert.Equal(t, []string{"n2", "n3"}, names(nodes))
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	assert.Len(t, snapshot.Nodes, 3)
	pods, err := c.Pods(t.Context(), "", labels.Everything())
	require.NoError(t, err)
	assert.Len(t, pods, 3)
}

// slow lets nobody see the nodes before all have asked.
type slow struct {
	http.RoundTripper
	all *sync.WaitGroup
}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/nodes") {
		s.all.Wait()
	}
	return s.RoundTripper.RoundTrip(req)
}

// Once things change, those who ask at a time share a look that began after they asked.
func TestLooksAreSharedWhileThingsChange(t *testing.T) {
	server := kubetest.Start(t)
	const looks = 100
	var asked, answered sync.WaitGroup
	asked.Add(looks)
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return slow{next, &asked} })
	client, err := kube.New(config)
	require.NoError(t, err)
	c := cluster.New(client, func() bool { return true })
	for i := range looks {
		answered.Go(func() {
			name := fmt.Sprintf("n%d", i)
			put(t, server, node(name, "x"))
			asked.Done()
			snapshot, err := c.Snapshot(t.Context())
			if assert.NoError(t, err) {
				assert.Len(t, snapshot.Hardware([]string{name}), 1, "what was there before the question is seen")
			}
		})
	}
	answered.Wait()
	assert.Less(t, server.Lists()["nodes"], looks/2)
}

func TestFailureIsRemembered(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	c := cluster.New(client, func() bool { return false })
	_, err = c.Snapshot(t.Context())
	require.Error(t, err)
	_, again := c.Snapshot(t.Context())
	assert.Same(t, err, again)

	client, err = kube.New(server.Config())
	require.NoError(t, err)
	c = cluster.New(client, func() bool { return false })
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Snapshot(cancelled)
	require.Error(t, err, "nobody waits for the answer any more")
	_, err = c.Snapshot(t.Context())
	assert.NoError(t, err, "which says nothing about the cluster")
}

// A quota tree that cannot be used is the concern of those who need it.
func TestBrokenTree(t *testing.T) {
	server := kubetest.Start(t)
	define := func(object map[string]any) { server.Put(&unstructured.Unstructured{Object: object}) }
	define(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": contract.QuotaTreeResource + "." + contract.QuotaTreeGroup},
		"spec": map[string]any{
			"group": contract.QuotaTreeGroup, "scope": "Namespaced", "versions": []any{map[string]any{"name": contract.QuotaTreeVersion, "served": true}},
			"names": map[string]any{"kind": contract.QuotaTreeKind, "plural": contract.QuotaTreeResource},
		},
	})
	tree := func(limit string) {
		define(map[string]any{
			"apiVersion": contract.QuotaTreeGroup + "/" + contract.QuotaTreeVersion, "kind": contract.QuotaTreeKind,
			"metadata": map[string]any{"namespace": contract.QuotaTreeNamespace, "name": contract.QuotaTreeName},
			"spec":     map[string]any{"root": map[string]any{"name": "root", "namespaces": []any{"held"}, "min": map[string]any{"cpu": limit}, "max": map[string]any{"cpu": limit}}},
		})
	}
	look := func() *cluster.Snapshot {
		client, err := kube.New(server.Config())
		require.NoError(t, err)
		snapshot, err := cluster.New(client, func() bool { return false }).Snapshot(t.Context())
		require.NoError(t, err)
		return snapshot
	}
	tree("much")
	snapshot := look()
	_, err := snapshot.Quota()
	assert.ErrorContains(t, err, "much")
	assert.NotNil(t, snapshot.View().Quota(), "as for the scheduler, by which nobody takes from others")
	live := snapshot.Live(func(map[string]string) bool { return false })
	assert.NotNil(t, live.Limits)
	for _, test := range []struct {
		gang   placement.Gang
		queued bool
		barred bool
	}{
		{placement.Gang{ID: "held/j"}, false, true},
		{placement.Gang{ID: "other/j"}, false, false},
		{placement.Gang{ID: "other/j", Leaf: "a"}, false, true},
		{placement.Gang{ID: "other/j"}, true, true},
	} {
		assert.Equal(t, test.barred, live.Barred(test.gang, test.queued) != "", "%+v", test)
	}

	tree("4")
	snapshot = look()
	limits, err := snapshot.Quota()
	require.NoError(t, err)
	assert.NotNil(t, limits)
	assert.Empty(t, snapshot.Barred(placement.Gang{ID: "held/j", Leaf: "a"}, true))
}

// A node that has only just joined counts as ready, whatever of it is still on its way; one
// that has been there for long does not, and what people ask for holds for both.
func TestNodesThatHaveJustJoined(t *testing.T) {
	const drained = "drained"
	for name, test := range map[string]struct {
		age  time.Duration
		left []string
	}{
		"just joined":     {3 * time.Second, []string{drained}},
		"minutes ago":     {4 * time.Minute, []string{drained}},
		"out of order":    {6 * time.Minute, []string{drained, corev1.TaintNodeNotReady, corev1.TaintNodeNetworkUnavailable, "node.cloudprovider.kubernetes.io/uninitialized"}},
		"for a long time": {1000 * time.Hour, []string{drained, corev1.TaintNodeNotReady, corev1.TaintNodeNetworkUnavailable, "node.cloudprovider.kubernetes.io/uninitialized"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.Start(t)
			n := node("n1", "x")
			n.CreationTimestamp = metav1.NewTime(time.Now().Add(-test.age))
			for _, key := range []string{drained, corev1.TaintNodeNotReady, corev1.TaintNodeNetworkUnavailable, "node.cloudprovider.kubernetes.io/uninitialized"} {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
			put(t, server, n)
			client, err := kube.New(server.Config())
			require.NoError(t, err)
			c := cluster.New(client, func() bool { return false })
			snapshot, err := c.Snapshot(t.Context())
			require.NoError(t, err)
			hardware := snapshot.Hardware([]string{"n1"})
			require.Len(t, hardware, 1)
			var keys []string
			for _, taint := range hardware[0].Taints {
				keys = append(keys, taint.Key)
			}
			assert.ElementsMatch(t, test.left, keys)
		})
	}
}
