package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// watched is the state of all pods and nodes as one watch of each tells it, so that
// waiting costs the API server nothing.
type watched struct {
	pods, nodes cache.Store
	changed     chan struct{}
}

func startWatching(t *testing.T) *watched {
	t.Helper()
	factory := informers.NewSharedInformerFactory(api(), 0)
	pods, nodes := factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()
	w := &watched{pods: pods.GetStore(), nodes: nodes.GetStore(), changed: make(chan struct{}, 1)}
	note := func() {
		select {
		case w.changed <- struct{}{}:
		default: // it will be looked at anyway
		}
	}
	for _, informer := range []cache.SharedIndexInformer{pods, nodes} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() },
		})
		require.NoError(t, err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return w
}

// await waits until check finds nothing to complain about.
func (w *watched) await(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			require.FailNowf(t, "timed out", "waiting for %s: %v", what, err)
		}
	}
}

// pod returns the pod as the watch shows it, nil while it does not.
func (w *watched) pod(p *corev1.Pod) *corev1.Pod {
	object, ok, err := w.pods.GetByKey(p.Namespace + "/" + p.Name)
	if err != nil || !ok {
		return nil
	}
	return object.(*corev1.Pod)
}

// awaitReady waits until the nodes take pods.
func (w *watched) awaitReady(t *testing.T, nodes []worldNode) {
	t.Helper()
	w.await(t, "nodes to be ready", func() error {
		for _, n := range nodes {
			object, ok, err := w.nodes.GetByKey(n.object.Name)
			if err != nil || !ok {
				return fmt.Errorf("node %s is unknown", n.object.Name)
			}
			cordon := 0
			if n.object.Spec.Unschedulable {
				cordon = 1
			}
			if taints := object.(*corev1.Node).Spec.Taints; len(taints) != len(n.object.Spec.Taints)+cordon {
				return fmt.Errorf("node %s has taints %v", n.object.Name, taints)
			}
		}
		return nil
	})
}

// addPassiveNodes makes nodes that nobody plays ([passiveNode]), and waits until they take pods.
func (s *testCluster) addPassiveNodes(w *watched, n int) {
	s.t.Helper()
	nodes := make([]worldNode, n)
	for i := range nodes {
		nodes[i] = passiveNode(fmt.Sprintf("%s-%d", s.namespace, i), s.namespace)
		s.nodes = append(s.nodes, nodes[i].object.Name)
	}
	inParallel(s.t, nodes, func(n worldNode) error { return createNode(s.t.Context(), n.object) })
	w.awaitReady(s.t, nodes)
}

// createAll creates pods, some at a time.
func (s *testCluster) createAll(pods []*corev1.Pod) {
	s.t.Helper()
	for chunk := range slices.Chunk(pods, 16) {
		inParallel(s.t, chunk, s.createPod)
	}
}

// remove deletes pods and waits until they are gone. Of a gang that loses its first members the
// scheduler may evict the others.
func (w *watched) remove(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	now := int64(0)
	inParallel(t, pods, func(p *corev1.Pod) error {
		err := api().CoreV1().Pods(p.Namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	w.await(t, "pods to be gone", func() error {
		for _, p := range pods {
			if w.pod(p) != nil {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
}

// inParallel calls f for every element at once and fails the test with their errors.
func inParallel[T any](t *testing.T, list []T, f func(T) error) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(list))
	for i, element := range list {
		group.Go(func() { errs[i] = f(element) })
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
}
