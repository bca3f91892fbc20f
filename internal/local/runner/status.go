package runner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// ContainerIDPrefix and the number of the process make the ID of a container in a
// pod's status.
const ContainerIDPrefix = "process://"

// Reasons of waiting containers, those of a kubelet.
const (
	reasonCreating     = "ContainerCreating"
	reasonCannotCreate = "CreateContainerError"
	reasonCrashLoop    = "CrashLoopBackOff"
)

// report writes the status of a pod if it differs from the one that it has.
func (r *Runner) report(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(pod.Status, status) {
		return nil
	}
	_, _, _, err := podutil.PatchPodStatus(ctx, r.client, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it was deleted meanwhile
	}
	return err
}

// failedStatus is the status of a pod that is not run.
func failedStatus(pod *corev1.Pod, message string) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = corev1.PodFailed, "Unsupported", message
	return status
}

// runningStatus is the status of a pod whose containers are in the given states, in
// the order of its spec.
func runningStatus(pod *corev1.Pod, states []containerState, now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	if status.StartTime == nil {
		status.StartTime = &metav1.Time{Time: now}
	}
	ready, started := true, false
	previous := map[string]corev1.ContainerStatus{}
	for _, c := range pod.Status.ContainerStatuses {
		previous[c.Name] = c
	}
	status.ContainerStatuses = nil
	for i, state := range states {
		container := pod.Spec.Containers[i]
		c := containerStatus(container, previous[container.Name], state)
		status.ContainerStatuses = append(status.ContainerStatuses, c)
		ready = ready && c.Ready
		started = started || c.State.Running != nil || c.RestartCount > 0
	}
	if started {
		status.Phase = corev1.PodRunning
	}
	for _, condition := range []struct {
		kind corev1.PodConditionType
		is   bool
	}{
		{corev1.PodReadyToStartContainers, true},
		{corev1.PodInitialized, true},
		{corev1.ContainersReady, ready},
		{corev1.PodReady, ready},
	} {
		setCondition(&status, condition.kind, condition.is, now)
	}
	return status
}

func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, is bool, now time.Time) {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}
	if !is {
		condition.Status, condition.Reason = corev1.ConditionFalse, "ContainersNotReady"
	}
	for i, existing := range status.Conditions {
		if existing.Type == kind {
			if existing.Status != condition.Status {
				status.Conditions[i] = condition
			}
			return
		}
	}
	status.Conditions = append(status.Conditions, condition)
}

// containerStatus is the status of a container that had the previous one.
func containerStatus(container corev1.Container, previous corev1.ContainerStatus, state containerState) corev1.ContainerStatus {
	c := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image,
		RestartCount:         previous.RestartCount,
		LastTerminationState: previous.LastTerminationState,
	}
	started := false
	c.Started = &started
	if state.Last != nil {
		c.LastTerminationState = corev1.ContainerState{Terminated: terminated(state)}
	}
	switch {
	case state.Running != nil:
		started = true
		c.ContainerID = fmt.Sprintf("%s%d", ContainerIDPrefix, state.Running.PID)
		c.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(state.StartedAt)}
		c.Ready = state.ready
		// A process that is not the one reported before takes its place.
		if previous.ContainerID != "" && previous.ContainerID != c.ContainerID {
			c.RestartCount++
		}
	case state.Stopped:
		c.ContainerID = previous.ContainerID
		c.State = c.LastTerminationState
	default:
		c.ContainerID = previous.ContainerID
		c.State.Waiting = waiting(state)
	}
	return c
}

func waiting(state containerState) *corev1.ContainerStateWaiting {
	switch {
	case state.StartError != nil:
		return &corev1.ContainerStateWaiting{Reason: reasonCannotCreate, Message: state.StartError.Error()}
	case state.BackOff > 0:
		return &corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: fmt.Sprintf("back-off %s before the next start", state.BackOff)}
	}
	return &corev1.ContainerStateWaiting{Reason: reasonCreating}
}

func terminated(state containerState) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode:  int32(state.Last.Code),
		Reason:    "Completed",
		StartedAt: metav1.NewTime(state.Last.StartedAt), FinishedAt: metav1.NewTime(state.Last.FinishedAt),
	}
	if state.Last.Code != 0 {
		t.Reason, t.Message = "Error", state.tail
	}
	return t
}
