package explanation

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// conditionTaints begins the keys of the taints that Kubernetes puts on nodes by their condition, and takes off again ("Well-Known
// Labels, Annotations and Taints").
const conditionTaints = "node.kubernetes.io/"

// uncordons proposes to let pods onto nodes that are cordoned: as few as make the gang fit, those with the most room first.
func (f *fixer) uncordons() []placement.Fix {
	var cordoned []int
	for i, n := range f.Nodes {
		if n.Unschedulable {
			cordoned = append(cordoned, i)
		}
	}
	with := func(positions []int) bool {
		c := f.Cluster
		c.Nodes = slices.Clone(f.Nodes)
		for _, i := range positions {
			c.Nodes[i] = uncordoned(f.Nodes[i])
		}
		return f.feasible(c, nil, f.lifted, f.Gang)
	}
	if len(cordoned) == 0 || !with(cordoned) {
		return nil
	}
	remaining, takes := f.remaining(), map[int]int{}
	for _, i := range cordoned {
		n := uncordoned(f.Nodes[i])
		takes[i] = f.Try(f.KeyOf(n, f.Admits(n)), remaining).Members
	}
	slices.SortStableFunc(cordoned, func(a, b int) int { return takes[b] - takes[a] })
	least := 1 + sort.Search(len(cordoned)-1, func(i int) bool { return with(cordoned[:i+1]) })
	names := make([]string, least)
	for i, position := range cordoned[:least] {
		names[i] = f.Nodes[position].Name
	}
	slices.SortFunc(names, natural.Compare)
	return []placement.Fix{{
		Kind: placement.FixUncordon, Target: strings.Join(names, ", "), From: "cordoned", To: "schedulable",
		Text: fmt.Sprintf("uncordoning %s %s", map[bool]string{true: "node", false: "nodes"}[least == 1], strings.Join(names, ", ")),
	}}
}

// uncordoned is a node as it is when it is not cordoned any more.
func uncordoned(n *capacity.Node) *capacity.Node {
	u := *n
	u.Number, u.Unschedulable = 0, false
	u.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t placement.Taint) bool { return t.Key == admission.UnschedulableTaint.Key })
	u.Free = u.Capacity()
	return &u
}
