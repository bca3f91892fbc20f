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

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Pod is a pod that holds cards of a node.
type Pod struct {
	placement.Pod
	// Owner is "namespace/name" of the gang, or of the pod when it is none.
	Owner string
	// Managed tells that this provider created the job, in this configuration or another.
	Managed bool
	// Object is the pod itself.
	Object *corev1.Pod
}

// Pods lists the pods that hold cards, on any node.
func Pods(ctx context.Context, c *kube.Client) ([]Pod, error) {
	list, err := c.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the running pods: %w", err)
	}
	var pods []Pod
	for i := range list.Items {
		object := &list.Items[i]
		translated, ok := inventory.Pod(object)
		if !ok || translated.Request.Mode == placement.ModeNone {
			continue
		}
		owner := object.Namespace + "/" + object.Name
		if translated.Gang != "" {
			owner = translated.Gang
		}
		pods = append(pods, Pod{
			Pod:     translated,
			Owner:   owner,
			Managed: object.Labels[contract.ManagedByLabel] == contract.ManagedByValue,
			Object:  object,
		})
	}
	return pods, nil
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
