package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cgroup"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/mps"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/split"
)

// Enforcer keeps containers to their parts of GPUs; [mps.Enforcer] is one.
type Enforcer interface {
	// Edits returns what a container needs that may use so much of a GPU; a core percentage of 0 is no limit.
	Edits(uuid string, memoryMiB, corePercent int64) (env []string, mounts []mps.Mount, err error)
	// InUse tells which parts the containers of all pods of the node have.
	InUse(shares []mps.Share) error
	// Terminate ends what processes do on a GPU, before they are killed.
	Terminate(ctx context.Context, uuid string, belongs func(pid int) bool) error
	// States returns how the shared GPUs are, and Changed receives a value after one has changed.
	States() []mps.State
	Changed() <-chan struct{}
}

// beforeKill is how long before a pod's grace period ends its processes are taken off the GPUs that they share: who is
// killed in the middle of a kernel takes the others of the GPU with it. Until then they may save what they have.
const beforeKill = 2 * time.Second

// seen is how long the watch may take to show a pod that the API server has.
const seen = time.Minute

// sharing is what the agent remembers for the enforcer.
type sharing struct {
	mu sync.Mutex
	// starting are pods that were given their parts and that the watch may not show yet.
	starting map[types.UID]starting

	// leaving are the pods that will be taken off their GPUs, with the time of their end, and told the reasons for which GPUs cannot be shared; both
	// belong to the agent's loop.
	leaving map[types.UID]time.Time
	told    map[string]string
}

// starting is a pod that was given its parts, and since when.
type starting struct {
	pod   *corev1.Pod
	since time.Time
}

// begin has the parts of a pod in use from before its container starts.
func (s *sharing) begin(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting[pod.UID] = starting{pod, time.Now()}
}

// end leaves a pod to what the watch has of it.
func (s *sharing) end(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.starting, uid)
}

// settle leaves pods to the watch that this has shown, or that are gone before it has.
func (a *Agent) settle(ctx context.Context) {
	a.sharing.mu.Lock()
	all := slices.Collect(maps.Values(a.sharing.starting))
	a.sharing.mu.Unlock()
	for _, s := range all {
		if known := a.pods.known(nameOf(s.pod)); known != nil && known.UID == s.pod.UID {
			a.sharing.end(s.pod.UID)
			continue
		}
		if time.Since(s.since) < seen {
			continue
		}
		if live, err := a.pods.live(ctx, nameOf(s.pod), liveTimeout); errors.Is(err, errGone) || err == nil && live.UID != s.pod.UID {
			a.gone(s.pod)
		}
	}
}

// share tells the enforcer the parts of GPUs that are in use, has pods leave their GPUs before they are killed, and tells of
// GPUs that cannot be shared.
func (a *Agent) share(ctx context.Context, node *unstructured.Unstructured, status contract.GPUNodeStatus) {
	if a.Enforcer == nil {
		return
	}
	a.settle(ctx)
	if err := a.tell(ctx, status.GPUs); err != nil {
		a.Log.Error("parts of GPUs that cannot be", "error", err)
	}
	told := map[string]string{}
	for _, state := range a.Enforcer.States() {
		if told[state.UUID] = state.Reason; state.Reason != "" && state.Reason != a.sharing.told[state.UUID] {
			a.Events.Event(node, corev1.EventTypeWarning, "GPUNotShared",
				fmt.Sprintf("GPU %s cannot be shared, so that no container starts with a part of it: %s", state.UUID, state.Reason))
		}
	}
	a.sharing.told = told
}

// tell tells the enforcer the parts that are in use, and has pods leave their GPUs. No pod begins meanwhile: the enforcer would be told
// that its part is not in use after it was given.
func (a *Agent) tell(ctx context.Context, gpus []contract.GPUInfo) error {
	a.sharing.mu.Lock()
	defer a.sharing.mu.Unlock()
	pods := map[types.UID]*corev1.Pod{}
	for uid, s := range a.sharing.starting {
		pods[uid] = s.pod
	}
	for _, pod := range a.present() {
		pods[pod.UID] = pod
	}
	var inUse []mps.Share
	for uid, pod := range pods {
		ended := inventory.Finished(pod)
		if ended && !a.runs(pod) && (a.runtime.Asked() || !a.mayRun(pod)) {
			continue
		}
		of := a.sharesOf(pod, gpus)
		inUse = append(inUse, of...)
		var end time.Time // at once, for a pod that has ended before its containers
		switch {
		case len(of) == 0:
			continue
		case ended:
		case pod.DeletionTimestamp == nil:
			continue
		default:
			end = pod.DeletionTimestamp.Time
		}
		if known, ok := a.sharing.leaving[uid]; !ok || end.Before(known) { // the grace of a pod may be cut short
			a.sharing.leaving[uid] = end
			time.AfterFunc(time.Until(end.Add(-beforeKill)), func() { a.terminate(ctx, uid, of) })
		}
	}
	maps.DeleteFunc(a.sharing.leaving, func(uid types.UID, _ time.Time) bool { return pods[uid] == nil })
	return a.Enforcer.InUse(inUse)
}

// sharesOf are the parts of GPUs of a pod's containers: of the GPUs that these were given, whichever indexes they have by now.
func (a *Agent) sharesOf(pod *corev1.Pod, gpus []contract.GPUInfo) (shares []mps.Share) {
	record, ok, err := contract.AllocationFrom(pod.Annotations)
	if !ok || err != nil || len(record.Shares) == 0 {
		return nil
	}
	parts, err := split.Pod(&pod.Spec, record)
	if err != nil {
		return nil // its containers get none
	}
	given := a.confirmer.of(pod).Containers
	for container, part := range parts {
		for i, share := range part.Shares {
			info, known := gpuOf(gpus, share.GPU)
			if was := given[container]; slices.Equal(was.Shares, part.Shares) && len(was.GPUs) == len(part.Shares) {
				info.UUID, known = was.GPUs[i], true
			}
			if known {
				shares = append(shares, mps.Share{UUID: info.UUID, MemoryMiB: share.MemoryGiB << 10, CorePercent: share.CorePercent})
			}
		}
	}
	return shares
}

// terminate takes the processes of a pod off the GPUs that it shares.
func (a *Agent) terminate(ctx context.Context, pod types.UID, shares []mps.Share) {
	for _, share := range shares {
		if err := a.Enforcer.Terminate(ctx, share.UUID, func(pid int) bool { return a.ofPod(pid, pod) }); err != nil && ctx.Err() == nil {
			a.Log.Warn("a pod that ends may take others of its GPU with it", "uid", pod, "error", err)
		}
	}
}

// ofPod reports whether a process of the node is of a pod.
func (a *Agent) ofPod(pid int, pod types.UID) bool {
	return cgroup.Of(filepath.Join(a.Root, "proc"), pid).InPod(pod)
}
