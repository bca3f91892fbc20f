// Package running tells which jobs and gangs run now, for the plan of a change that would
// take nodes or quota away from them.
package running

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Pod is a pod that holds resources of a node.
type Pod struct {
	placement.Pod
	// Owner is "namespace/name" of the training job, else of the gang, else of the pod's controller, else of the pod.
	Owner string
	// Object is the pod itself.
	Object *corev1.Pod
}

// Pods keeps the pods that hold GPUs, on any node, and those of training jobs and gangs
// without any: a job that loses its launcher fails.
func Pods(objects []corev1.Pod) []Pod {
	return slices.DeleteFunc(All(objects), func(p Pod) bool {
		return p.Request.Mode == placement.ModeNone && p.Gang == "" && p.Object.Labels[contract.JobNameLabel] == ""
	})
}

// All keeps the pods that hold any resources of a node.
func All(objects []corev1.Pod) []Pod {
	var pods []Pod
	for i := range objects {
		object := &objects[i]
		translated, ok := inventory.Pod(object)
		if !ok {
			continue
		}
		pods = append(pods, Pod{Pod: translated, Owner: OwnerOf(object), Object: object})
	}
	return pods
}

// OwnerOf names who has a pod, see [Pod.Owner].
func OwnerOf(object *corev1.Pod) string {
	if gang, ok := inventory.GangKey(object); ok && object.Labels[contract.JobNameLabel] == "" {
		return gang
	}
	return object.Namespace + "/" + inventory.JobName(object)
}

// On keeps the pods on the given nodes.
func On(pods []Pod, nodes []string) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return !slices.Contains(nodes, p.Node) })
}

// Selects matches pods whose node selector or required affinity names one of the labels.
func Selects(keys []string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		for key := range p.Spec.NodeSelector {
			if slices.Contains(keys, key) {
				return true
			}
		}
		if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			return false
		}
		for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if slices.Contains(keys, e.Key) {
					return true
				}
			}
		}
		return false
	}
}

// Owners returns the owners of the pods, sorted, each once.
func Owners(pods []Pod) []string {
	owners := map[string]bool{}
	for _, p := range pods {
		owners[p.Owner] = true
	}
	return slices.Sorted(maps.Keys(owners))
}

// Foreign keeps the pods that do not belong to this configuration, as own says by the labels of each.
func Foreign(pods []Pod, own func(labels map[string]string) bool) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return own(p.Object.Labels) })
}

// Describe lists the owners with the nodes they are on: "default/a (on n1, n2), default/b (on n2)".
func Describe(pods []Pod) string {
	nodes := map[string]map[string]bool{}
	for _, p := range pods {
		if nodes[p.Owner] == nil {
			nodes[p.Owner] = map[string]bool{}
		}
		nodes[p.Owner][p.Node] = true
	}
	var parts []string
	for _, owner := range slices.Sorted(maps.Keys(nodes)) {
		parts = append(parts, fmt.Sprintf("%s (on %s)", owner, strings.Join(slices.Sorted(maps.Keys(nodes[owner])), ", ")))
	}
	return strings.Join(parts, ", ")
}

// mostNamed is how many owners a text names.
const mostNamed = 10

// Some names the first of a list, and says how many more there are.
func Some(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
