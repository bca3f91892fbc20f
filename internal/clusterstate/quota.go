package clusterstate

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// SetQuotaTree takes in a quota tree; nil removes all. Of several the oldest is in force.
// While that is invalid, which is the error, what it governs does not start, nobody is
// evicted by it, and what runs is charged to the last valid tree that is known.
func (s *State) SetQuotaTree(object *unstructured.Unstructured) (Change, error) {
	if object == nil {
		clear(s.trees)
	} else {
		s.trees[object.GetName()] = object
	}
	return s.enforce()
}

// RemoveQuotaTree takes out a quota tree.
func (s *State) RemoveQuotaTree(name string) (Change, error) {
	delete(s.trees, name)
	return s.enforce()
}

// enforce brings the view in line with the quota tree that is in force.
func (s *State) enforce() (Change, error) {
	var bar *inventory.Bar
	var spec quota.Spec
	var tree *quota.Tree
	var err error
	if object := inventory.InForce(slices.Collect(maps.Values(s.trees))); object != nil {
		if spec, tree, err = inventory.ReadQuotaTree(object); err != nil {
			bar = inventory.NewBar(object, err)
			if spec, tree = s.treeSpec, s.tree; tree == nil {
				tree, _ = quota.New(spec) // an empty tree, under which nobody takes from others
			}
		}
	}
	if (s.tree == nil) == (tree == nil) && reflect.DeepEqual(s.treeSpec, spec) && reflect.DeepEqual(s.bar, bar) {
		return Change{}, err // only its status changed
	}
	s.bar = bar
	s.tree, s.treeSpec = tree, spec
	s.View.SetQuota(tree)
	for key := range s.gangs {
		s.touch(key) // what keeps it from starting may be another leaf, or the tree itself
	}
	for _, pod := range s.pods {
		if pod.Charged() {
			s.charge(pod)
		} else if s.recognize(pod) {
			s.update(pod)
		}
	}
	return Change{Freed: true, Rules: true}, err
}

// Tree returns the quota tree in force, or the valid one before it, nil for none.
func (s *State) Tree() *quota.Tree { return s.tree }

// Bar returns whom the quota tree in force holds back because it is not valid, nil for nobody.
func (s *State) Bar() *inventory.Bar { return s.bar }
