package fleet

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// binding is a ResourceBinding with the object that it was read from.
type binding struct {
	resourceBinding
	object *unstructured.Unstructured
}

// resourceBinding is Karmada's, as far as a scheduler reads it.
type resourceBinding struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Resource struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Namespace  string `json:"namespace"`
			Name       string `json:"name"`
		} `json:"resource"`
		SchedulerName string `json:"schedulerName"`
		Suspension    struct {
			// Scheduling means that the job waits in the queue.
			Scheduling bool `json:"scheduling"`
		} `json:"suspension"`
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
		Placement *rules `json:"placement"`
		// GracefulEvictionTasks are the clusters from which the job was evicted, until it runs in another one.
		GracefulEvictionTasks []evictionTask `json:"gracefulEvictionTasks"`
	} `json:"spec"`
	Status struct {
		// AggregatedStatus is what clusters tell of the job.
		AggregatedStatus []struct {
			ClusterName string `json:"clusterName"`
		} `json:"aggregatedStatus"`
	} `json:"status"`
}

type evictionTask struct {
	FromCluster string `json:"fromCluster"`
}

// rules are where a policy allows an object to go.
type rules struct {
	ClusterAffinity    *affinity           `json:"clusterAffinity"`
	ClusterAffinities  []affinityTerm      `json:"clusterAffinities"`
	ClusterTolerations []corev1.Toleration `json:"clusterTolerations"`
	ReplicaScheduling  struct {
		WeightPreference struct {
			StaticWeightList []struct {
				TargetCluster affinity `json:"targetCluster"`
				Weight        int64    `json:"weight"`
			} `json:"staticWeightList"`
		} `json:"weightPreference"`
	} `json:"replicaScheduling"`
}

// affinityTerm is one of several affinities, of which the first that gives the object a place counts.
type affinityTerm struct {
	AffinityName string `json:"affinityName"`
	affinity     `json:",inline"`
}

// affinity selects clusters.
type affinity struct {
	ClusterNames    []string              `json:"clusterNames"`
	ExcludeClusters []string              `json:"exclude"`
	LabelSelector   *metav1.LabelSelector `json:"labelSelector"`
	FieldSelector   *struct {
		MatchExpressions []corev1.NodeSelectorRequirement `json:"matchExpressions"`
	} `json:"fieldSelector"`
}

func bindingOf(object *unstructured.Unstructured) (*binding, error) {
	b := &binding{object: object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &b.resourceBinding); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", contract.ResourceBindingKind, object.GetNamespace(), object.GetName(), err)
	}
	return b, nil
}

// ours reports whether the binding is for this scheduler to place.
func (b *binding) ours() bool {
	return b.Spec.SchedulerName == contract.FleetSchedulerName && b.Spec.Placement != nil && b.DeletionTimestamp == nil
}

func (b *binding) key() string { return keyOf(b) }

// keyOf is that of a binding, and of what is made for it.
func keyOf(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// kind is that of the job.
func (b *binding) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(b.Spec.Resource.APIVersion, b.Spec.Resource.Kind)
}

// terms are the affinities of the policy, the one first that counts first.
func (r *rules) terms() []affinityTerm {
	switch {
	case r.ClusterAffinity != nil:
		return []affinityTerm{{affinity: *r.ClusterAffinity}}
	case len(r.ClusterAffinities) > 0:
		return r.ClusterAffinities
	}
	return []affinityTerm{{}}
}

// barred says why a job may not go to a cluster, "" where it may: term is the position of the first affinity that selects it.
func (b *binding) barred(c *contract.FleetCluster) (term int, why string) {
	terms := b.Spec.Placement.terms()
	for term = range terms {
		selected, err := terms[term].selects(c)
		if err != nil {
			return 0, "the policy's affinity cannot be used: " + err.Error()
		}
		if selected {
			return term, b.excluded(c)
		}
	}
	return 0, "the policy's affinity does not select it"
}

// excluded says what keeps all jobs like this one from a cluster, or those that do not tolerate it, "" for nothing.
func (b *binding) excluded(c *contract.FleetCluster) string {
	kind, served := b.kind(), false
	for _, enabled := range c.Status.APIEnablements {
		for _, resource := range enabled.Resources {
			served = served || enabled.GroupVersion == b.Spec.Resource.APIVersion && resource.Kind == kind.Kind
		}
	}
	switch {
	case c.DeletionTimestamp != nil:
		return "it is being removed from the fleet"
	case !c.Reached():
		return "it is not ready"
	case !served:
		return fmt.Sprintf("it does not serve %s of %s", kind.Kind, b.Spec.Resource.APIVersion)
	}
	for _, taint := range c.Spec.Taints {
		tolerated := slices.ContainsFunc(b.Spec.Placement.ClusterTolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) })
		if (taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute) && !tolerated {
			return fmt.Sprintf("it has the taint %s, which the policy does not tolerate", taint.ToString())
		}
	}
	return ""
}

// tolerates reports whether a toleration is one, and of the taint: without a key it must be of all that exist.
func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	return (t.Key != "" || t.Operator == corev1.TolerationOpExists) && t.ToleratesTaint(logr.Discard(), &taint, false)
}

// weight is how much the policy prefers a cluster: the highest of the weights whose clusters it is among.
func (b *binding) weight(c *contract.FleetCluster) (weight int64) {
	for _, static := range b.Spec.Placement.ReplicaScheduling.WeightPreference.StaticWeightList {
		if selected, err := static.TargetCluster.selects(c); err == nil && selected {
			weight = max(weight, static.Weight)
		}
	}
	return weight
}

// selects reports whether a cluster is among those of the affinity.
func (a *affinity) selects(c *contract.FleetCluster) (bool, error) {
	if slices.Contains(a.ExcludeClusters, c.Name) || len(a.ClusterNames) > 0 && !slices.Contains(a.ClusterNames, c.Name) {
		return false, nil
	}
	if a.LabelSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil || !selector.Matches(labels.Set(c.Labels)) {
			return false, err
		}
	}
	if a.FieldSelector == nil {
		return true, nil
	}
	for _, term := range a.FieldSelector.MatchExpressions {
		values, known := map[string][]string{"provider": {c.Spec.Provider}, "region": {c.Spec.Region}, "zone": c.Spec.Zones}[term.Key]
		if !known {
			return false, fmt.Errorf("fieldSelector has the key %q; it may have provider, region and zone", term.Key)
		}
		among := slices.ContainsFunc(values, func(value string) bool { return slices.Contains(term.Values, value) })
		switch term.Operator {
		case corev1.NodeSelectorOpIn:
			if !among {
				return false, nil
			}
		case corev1.NodeSelectorOpNotIn:
			if among {
				return false, nil
			}
		default:
			return false, fmt.Errorf("fieldSelector has the operator %q; it may have In and NotIn", term.Operator)
		}
	}
	return true, nil
}
