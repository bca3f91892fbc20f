package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// group are pods that leave together.
type group struct {
	// gang is the key of the gang that they are of, "" for a pod on its own.
	gang string
	pods []*corev1.Pod
}

func (g group) String() string {
	if g.gang == "" {
		return "pod " + nameOf(g.pods[0])
	}
	return fmt.Sprintf("gang %s (%s)", g.gang, count(len(g.pods), "pod"))
}

// departures is what a drain does to the pods of a cluster.
type departures struct {
	// groups leave, by name.
	groups []group
	// leaving are the pods on the nodes that are being deleted already.
	leaving []*corev1.Pod
	// pinned stay: they belong to their nodes.
	pinned []*corev1.Pod
}

// departuresOf sorts the pods on some nodes. A gang of which too few members would be left leaves as a whole, with its
// pods on other nodes: they would hold their GPUs, and wait.
func departuresOf(o clusterlist.Objects, nodes []string) (d departures) {
	gangs, evicted := map[string][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	for i := range o.Pods {
		pod := &o.Pods[i]
		key, inGang := inventory.GangKey(pod)
		if inGang {
			gangs[key] = append(gangs[key], pod)
		}
		switch {
		case inventory.Finished(pod) || !slices.Contains(nodes, pod.Spec.NodeName):
		case inventory.Pinned(pod):
			d.pinned = append(d.pinned, pod)
		case pod.DeletionTimestamp != nil:
			d.leaving = append(d.leaving, pod)
		case inGang:
			evicted[key] = append(evicted[key], pod)
		default:
			d.groups = append(d.groups, group{pods: []*corev1.Pod{pod}})
		}
	}
	state, _ := o.State() // a quota tree that cannot be used is no matter
	for key, pods := range evicted {
		gone := map[types.UID]bool{}
		for _, p := range gangs[key] {
			gone[p.UID] = slices.Contains(pods, p) || p.DeletionTimestamp != nil
		}
		if !state.RunsWithout(key, gone) {
			pods = bound(gangs[key])
		}
		d.groups = append(d.groups, group{gang: key, pods: pods})
	}
	for _, g := range d.groups {
		slices.SortFunc(g.pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortFunc(d.groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.pods[0].Namespace, b.pods[0].Namespace), cmp.Compare(a.pods[0].Name, b.pods[0].Name))
	})
	return d
}

// bound are the pods of a gang that have nodes and stay until they are evicted.
func bound(gang []*corev1.Pod) (pods []*corev1.Pod) {
	for _, p := range gang {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !inventory.Finished(p) && !inventory.Pinned(p) {
			pods = append(pods, p)
		}
	}
	return pods
}

// bare are the pods that leave for good: nobody makes them again.
func (d departures) bare() (pods []*corev1.Pod) {
	for _, g := range d.groups {
		for _, p := range g.pods {
			if metav1.GetControllerOfNoCopy(p) == nil {
				pods = append(pods, p)
			}
		}
	}
	return pods
}

// evicted are all pods that are evicted.
func (d departures) evicted() (pods []corev1.Pod) {
	for _, g := range d.groups {
		for _, p := range g.pods {
			pods = append(pods, *p)
		}
	}
	return pods
}

// forbids says which disruption budget does not let all of these pods go now, "" when each does. The eviction of a pod is
// decided by itself, so that half of a gang could leave.
func forbids(budgets []policyv1.PodDisruptionBudget, pods []*corev1.Pod) string {
	for _, b := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // it protects no pod then, as in Kubernetes
		}
		covered := 0
		for _, p := range pods {
			if p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels)) {
				covered++
			}
		}
		if allowed := int(b.Status.DisruptionsAllowed); covered > allowed {
			return fmt.Sprintf("PodDisruptionBudget %s/%s allows %s now, and %s at once", b.Namespace, b.Name, count(allowed, "disruption"), leave(covered))
		}
	}
	return ""
}

func leave(n int) string {
	if n == 1 {
		return "1 pod leaves"
	}
	return fmt.Sprintf("%d pods leave", n)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// namesOf lists pods, of many the first.
func namesOf(pods []*corev1.Pod) string {
	const most = 10
	var names []string
	for _, p := range pods[:min(len(pods), most)] {
		names = append(names, nameOf(p))
	}
	if more := len(pods) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
