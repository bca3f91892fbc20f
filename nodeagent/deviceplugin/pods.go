package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
)

// liveTimeout bounds the wait for the API server's answer about one pod, within the 30 seconds that the kubelet waits.
const liveTimeout = 5 * time.Second

// askTimeout is the same for the container runtime, which waits 2 seconds.
const askTimeout = time.Second

// pods are those of one node, by a watch.
type pods struct {
	client *kube.Client
	synced cache.InformerSynced

	mu     sync.Mutex
	byName map[types.NamespacedName]*corev1.Pod
}

// followPods follows the pods of a node until ctx ends; changed is called after each change, and gone with each pod
// that is deleted, while the list still has it.
func followPods(ctx context.Context, client *kube.Client, node string, changed func(), gone func(*corev1.Pod)) (*pods, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client.Typed, 0, informers.WithTransform(follow.Trim),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			follow.Latest(options)
			options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
			if options.TimeoutSeconds != nil {
				*options.TimeoutSeconds = cluster.WatchSeconds
			}
		}))
	informer := factory.Core().V1().Pods().Informer()
	p := &pods{client: client, byName: map[types.NamespacedName]*corev1.Pod{}}
	registration, err := informer.AddEventHandler(follow.On(func(pod *corev1.Pod) {
		p.set(pod, pod)
		changed()
	}, func(pod *corev1.Pod) {
		gone(pod)
		p.set(pod, nil)
		changed()
	}))
	if err != nil {
		return nil, fmt.Errorf("follow the pods of node %s: %w", node, err)
	}
	p.synced = registration.HasSynced
	go informer.RunWithContext(ctx)
	return p, nil
}

// set has now in the place of a pod, nil for none.
func (p *pods) set(pod, now *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now == nil {
		delete(p.byName, nameOf(pod))
		return
	}
	p.byName[nameOf(pod)] = now
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// list returns the pods of the node.
func (p *pods) list() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.byName))
}

// get returns a pod as the API server has it now: the watch may still have one of the same name that was deleted, with
// another record. Where the API server does not tell it is the watch's, when served says so of its UID, so that containers can
// start again meanwhile.
func (p *pods) get(ctx context.Context, name types.NamespacedName, served func(types.UID) bool) (*corev1.Pod, error) {
	pod, err := p.live(ctx, name, liveTimeout)
	if err == nil || errors.Is(err, errGone) {
		return pod, err
	}
	if known := p.known(name); known != nil && served(known.UID) {
		return known, nil
	}
	return nil, err
}

// of returns the pod of a UID, as the watch has it, else as the API server has it now.
func (p *pods) of(ctx context.Context, name types.NamespacedName, uid types.UID) (*corev1.Pod, error) {
	if known := p.known(name); known != nil && uidOfNode(known) == uid {
		return known, nil
	}
	pod, err := p.live(ctx, name, askTimeout)
	if err == nil && uidOfNode(pod) != uid {
		return nil, fmt.Errorf("pod %s of UID %s: %w", name, uid, errGone)
	}
	return pod, err
}

// uidOfNode is the UID by which the kubelet and the runtime know a pod: of a static one, of which the API server has a mirror,
// another.
func uidOfNode(pod *corev1.Pod) types.UID {
	if static, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		return types.UID(static)
	}
	return pod.UID
}

// known returns a pod as the watch has it, nil when it has none.
func (p *pods) known(name types.NamespacedName) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name]
}

var errGone = errors.New("the pod is gone")

// live returns a pod as the API server has it now.
func (p *pods) live(ctx context.Context, name types.NamespacedName, timeout time.Duration) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pod, err := p.client.Typed.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if kube.IsNotFound(err) {
		return nil, fmt.Errorf("read pod %s: %w", name, errGone)
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	return pod, nil
}
