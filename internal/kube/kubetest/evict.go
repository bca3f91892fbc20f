package kubetest

import (
	"encoding/json"
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// evict deletes a pod as its eviction subresource does: each disruption budget that selects the pod must allow a
// disruption, and allows one less then. Nothing but a test gives it back.
func (s *Server) evict(w http.ResponseWriter, r *http.Request, at key) {
	var eviction policyv1.Eviction
	if err := json.NewDecoder(r.Body).Decode(&eviction); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	var options metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		options = *eviction.DeleteOptions
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[at] == nil {
		notFound(w, at)
		return
	}
	budgets := s.budgetsOf(at)
	for _, budget := range budgets {
		if budget.Status.DisruptionsAllowed < 1 {
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget.", []metav1.StatusCause{{
				Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
					budget.Name, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy),
			}})
			return
		}
	}
	if !s.mayDelete(w, at, options) {
		return
	}
	if len(options.DryRun) == 0 {
		for _, budget := range budgets {
			s.disrupt(budget)
		}
		s.finalize(at)
	}
	reply(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

// budgetsOf returns the disruption budgets that select a pod.
func (s *Server) budgetsOf(pod key) (found []policyv1.PodDisruptionBudget) {
	marks := labels.Set((&unstructured.Unstructured{Object: s.objects[pod].data}).GetLabels())
	for at, o := range s.objects {
		var budget policyv1.PodDisruptionBudget
		if at.plural != "poddisruptionbudgets" || at.namespace != pod.namespace || runtime.DefaultUnstructuredConverter.FromUnstructured(o.data, &budget) != nil {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(marks) {
			found = append(found, budget)
		}
	}
	return found
}

// disrupt takes a disruption from a budget.
func (s *Server) disrupt(budget policyv1.PodDisruptionBudget) {
	at := key{"poddisruptionbudgets", "policy", budget.Namespace, budget.Name}
	o := s.objects[at]
	data := runtime.DeepCopyJSON(o.data)
	status, _ := data["status"].(map[string]any)
	status["disruptionsAllowed"] = int64(budget.Status.DisruptionsAllowed - 1)
	s.store(at, &object{data: data, owners: o.owners})
}
