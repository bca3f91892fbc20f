package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// ReadQuotaTree reads the tree of an ElasticQuotaTree object. The error says what is
// wrong with a tree that cannot be used.
func ReadQuotaTree(object *unstructured.Unstructured) (quota.Spec, *quota.Tree, error) {
	spec, err := QuotaSpec(object)
	if err != nil {
		return quota.Spec{}, nil, fmt.Errorf("quota tree is invalid: %w", err)
	}
	tree, err := quota.New(spec)
	return spec, tree, err
}

// InForce returns the quota tree that counts of several, the oldest, nil when there is none.
func InForce(trees []*unstructured.Unstructured) *unstructured.Unstructured {
	if len(trees) == 0 {
		return nil
	}
	return slices.MinFunc(trees, func(a, b *unstructured.Unstructured) int {
		at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// Bar holds back what an invalid quota tree is about: the limits that are meant for it
// are not known. A nil Bar holds back nothing.
type Bar struct {
	// Why says what is wrong with the tree.
	Why        string
	namespaces map[string]bool
	// everything means that not even all namespaces of the tree can be read.
	everything bool
}

// NewBar returns the bar of a tree that cannot be used for a reason.
func NewBar(tree *unstructured.Unstructured, why error) *Bar {
	b := &Bar{Why: why.Error(), namespaces: map[string]bool{}}
	root, found, err := unstructured.NestedMap(tree.Object, "spec", "root")
	if err != nil || !found {
		b.everything = true
		return b
	}
	b.read(root)
	return b
}

// read notes the namespaces of a node and of all below it.
func (b *Bar) read(node map[string]any) {
	for _, field := range []string{"namespaces", "children"} {
		list, ok := node[field].([]any)
		if !ok && node[field] != nil {
			b.everything = true
		}
		for _, item := range list {
			switch item := item.(type) {
			case string:
				b.namespaces[item] = true
			case map[string]any:
				b.read(item)
			default:
				b.everything = true
			}
		}
	}
}

// Holds reports whether something of a namespace is held back. leaf is the quota leaf that
// it names, or that is known of its namespace, "" for none.
func (b *Bar) Holds(namespace, leaf string) bool {
	return b != nil && (leaf != "" || b.everything || b.namespaces[namespace])
}

// over is why a gang is held back of which members are not bound, "" when it is not.
func (b *Bar) over(members []Member, tree *quota.Tree) string {
	for _, m := range members {
		if b.Holds(m.Pod.Namespace, LeafOf(m.Pod, tree)) && m.Pod.Spec.NodeName == "" && !Gone(m.Pod) {
			return b.Why
		}
	}
	return ""
}

// heldBack is why a gang does not start whatever room there is, "" when nothing keeps it: the
// bar, or members of several leaves, of which no one has room for all.
func heldBack(b *Bar, members []Member, found MemberCounts, tree *quota.Tree) string {
	if why := b.over(members, tree); why != "" || tree == nil {
		return why
	}
	leaves := map[string]bool{}
	for i := range members {
		if m := &members[i]; !m.left() && !m.succeeded() && !found.IsLate(m) {
			leaves[LeafOf(m.Pod, tree)] = true
		}
	}
	if len(leaves) <= 1 || found.Running >= found.Present {
		return ""
	}
	var names []string
	for _, leaf := range slices.Sorted(maps.Keys(leaves)) {
		names = append(names, cmp.Or(leaf, "none"))
	}
	return fmt.Sprintf("pods of one gang belong to different quota leaves (%s), and a gang is charged to one: give all of them the same label %s",
		strings.Join(names, ", "), contract.QuotaLabel)
}
