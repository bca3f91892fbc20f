package clustercache

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// A scheduler that begins to lead knows all bindings of the one before it.
func TestCatchUp(t *testing.T) {
	pod := func(name string, changes ...podtest.Change) *corev1.Pod { return podtest.New(name, changes...) }
	for name, test := range map[string]struct {
		// known are the pods that the cache has, bound those that the API server has bound.
		known []*corev1.Pod
		bound []*corev1.Pod
		// later happens after a second.
		later func(c *Cache, ended *atomic.Bool)
		// failures are so many lists that fail.
		failures int
		took     time.Duration
		want     string
	}{
		"nothing is bound":     {known: []*corev1.Pod{pod("a")}},
		"all are known":        {known: []*corev1.Pod{pod("a", podtest.OnNode("n"))}, bound: []*corev1.Pod{pod("a")}},
		"the watch lags":       {known: []*corev1.Pod{pod("a")}, bound: []*corev1.Pod{pod("a")}, later: func(c *Cache, _ *atomic.Bool) { c.SetPod(pod("a", podtest.OnNode("n"))) }, took: time.Second},
		"the pod ends":         {known: []*corev1.Pod{pod("a")}, bound: []*corev1.Pod{pod("a")}, later: func(_ *Cache, ended *atomic.Bool) { ended.Store(true) }, took: time.Second},
		"no answer at first":   {known: []*corev1.Pod{pod("a", podtest.OnNode("n"))}, bound: []*corev1.Pod{pod("a")}, failures: 10, took: time.Second},
		"the watch is silent":  {bound: []*corev1.Pod{pod("a")}, took: catchUpLimit, want: "the API server has bound pod ns/a, and its watch has not told"},
		"no answer whatsoever": {failures: 1 << 30, took: catchUpLimit, want: "list the pods that are bound: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New()
				for _, p := range test.known {
					c.SetPod(p)
				}
				client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
				failures, ended := test.failures, new(atomic.Bool)
				client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					assert.Contains(t, action.(clienttesting.ListActionImpl).ListRestrictions.Fields.String(), "spec.nodeName!=")
					if failures--; failures >= 0 {
						return true, nil, errors.New("no answer")
					}
					list := &metav1.List{}
					for _, p := range test.bound {
						if !ended.Load() {
							list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta}})
						}
					}
					return true, list, nil
				})
				if test.later != nil {
					time.AfterFunc(time.Second, func() { test.later(c, ended) })
				}
				began := time.Now()
				err := c.CatchUp(t.Context(), client)
				if test.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, test.want)
				}
				assert.InDelta(t, test.took, time.Since(began), float64(catchUpInterval))
			})
		})
	}
}
