package deviceplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// confirmer writes on pods what their containers were given. No container waits for it; what cannot be
// written is written later.
type confirmer struct {
	*Agent
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]confirmed
}

type confirmed struct {
	name  types.NamespacedName
	given contract.Confirmation
}

func newConfirmer(a *Agent) *confirmer {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](time.Second, time.Minute)
	return &confirmer{Agent: a, queue: workqueue.NewTypedRateLimitingQueue(limiter), pods: map[types.UID]confirmed{}}
}

// add notes what a container of a pod was given, beside what the pod says of its others.
func (c *confirmer) add(pod *corev1.Pod, container string, given contract.ConfirmedContainer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known(pod)
	containers := maps.Clone(known.Containers)
	if containers == nil {
		containers = map[string]contract.ConfirmedContainer{}
	}
	containers[container] = given
	known.Containers = containers
	c.pods[pod.UID] = confirmed{name: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, given: known}
	c.queue.Add(pod.UID)
}

// of returns what the containers of a pod were given on this node.
func (c *confirmer) of(pod *corev1.Pod) contract.Confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known(pod)
}

func (c *confirmer) known(pod *corev1.Pod) contract.Confirmation {
	if known, ok := c.pods[pod.UID]; ok {
		return known.given
	}
	written, _, err := contract.ConfirmationFrom(pod.Annotations)
	if err != nil || written.Node != c.Node {
		return contract.Confirmation{Node: c.Node}
	}
	maps.DeleteFunc(written.Containers, func(name string, _ contract.ConfirmedContainer) bool {
		return called(pod, name) == nil
	})
	return written
}

// forget drops a pod that is gone.
func (c *confirmer) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, uid)
}

// run writes until ctx ends.
func (c *confirmer) run(ctx context.Context) {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	for {
		uid, stopped := c.queue.Get()
		if stopped {
			return
		}
		c.mu.Lock()
		pod, ok := c.pods[uid]
		c.mu.Unlock()
		var err error
		if ok { // else it is gone
			err = c.write(ctx, uid, pod)
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("what a pod was given is not confirmed on it yet", "pod", pod.name, "error", err)
			c.queue.AddRateLimited(uid)
		} else {
			c.queue.Forget(uid)
		}
		c.queue.Done(uid)
	}
}

// write writes the annotation on the pod of that UID, and on no other of its name. It does so beside the status, so that the
// agent needs no right to change what a pod runs.
func (c *confirmer) write(ctx context.Context, uid types.UID, pod confirmed) error {
	text, err := pod.given.Annotation()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "annotations": map[string]string{contract.ConfirmedAnnotation: text},
	}})
	if err != nil {
		return fmt.Errorf("encode the patch of pod %s: %w", pod.name, err)
	}
	_, err = c.Client.Typed.CoreV1().Pods(pod.name.Namespace).Patch(ctx, pod.name.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: contract.NodeAgentName}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, and another may have its name
	}
	return err
}
