package fleet

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Rules are where a policy lets an object go: the placement of policies and bindings, as Karmada and ACK write it.
type Rules struct {
	ClusterAffinity    *Affinity           `json:"clusterAffinity"`
	ClusterAffinities  []AffinityTerm      `json:"clusterAffinities"`
	ClusterTolerations []corev1.Toleration `json:"clusterTolerations"`
	ReplicaScheduling  struct {
		WeightPreference struct {
			StaticWeightList []struct {
				TargetCluster Affinity `json:"targetCluster"`
				Weight        int64    `json:"weight"`
			} `json:"staticWeightList"`
		} `json:"weightPreference"`
	} `json:"replicaScheduling"`
}

// AffinityTerm is one of several affinities, of which the first that gives the object a place counts.
type AffinityTerm struct {
	AffinityName string `json:"affinityName"`
	Affinity     `json:",inline"`
}

// Affinity selects clusters.
type Affinity struct {
	ClusterNames    []string              `json:"clusterNames"`
	ExcludeClusters []string              `json:"exclude"`
	LabelSelector   *metav1.LabelSelector `json:"labelSelector"`
	FieldSelector   *struct {
		MatchExpressions []corev1.NodeSelectorRequirement `json:"matchExpressions"`
	} `json:"fieldSelector"`
}

// Terms are the affinities, the one first that counts first; without any there is one that selects all clusters.
func (r *Rules) Terms() []AffinityTerm {
	switch {
	case r.ClusterAffinity != nil:
		return []AffinityTerm{{Affinity: *r.ClusterAffinity}}
	case len(r.ClusterAffinities) > 0:
		return r.ClusterAffinities
	}
	return []AffinityTerm{{}}
}

// Selects says why no affinity selects a cluster, "" where one does: term is the position of the first that does.
func (r *Rules) Selects(c *contract.FleetCluster) (term int, why string) {
	terms := r.Terms()
	for term = range terms {
		selected, err := terms[term].selects(c)
		if err != nil {
			return 0, "the policy's affinity cannot be used: " + err.Error()
		}
		if selected {
			return term, ""
		}
	}
	return 0, "the policy's affinity does not select it"
}

// Bars says why a job of a kind may not go to a cluster, "" where it may: term is of [Rules.Selects].
func (r *Rules) Bars(c *contract.FleetCluster, kind schema.GroupVersionKind) (term int, why string) {
	term, why = r.Selects(c)
	if why == "" {
		why = r.excludes(c, kind)
	}
	return term, why
}

// excludes says what keeps all jobs of a kind from a cluster, or those that do not tolerate it, "" for nothing.
func (r *Rules) excludes(c *contract.FleetCluster, kind schema.GroupVersionKind) string {
	switch {
	case c.DeletionTimestamp != nil:
		return "it is being removed from the fleet"
	case !c.Reached():
		return "it is not ready"
	case !c.Serves(kind):
		return fmt.Sprintf("it does not serve %s of %s", kind.Kind, kind.GroupVersion())
	}
	for _, taint := range c.Spec.Taints {
		tolerated := slices.ContainsFunc(r.ClusterTolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) })
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

// Weight is how much the policy prefers a cluster: the highest of the weights whose clusters it is among.
func (r *Rules) Weight(c *contract.FleetCluster) (weight int64) {
	for _, static := range r.ReplicaScheduling.WeightPreference.StaticWeightList {
		if selected, err := static.TargetCluster.selects(c); err == nil && selected {
			weight = max(weight, static.Weight)
		}
	}
	return weight
}

// selects reports whether a cluster is among those of the affinity.
func (a *Affinity) selects(c *contract.FleetCluster) (bool, error) {
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
		among := func(value string) bool { return slices.Contains(term.Values, value) }
		switch term.Operator {
		case corev1.NodeSelectorOpIn: // a cluster that is in other zones as well may run the object there
			if len(values) == 0 || slices.ContainsFunc(values, func(value string) bool { return !among(value) }) {
				return false, nil
			}
		case corev1.NodeSelectorOpNotIn:
			if slices.ContainsFunc(values, among) {
				return false, nil
			}
		default:
			return false, fmt.Errorf("fieldSelector has the operator %q; it may have In and NotIn", term.Operator)
		}
	}
	return true, nil
}
