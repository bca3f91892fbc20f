package acctest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// RunWorkloads is the controller of Deployments and DaemonSets in the system
// namespace: it reports all pods as ready at once. It ends when it is stopped, at the latest
// with the test.
func (c *Cloud) RunWorkloads(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	for _, plural := range []string{"deployments", "daemonsets"} {
		resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: plural}
		changes, err := c.Kube.Dynamic.Resource(resource).Namespace(contract.SystemNamespace).Watch(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		go func() {
			defer func() { ended <- struct{}{} }()
			for event := range changes.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if ok && (event.Type == watch.Added || event.Type == watch.Modified) { // a report that is the same is no event
					err := c.report(ctx, resource, object)
					assert.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
				}
			}
		}()
	}
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

func (c *Cloud) report(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	status := map[string]any{"replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas}
	if resource.Resource == "daemonsets" {
		status = map[string]any{"desiredNumberScheduled": int64(0), "updatedNumberScheduled": int64(0), "numberReady": int64(0)}
	}
	status["observedGeneration"] = object.GetGeneration()
	update := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	update.SetGroupVersionKind(object.GroupVersionKind())
	update.SetNamespace(object.GetNamespace())
	update.SetName(object.GetName())
	_, err := c.Kube.Dynamic.Resource(resource).Namespace(object.GetNamespace()).ApplyStatus(ctx, object.GetName(), update,
		metav1.ApplyOptions{FieldManager: "controller", Force: true})
	return err
}
