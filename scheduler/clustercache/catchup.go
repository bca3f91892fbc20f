package clustercache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
)

const (
	// boundPods selects the pods that hold room on nodes.
	boundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	// catchUpInterval is the pause between two looks at a pod that the cache does not know as bound.
	catchUpInterval = 100 * time.Millisecond
	// catchUpLimit is how long a scheduler that begins to lead waits for its watch. API servers
	// report progress to watches at least once a minute.
	catchUpLimit = time.Minute
)

// CatchUp waits until the cache has seen all bindings that the API server has when it is called. The
// watch of a scheduler that takes over from another may lag behind the last bindings of that one, and
// what the cache takes for free would be given twice. The error says that the API server did not
// answer, or that its watch did not tell, within a minute.
func (c *Cache) CatchUp(ctx context.Context, client metadata.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	bound, err := listBound(ctx, pods, "")
	if err != nil {
		return err
	}
	for _, pod := range bound {
		seen := func(ctx context.Context) (bool, error) {
			if c.bound(pod.UID) {
				return true, nil
			}
			now, err := listBound(ctx, pods.Namespace(pod.Namespace), ",metadata.name="+pod.Name)
			return !slices.ContainsFunc(now, func(p metav1.PartialObjectMetadata) bool { return p.UID == pod.UID }), err // it may have ended
		}
		if err := wait.PollUntilContextCancel(ctx, catchUpInterval, true, seen); err != nil {
			return fmt.Errorf("the API server has bound pod %s/%s, and its watch has not told: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// listBound lists the pods that are bound now. It asks again until ctx ends.
func listBound(ctx context.Context, pods metadata.ResourceInterface, and string) (bound []metav1.PartialObjectMetadata, err error) {
	ended := wait.PollUntilContextCancel(ctx, catchUpInterval, true, func(ctx context.Context) (bool, error) {
		var list *metav1.PartialObjectMetadataList
		if list, err = pods.List(ctx, metav1.ListOptions{FieldSelector: boundPods + and}); list != nil {
			bound = list.Items
		}
		return err == nil, nil
	})
	if ended != nil {
		return nil, fmt.Errorf("list the pods that are bound: %w", cmp.Or(err, ended))
	}
	return bound, nil
}

// bound reports whether the cache knows a pod as bound.
func (c *Cache) bound(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.state.Pod(uid)
	return ok && pod.Bound()
}
