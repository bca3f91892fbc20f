// Package running tells which gangs hold cards now, for the plan of a change that
// would take nodes or quota away from them.
package running

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Pod is a pod that holds cards of a node.
type Pod struct {
	placement.Pod
	// Owner is "namespace/name" of the training job, else of the gang, else of the pod.
	Owner string
	// Object is the pod itself.
	Object *corev1.Pod
}

// Pods keeps the pods that hold cards, on any node.
func Pods(objects []corev1.Pod) []Pod {
	var pods []Pod
	for i := range objects {
		object := &objects[i]
		translated, ok := inventory.Pod(object)
		if !ok || translated.Request.Mode == placement.ModeNone {
			continue
		}
		owner := object.Namespace + "/" + object.Name
		if job := object.Labels[contract.JobNameLabel]; job != "" {
			owner = object.Namespace + "/" + job
		} else if translated.Gang != "" {
			owner = translated.Gang
		}
		pods = append(pods, Pod{
			Pod:    translated,
			Owner:  owner,
			Object: object,
		})
	}
	return pods
}

// On keeps the pods on the given nodes.
func On(pods []Pod, nodes []string) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return !slices.Contains(nodes, p.Node) })
}

// Owners returns the owners of the pods, sorted, each once.
func Owners(pods []Pod) []string {
	owners := map[string]bool{}
	for _, p := range pods {
		owners[p.Owner] = true
	}
	return slices.Sorted(maps.Keys(owners))
}

// Foreign keeps the pods whose job was not created by this provider, in this
// configuration or another.
func Foreign(ctx context.Context, c *kube.Client, pods []Pod) ([]Pod, error) {
	managed := map[types.UID]bool{}
	var foreign []Pod
	for _, p := range pods {
		owner := metav1.GetControllerOf(p.Object)
		if owner == nil {
			foreign = append(foreign, p)
			continue
		}
		ours, asked := managed[owner.UID]
		if !asked {
			object, err := c.Get(ctx, schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind), p.Object.Namespace, owner.Name)
			if err != nil && !kube.IsNotFound(err) {
				return nil, fmt.Errorf("find who created the pods of %s: %w", p.Owner, err)
			}
			ours = err == nil && object.GetLabels()[contract.ManagedByLabel] == contract.ManagedByValue
			managed[owner.UID] = ours
		}
		if !ours {
			foreign = append(foreign, p)
		}
	}
	return foreign, nil
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
