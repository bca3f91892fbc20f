// Package hooks is all that reaches into kube-scheduler where it offers no way for plugins:
// what it does about a pod that could not be scheduled, that it keeps such a pod, the moment
// before it takes the next pod, running other plugins' PreFilter, and whom its preemption chooses. A new version of Kubernetes may change any of
// it without a word, so the tests here run kube-scheduler itself, and name the version that
// they were written for.
package hooks

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Kubernetes is the version of k8s.io/kubernetes that this package was written for.
const Kubernetes = "v1.36.3"

// Handle is the framework's handle, which runs PreFilter plugins, too.
type Handle interface {
	fwk.Handle
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
}

// HandleOf returns what a framework hands to plugins as a [Handle]. The interface that
// plugins see has no PreFilter; the implementation does.
func HandleOf(handle fwk.Handle) (Handle, error) {
	h, ok := handle.(Handle)
	if !ok {
		return nil, errors.New("this framework cannot run PreFilter plugins outside of a scheduling cycle")
	}
	return h, nil
}

// FailureHandler is what kube-scheduler does about a pod whose attempt has failed.
type FailureHandler = func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time)

// OnFailure wraps what the scheduler does about a pod whose attempt has failed.
func OnFailure(s *scheduler.Scheduler, wrap func(FailureHandler) FailureHandler) {
	s.FailureHandler = wrap(s.FailureHandler)
}

// BeforeNextPod calls a function each time before the scheduler waits for the next pod. A
// scheduler that elects its leader asks for the first pod when it begins to lead.
func BeforeNextPod(s *scheduler.Scheduler, call func()) {
	next := s.NextPod
	s.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		call()
		return next(logger)
	}
}

// KeepFailed keeps pods whose attempt has failed in kube-scheduler's queue. The queue takes such
// a pod in before it notes that the attempt is over, and drops it for good when it hands it out
// in between (kubernetes/kubernetes#139186). That happens to pods that are activated while they
// are being rolled back, which members of gangs are.
func KeepFailed(s *scheduler.Scheduler) {
	handle := s.FailureHandler
	s.FailureHandler = func(ctx context.Context, profile framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		pod := info.Pod
		handle(ctx, profile, info, status, nominating, start)
		if _, queued := s.SchedulingQueue.GetPod(pod.Name, pod.Namespace); queued {
			return
		}
		pods := profile.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace)
		live, err := pods.Get(pod.Name)
		if err != nil || live.UID != pod.UID || live.Spec.NodeName != "" {
			return
		}
		s.SchedulingQueue.Update(ctx, live, live) // adds the pod, unless it is being tried again
		if now, err := pods.Get(pod.Name); err != nil || now.UID != pod.UID {
			s.SchedulingQueue.Delete(live) // it has been deleted meanwhile
		}
	}
}
