package placement

import (
	"cmp"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

// CompareNodes is the planner's order of equal candidates: pool, age, natural order of names.
func CompareNodes(a, b Node) int { return a.Compare(&b) }

// Compare is [CompareNodes].
func (n *Node) Compare(o *Node) int {
	return cmp.Or(cmp.Compare(n.Pool, o.Pool), cmp.Compare(n.Since, o.Since), natural.Compare(n.Name, o.Name))
}
