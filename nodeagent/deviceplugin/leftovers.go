package deviceplugin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// toEnd is how long beyond their grace period the containers of a pod may take to end.
const toEnd = time.Minute

// leftovers are pods that the API server has no more while their containers may still run: who deletes a pod by force does not wait for
// the kubelet, and this ends the containers when it learns of it.
type leftovers struct {
	mu   sync.Mutex
	pods map[types.UID]leftover
}

type leftover struct {
	pod *corev1.Pod
	// until is when its containers have ended as far as is known where the runtime does not tell.
	until time.Time
}

func (l *leftovers) has(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.pods[uid]
	return ok
}

// leave keeps a pod that was deleted for as long as its containers may run. What it shares it leaves now: a pod that is deleted by force
// has no time.
func (a *Agent) leave(pod *corev1.Pod) {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	wait := time.Duration(grace)*time.Second + toEnd
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	a.left.mu.Lock()
	defer a.left.mu.Unlock()
	a.left.pods[pod.UID] = leftover{pod, time.Now().Add(wait)}
	time.AfterFunc(wait, func() { wake(a.moved) })
}

// mayRun reports whether containers of a pod that were given GPUs may run, by the last that the API server had of it.
func (a *Agent) mayRun(pod *corev1.Pod) bool {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for name := range a.confirmer.of(pod).Containers {
		if !slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name && s.State.Terminated != nil }) {
			return true
		}
	}
	return false
}

// runs reports whether the runtime has containers of a pod that run.
func (a *Agent) runs(pod *corev1.Pod) bool {
	return a.runtime.Asked() && a.runtime.Runs(uidOfNode(pod))
}

// present are the pods of the node, with those that are gone while their containers may still run.
func (a *Agent) present() []*corev1.Pod {
	a.left.mu.Lock() // before the list is read, which loses a pod when it is here
	defer a.left.mu.Unlock()
	pods := a.pods.list()
	for uid, l := range a.left.pods {
		switch again := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return uidOfNode(p) == uidOfNode(l.pod) }); {
		case again >= 0 && pods[again].UID == uid: // it is about to leave the list
			continue
		case again >= 0: // a static pod, of which the kubelet has made the mirror again
		case a.runs(l.pod), !a.runtime.Asked() && time.Now().Before(l.until):
			pods = append(pods, l.pod)
			continue
		}
		delete(a.left.pods, uid)
		a.confirmer.forget(uid)
	}
	return pods
}

// ended reports whether a pod has ended by now, for the API server and on the node: one that is said to have failed, while the node could
// not be reached, may still run. listed are the pods that the kubelet lists with devices of this plugin.
func (a *Agent) ended(ctx context.Context, pod *corev1.Pod, listed sets.Set[types.NamespacedName]) bool {
	if a.left.has(pod.UID) || a.runs(pod) {
		return false
	}
	name := nameOf(pod)
	if inventory.Finished(pod) && !listed.Has(name) {
		return true
	}
	live, err := a.pods.live(ctx, name, askTimeout)
	switch {
	case errors.Is(err, errGone):
		return !listed.Has(name)
	case err != nil:
		return false
	case live.UID != pod.UID: // the kubelet lists the one that has its name
		return true
	}
	return inventory.Finished(live) && !listed.Has(name)
}
