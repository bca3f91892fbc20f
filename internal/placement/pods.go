package placement

import (
	"cmp"
	"slices"
)

// Pods returns the pods that are known on a node, in the order of their IDs.
func (v *View) Pods(node string) []Pod {
	var pods []Pod
	for _, p := range v.pods {
		if p.Node == node {
			pods = append(pods, *p)
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.ID, b.ID) })
	return pods
}
