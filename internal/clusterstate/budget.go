package clusterstate

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Budget is a PodDisruptionBudget: so many of the pods that it selects may be evicted.
type Budget struct {
	Selector labels.Selector
	Allowed  int
}

// SetBudget takes in a disruption budget. The error says why its selector cannot be
// used; it protects no pod then, as in Kubernetes.
func (s *State) SetBudget(pdb *policyv1.PodDisruptionBudget) (Change, error) {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		selector, err = labels.Nothing(), fmt.Errorf("PodDisruptionBudget %s/%s: %w", pdb.Namespace, pdb.Name, err)
	}
	if s.budgets[pdb.Namespace] == nil {
		s.budgets[pdb.Namespace] = map[string]Budget{}
	}
	before, known := s.budgets[pdb.Namespace][pdb.Name]
	now := Budget{Selector: selector, Allowed: int(pdb.Status.DisruptionsAllowed)}
	s.budgets[pdb.Namespace][pdb.Name] = now
	s.View.SetBudget(pdb.Namespace+"/"+pdb.Name, now.Allowed)
	if !known || before.Selector.String() != selector.String() {
		s.recharge(pdb.Namespace)
		return Change{Freed: known}, err
	}
	return Change{Freed: now.Allowed > before.Allowed}, err
}

// RemoveBudget takes out a disruption budget.
func (s *State) RemoveBudget(namespace, name string) Change {
	delete(s.budgets[namespace], name)
	s.View.RemoveBudget(namespace + "/" + name)
	s.recharge(namespace)
	return Change{Freed: true}
}

// recharge tells the view again about the pods of a namespace.
func (s *State) recharge(namespace string) {
	for _, pod := range s.pods {
		if pod.Charged() && pod.Now().Namespace == namespace {
			s.charge(pod)
		}
	}
}

// budgetsOf returns the names of the disruption budgets that cover a pod.
func (s *State) budgetsOf(p *corev1.Pod) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.budgets[p.Namespace])) {
		if s.budgets[p.Namespace][name].Selector.Matches(labels.Set(p.Labels)) {
			names = append(names, p.Namespace+"/"+name)
		}
	}
	return names
}

// Budgets lists the disruption budgets of a namespace.
func (s *State) Budgets(namespace string) iter.Seq[Budget] { return maps.Values(s.budgets[namespace]) }
