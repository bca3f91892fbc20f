package follow_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

var (
	crds    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets = schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "widgets"}
)

func definition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.test.dev"},
		"spec":   map[string]any{"versions": []any{map[string]any{"name": "v1", "served": true}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
}

func widget(name, uid string) *unstructured.Unstructured {
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.dev/v1", "kind": "Widget"}}
	w.SetNamespace("team")
	w.SetName(name)
	w.SetUID(types.UID(uid))
	return w
}

// present are the widgets that a handler was told of. It takes its time to hear of some.
type present struct {
	mu      sync.Mutex
	widgets map[types.UID]bool
	slow    func(*unstructured.Unstructured)
}

func (p *present) handler() cache.ResourceEventHandler {
	take := func(w *unstructured.Unstructured, there bool) {
		if there {
			p.slow(w)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.widgets[w.GetUID()] = there; !there {
			delete(p.widgets, w.GetUID())
		}
	}
	return follow.On(func(w *unstructured.Unstructured) { take(w, true) }, func(w *unstructured.Unstructured) { take(w, false) })
}

func (p *present) await(t *testing.T, want ...types.UID) {
	t.Helper()
	all := map[types.UID]bool{}
	for _, uid := range want {
		all[uid] = true
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Equal(c, all, p.widgets)
	}, time.Minute, 5*time.Millisecond)
}

// When a CRD is deleted its objects are gone, also those whose end the informer had not told of yet when
// it was stopped, and what comes with the CRD's return is new.
func TestObjectsGoWithTheirCRD(t *testing.T) {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{crds: "CustomResourceDefinitionList", widgets: "WidgetList"},
		definition(), widget("a", "a1"), widget("b", "b1"), widget("slow", "slow1"))
	watches := make(chan *watch.RaceFreeFakeWatcher, 10)
	client.PrependWatchReactor(widgets.Resource, func(k8stesting.Action) (bool, watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		watches <- w
		return true, w, nil
	})
	busy, carryOn := make(chan struct{}), make(chan struct{})
	p := &present{widgets: map[types.UID]bool{}, slow: func(w *unstructured.Unstructured) {
		if w.GetLabels()["slow"] != "" {
			close(busy)
			<-carryOn
		}
	}}
	synced, err := follow.Custom(t.Context(), client, widgets, metav1.NamespaceAll, p.handler())
	require.NoError(t, err)
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), synced))
	p.await(t, "a1", "b1", "slow1")

	// The ends of a and slow wait behind a change of slow when the CRD goes; that of b does not come at all.
	objects := <-watches
	slow := widget("slow", "slow1")
	slow.SetLabels(map[string]string{"slow": "yes"})
	objects.Modify(slow)
	<-busy
	objects.Delete(widget("a", "a1"))
	objects.Delete(widget("slow", "slow1"))
	for _, name := range []string{"a", "b", "slow"} {
		require.NoError(t, client.Tracker().Delete(widgets, "team", name))
	}
	require.NoError(t, client.Resource(crds).Delete(t.Context(), "widgets.test.dev", metav1.DeleteOptions{}))
	require.Eventually(t, objects.IsStopped, time.Minute, time.Millisecond)
	close(carryOn)
	p.await(t)

	require.NoError(t, client.Tracker().Create(widgets, widget("a", "a2"), "team"))
	_, err = client.Resource(crds).Create(t.Context(), definition(), metav1.CreateOptions{})
	require.NoError(t, err)
	p.await(t, "a2")
	assert.True(t, synced())
}
