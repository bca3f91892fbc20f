// Package runner is a very small kubelet: it runs gpuplan's own programs as
// processes of this machine when their pods are bound to a node, and reports
// their state in the pods' status.
//
// The pods are those labelled app.kubernetes.io/part-of=gpuplan. The image is not
// looked at: the container's name is that of the program, which lies beside the
// platform's own. Pods of one revision of a DaemonSet share one process, which
// serves all simulated nodes; each real node has a process of its own, which finds the
// directories of its kubelet where the pod mounts them.
package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
)

// workers is how many pods are looked at side by side.
const workers = 4

// Options say where the runner finds and keeps things.
type Options struct {
	// Config is the administrator's access to the cluster.
	Config    *rest.Config
	Processes *process.Registry
	// Programs is the folder with the programs.
	Programs string
	// Dir is for the files of running pods; it is emptied at the start.
	Dir string
	// LogDir takes <container>.log.
	LogDir string
	// Hardware is the folder of hardware descriptions, for programs of DaemonSets.
	Hardware string
	// RealNode finds a real node by name; false for one that is simulated.
	RealNode func(name string) (node realnode.Node, ok bool, err error)
}

// Runner runs pods' programs.
type Runner struct {
	Options
	client kubernetes.Interface
	pods   corelisters.PodLister
	queue  workqueue.TypedRateLimitingInterface[podID]
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu sync.Mutex
	// workloads by key, and by the UID of each of their pods.
	workloads map[string]*workload
	homes     map[types.UID]*workload
}

// podID names one pod; a later pod of the same name is another one.
type podID struct {
	namespace, name string
	uid             types.UID
}

func idOf(pod *corev1.Pod) podID { return podID{pod.Namespace, pod.Name, pod.UID} }

// Start starts the runner and returns when it has seen all pods once. Pods that
// ran before are started again.
func Start(ctx context.Context, options Options) (*Runner, error) {
	if err := os.RemoveAll(options.Dir); err != nil {
		return nil, fmt.Errorf("clear the files of earlier pods: %w", err)
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for files of pods: %w", err)
	}
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, err
	}
	r := &Runner{
		Options: options, client: client,
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[podID]()),
		workloads: map[string]*workload{}, homes: map[types.UID]*workload{},
	}
	if err := r.ensureHostNode(ctx); err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = contract.PartOfLabel + "=" + contract.PartOfValue
	}))
	informer := factory.Core().V1().Pods()
	r.pods = informer.Lister()
	handler, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.enqueue,
		UpdateFunc: func(_, pod any) { r.enqueue(pod) },
		DeleteFunc: r.enqueue,
	})
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	factory.Start(runCtx.Done())
	r.ended.Go(factory.Shutdown)
	for range workers {
		r.ended.Go(func() { r.work(runCtx) })
	}
	r.ended.Go(func() { r.keepHostNodeReady(runCtx) })
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		r.Stop()
		return nil, fmt.Errorf("list pods: %w", ctx.Err())
	}
	return r, nil
}

// Stop stops all processes and returns when they have ended. The pods stay in the
// cluster as they are.
func (r *Runner) Stop() {
	r.cancel()
	r.queue.ShutDown()
	r.ended.Wait()
}

func (r *Runner) enqueue(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		r.queue.Add(idOf(pod))
	}
}

func (r *Runner) work(ctx context.Context) {
	for {
		id, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if err := r.sync(ctx, id); err != nil && ctx.Err() == nil {
			klog.Warningf("runner: pod %s/%s: %v", id.namespace, id.name, err)
			r.queue.AddRateLimited(id)
		} else {
			r.queue.Forget(id)
		}
		r.queue.Done(id)
	}
}

// sync brings one pod's process and status to what they should be.
func (r *Runner) sync(ctx context.Context, id podID) error {
	pod, err := r.pods.Pods(id.namespace).Get(id.name)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != id.uid {
		r.leave(id, 0)
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case pod.Spec.NodeName == "":
		return nil
	case pod.DeletionTimestamp != nil:
		if ending := r.leave(id, gracePeriod(pod)); ending {
			return nil
		}
		now := int64(0)
		err := r.client.CoreV1().Pods(id.namespace).Delete(ctx, id.name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &id.uid},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		r.leave(id, 0)
		return nil
	}
	if reason := unsupported(pod); reason != "" {
		return r.report(ctx, pod, failedStatus(pod, reason))
	}
	found, isReal, err := r.RealNode(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	var node *realnode.Node
	if isReal {
		node = &found
	}
	if states, joined := r.join(ctx, pod, node); joined {
		return r.report(ctx, pod, runningStatus(pod, states, time.Now()))
	}
	return nil
}

// unsupported says why the pod cannot be run here, "" when it can.
func unsupported(pod *corev1.Pod) string {
	switch {
	case pod.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		return "the local platform runs programs for good only: restartPolicy must be Always"
	case len(pod.Spec.InitContainers) > 0:
		return "the local platform runs no init containers"
	}
	return ""
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	if pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
}

func (r *Runner) logFile(container string) string {
	return filepath.Join(r.LogDir, container+".log")
}
