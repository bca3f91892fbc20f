package inventory

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// budget is a PodDisruptionBudget.
type budget struct {
	selector labels.Selector
	allowed  int
}

// SetBudget takes in a disruption budget. The error says why its selector cannot be
// used; it protects no pod then, as in Kubernetes.
func (c *Cache) SetBudget(pdb *policyv1.PodDisruptionBudget) (Change, error) {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		selector, err = labels.Nothing(), fmt.Errorf("PodDisruptionBudget %s/%s: %w", pdb.Namespace, pdb.Name, err)
	}
	c.lock()
	defer c.unlock()
	if c.budgets[pdb.Namespace] == nil {
		c.budgets[pdb.Namespace] = map[string]budget{}
	}
	before, known := c.budgets[pdb.Namespace][pdb.Name]
	now := budget{selector: selector, allowed: int(pdb.Status.DisruptionsAllowed)}
	c.budgets[pdb.Namespace][pdb.Name] = now
	c.view.SetBudget(pdb.Namespace+"/"+pdb.Name, now.allowed)
	if !known || before.selector.String() != selector.String() {
		c.recharge(pdb.Namespace)
		return Change{Freed: known}, err
	}
	return Change{Freed: now.allowed > before.allowed}, err
}

// RemoveBudget takes out a disruption budget.
func (c *Cache) RemoveBudget(namespace, name string) Change {
	c.lock()
	defer c.unlock()
	delete(c.budgets[namespace], name)
	c.view.RemoveBudget(namespace + "/" + name)
	c.recharge(namespace)
	return Change{Freed: true}
}

// recharge tells the view again about the pods of a namespace.
func (c *Cache) recharge(namespace string) {
	for _, state := range c.pods {
		if state.charged() && state.now().Namespace == namespace {
			c.charge(state)
		}
	}
}

// budgetsOf returns the names of the disruption budgets that cover a pod.
func (c *Cache) budgetsOf(p *corev1.Pod) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.budgets[p.Namespace])) {
		if c.budgets[p.Namespace][name].selector.Matches(labels.Set(p.Labels)) {
			names = append(names, p.Namespace+"/"+name)
		}
	}
	return names
}
