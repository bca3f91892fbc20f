package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Limits of what the audit lets pass.
const (
	// bindingTime is how long a gang may be bound in part, with the start of a scheduler that was
	// killed meanwhile. A run looks for longer than that.
	bindingTime = 45 * time.Second
	// quotaDelay is how long after an edit of the quota tree the maximum before may be used.
	quotaDelay = 5 * time.Second
	// again is the pause before the API server is asked again after it did not answer.
	again = 50 * time.Millisecond
)

// audit watches every change of every pod and keeps books of its own, without the
// planner's code, of who holds what.
type audit struct {
	// nodes are the nodes that there ever were, by name.
	nodes map[string]*corev1.Node

	// leafless means that there is no quota tree, stale that gangs which have lost members are evicted.
	leafless, stale bool

	mu   sync.Mutex
	pods map[string]*corev1.Pod
	// records are those with which pods were bound, by UID; what has become of them since counts for nothing.
	records map[string]contract.Allocation
	// made and placed are, by UID, when pods appeared and were bound, by the count of changes.
	made, placed map[string]int
	changes      int
	// barred is, by the count of changes, since when the quota tree lets nothing start, 0 while it does.
	barred int
	// gangs are the declared gangs by name.
	gangs map[string]*auditedGang
	// leaves are the quota leaves with the limits of whole GPUs on their path.
	leaves map[string][]*limit
	// history are the changes of pods and what the run did, in order.
	history    []string
	violations []string
	// evictions and losses are in order; kills counts programs.
	evictions []eviction
	losses    []loss
	kills     int
	// retired counts pods of gangs that were evicted for what they have lost, altered attempts to alter records, bars
	// times in which the quota tree was invalid, launched launchers that have started.
	retired, altered, bars, launched int
}

type auditedGang struct {
	// members are all but its launcher, of which minimum are needed.
	members, minimum int
	leaf             string
	// urgent gangs have a high priority. stays means that nobody may evict it.
	urgent, stays bool
	// whole means that as many members as it needs have been bound at one time.
	whole bool
	// enough means that as many are bound now.
	enough bool
	// partial is since when only some are bound, zero while none or enough are.
	partial time.Time
	// ran is until when as many as it needs were bound, zero for never.
	ran time.Time
	// nominated are the nodes that places were held on for its pods.
	nominated map[string]bool
}

// limit is the maximum of whole GPUs at one node of the quota tree.
type limit struct {
	name string
	// old is the maximum before the last edit; min is lowered to the maximum.
	min, max, old int64
	edited        time.Time
	leaves        []string
}

func newAudit(w *world) *audit {
	a := &audit{
		nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, gangs: map[string]*auditedGang{}, leaves: map[string][]*limit{},
		records: map[string]contract.Allocation{}, made: map[string]int{}, placed: map[string]int{},
	}
	for _, n := range w.nodes {
		a.nodes[n.object.Name] = n.object
	}
	return a
}

// follow watches all pods until ctx ends, through ends and restarts of the API server.
func (a *audit) follow(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			list, err := api().CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
			if err != nil {
				time.Sleep(again)
				continue
			}
			a.relist(list.Items)
			version = list.ResourceVersion
		}
		watched, err := api().CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
			}
			time.Sleep(again)
			continue
		}
		version = a.take(watched, version)
		watched.Stop()
	}
}

// take takes in the events of a watch until it ends, and returns where to go on.
func (a *audit) take(watched watch.Interface, version string) string {
	for event := range watched.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return "" // an error, such as a version that is too old
		}
		version = pod.ResourceVersion
		switch event.Type {
		case watch.Added, watch.Modified:
			a.set(pod)
		case watch.Deleted:
			a.drop(pod)
		}
	}
	return version
}

func (a *audit) relist(pods []corev1.Pod) {
	there := map[string]bool{}
	for i := range pods {
		there[string(pods[i].UID)] = true
	}
	a.mu.Lock()
	var gone []*corev1.Pod
	for uid, pod := range a.pods {
		if !there[uid] {
			gone = append(gone, pod)
		}
	}
	a.mu.Unlock()
	for _, pod := range gone {
		a.drop(pod)
	}
	// Nobody knows the order in which these came: a stranger that has come meanwhile counts for those that come later.
	slices.SortStableFunc(pods, func(x, y corev1.Pod) int {
		return cmp.Compare(len(x.Labels[strangerLabel]), len(y.Labels[strangerLabel]))
	})
	for i := range pods {
		a.set(&pods[i])
	}
}

// holds reports whether a pod holds resources of its node.
func holds(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func (a *audit) set(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.pods[string(pod.UID)]
	a.pods[string(pod.UID)] = pod
	a.changes++
	uid := string(pod.UID)
	if before == nil {
		a.made[uid] = a.changes
	}
	if _, was := a.placed[uid]; !was && pod.Spec.NodeName != "" {
		record, _, err := contract.AllocationFrom(pod.Annotations)
		if err != nil {
			a.violation("%s: %v", pod.Name, err)
		}
		a.placed[uid], a.records[uid] = a.changes, record
	}
	bound := holds(pod) && (before == nil || !holds(before))
	switch {
	case bound:
		a.note("%s is bound to %s with %s", pod.Name, pod.Spec.NodeName, pod.Annotations[contract.AllocationAnnotation])
	case before == nil:
		a.note("%s is created", pod.Name)
	case before.Status.Phase != pod.Status.Phase:
		a.note("%s is %s", pod.Name, pod.Status.Phase)
	}
	if bound && !stranger(pod) {
		a.checkNode(pod)
		a.checkQuota(pod)
		a.checkStart(pod)
	}
	a.checkGang(pod)
	a.checkVictim(before, pod)
}

func (a *audit) drop(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note("%s is gone", pod.Name)
	delete(a.pods, string(pod.UID))
	a.checkGang(pod)
}

// note adds to the history.
func (a *audit) note(format string, args ...any) {
	a.history = append(a.history, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (a *audit) violation(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	a.note("VIOLATION: %s", text)
	a.violations = append(a.violations, text)
}

// seen reports whether the scheduler that has bound a pod knew of another then: of strangers it knows those that had their
// node when the pod appeared.
func (a *audit) seen(other, pod *corev1.Pod) bool {
	return !stranger(other) || a.placed[string(other.UID)] < a.made[string(pod.UID)]
}

// checkNode adds up what the pods on the node of one that has just been bound hold: no GPU twice, no GPU beyond its
// memory and cores, and no more of anything that the pod asks for than the node offers. A stranger may have any of the
// GPUs, so that nobody gets whole ones beside a stranger with whole ones.
func (a *audit) checkNode(pod *corev1.Pod) {
	name := pod.Spec.NodeName
	node, ok := a.nodes[name]
	if !ok {
		return
	}
	owner := map[int]string{}
	memory, core := map[int]int64{}, map[int]int64{}
	sum := corev1.ResourceList{}
	own := a.records[string(pod.UID)]
	for uid, other := range a.pods {
		if other.Spec.NodeName != name || !holds(other) || !a.seen(other, pod) {
			continue
		}
		record, asked := a.records[uid], other.Spec.Containers[0].Resources.Requests
		whole := asked[contract.ResourceTopologyGPU]
		switch {
		case !stranger(other):
			if int(whole.Value()) != len(record.GPUs) {
				a.violation("%s asks for %s GPUs and has %v", other.Name, whole.String(), record.GPUs)
			}
		case whole.Value() > 0 && len(own.GPUs) > 0:
			a.violation("%s has GPUs %v of %s, of which %s may have any", pod.Name, own.GPUs, name, other.Name)
		default:
			gib, percent := asked[contract.ResourceGPUMemory], asked[contract.ResourceCorePercent]
			for gpu := range gpusPerNode {
				memory[gpu] += gib.Value()
				core[gpu] += percent.Value()
			}
		}
		for _, gpu := range record.GPUs {
			if owner[gpu] != "" {
				a.violation("GPU %d of %s belongs to %s and to %s", gpu, name, owner[gpu], other.Name)
			}
			owner[gpu] = other.Name
		}
		for _, share := range record.Shares {
			memory[share.GPU] += share.MemoryGiB
			core[share.GPU] += share.CorePercent
		}
		for resource, quantity := range asked {
			total := sum[resource]
			total.Add(quantity)
			sum[resource] = total
		}
	}
	for _, share := range own.Shares {
		if memory[share.GPU] > gpuMemoryGiB || core[share.GPU] > 100 {
			a.violation("GPU %d of %s gives %d GiB and %d %%", share.GPU, name, memory[share.GPU], core[share.GPU])
		}
	}
	for resource := range pod.Spec.Containers[0].Resources.Requests {
		total, offer := sum[resource], node.Status.Allocatable[resource]
		if total.Cmp(offer) > 0 {
			a.violation("%s offers %s of %s, and %s is taken", name, offer.String(), resource, total.String())
		}
	}
}

// checkStart complains of a pod that has just been bound and must not start yet: a launcher whose gang does not run, or
// one of a quota leaf while the tree holds back all of them.
func (a *audit) checkStart(pod *corev1.Pod) {
	name := pod.Labels[contract.JobNameLabel]
	if g := a.gangs[name]; g != nil && launches(pod) {
		a.launched++
		if a.bound(name) < g.minimum && time.Since(g.ran) > actsLate {
			a.violation("%s starts, and its gang has %d members of %d", pod.Name, a.bound(name), g.minimum)
		}
	}
	if pod.Labels[contract.QuotaLabel] != "" && a.isBarred(string(pod.UID)) {
		a.violation("%s starts while the quota tree is invalid", pod.Name)
	}
}

// isBarred reports whether the quota tree lets nothing start, and a pod has come since.
func (a *audit) isBarred(uid string) bool { return a.barred > 0 && a.made[uid] > a.barred }

// bar notes that the scheduler has seen that the quota tree is invalid, or that it is about to be valid again.
func (a *audit) bar(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.barred = 0; yes {
		a.barred = a.changes
		a.bars++
	}
}

// checkQuota checks the limits over a pod that has just been bound.
func (a *audit) checkQuota(pod *corev1.Pod) {
	for _, limit := range a.leaves[pod.Labels[contract.QuotaLabel]] {
		used := int64(0)
		for _, other := range a.pods {
			if holds(other) && a.seen(other, pod) && slices.Contains(limit.leaves, other.Labels[contract.QuotaLabel]) {
				gpus := other.Spec.Containers[0].Resources.Requests[contract.ResourceTopologyGPU]
				used += gpus.Value()
			}
		}
		allowed := limit.max
		if time.Since(limit.edited) < quotaDelay {
			allowed = max(allowed, limit.old)
		}
		if used > allowed {
			a.violation("quota %s has max %d, and %s brings it to %d", limit.name, limit.max, pod.Name, used)
		}
	}
}

// checkGang follows how many members of a pod's gang are bound.
func (a *audit) checkGang(pod *corev1.Pod) {
	name := pod.Labels[contract.JobNameLabel]
	g, ok := a.gangs[name]
	if !ok {
		return
	}
	if node := pod.Status.NominatedNodeName; node != "" {
		g.nominated[node] = true
	}
	bound := a.bound(name)
	if g.enough || bound >= g.minimum {
		g.ran = time.Now()
	}
	g.enough = bound >= g.minimum
	switch {
	case g.enough:
		g.whole, g.partial = true, time.Time{}
	case bound == 0:
		g.whole, g.partial = false, time.Time{}
	case g.partial.IsZero() && !g.whole:
		g.partial = time.Now()
	}
}

// bound counts the members of a gang that are bound, of which its launcher is none.
func (a *audit) bound(gang string) int {
	n := 0
	for _, pod := range a.pods {
		if pod.Labels[contract.JobNameLabel] == gang && holds(pod) && !launches(pod) {
			n++
		}
	}
	return n
}

// inNeed lists the gangs that run and cannot do without any of their members, of which they have several.
func (a *audit) inNeed() (gangs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, g := range a.gangs {
		if g.minimum > 1 && g.enough && a.bound(name) == g.minimum {
			gangs = append(gangs, name)
		}
	}
	slices.Sort(gangs)
	return gangs
}

// unclear reports whether a scheduler that has started meanwhile may be unable to tell if a gang was cut short or has lost
// members: it completes it where it can, and else leaves it what it has.
func (a *audit) unclear(g *auditedGang) bool { return a.kills > 0 && g.members > g.minimum }

// checkTime complains of gangs that have been bound in part for too long.
func (a *audit) checkTime() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, g := range a.gangs {
		if !g.partial.IsZero() && time.Since(g.partial) > bindingTime && !a.unclear(g) {
			a.violation("gang %s has been bound in part for %s", name, time.Since(g.partial).Round(time.Second))
			g.partial = time.Time{}
		}
	}
}

// pause moves the beginning of all waiting on by a time in which nobody could act.
func (a *audit) pause(outage time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	edits := map[*limit]bool{} // groups are over several leaves
	for _, g := range a.gangs {
		if !g.partial.IsZero() {
			g.partial = g.partial.Add(outage)
		}
	}
	for _, path := range a.leaves {
		for _, l := range path {
			edits[l] = true
		}
	}
	for l := range edits {
		l.edited = l.edited.Add(outage) // the first edit of all is long ago, and stays so
	}
}

// did notes what the run did.
func (a *audit) did(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note("-- "+format, args...)
}

// report is what went wrong and everything that happened.
func (a *audit) report() (violations []string, history string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.violations), strings.Join(a.history, "\n")
}
