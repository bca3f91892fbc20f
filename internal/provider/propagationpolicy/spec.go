package propagationpolicy

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// spec is a policy as the API server has it, as far as the resource knows it.
type spec struct {
	ResourceSelectors           []selector  `json:"resourceSelectors,omitempty"`
	PropagateDeps               bool        `json:"propagateDeps,omitempty"`
	Priority                    int64       `json:"priority,omitempty"`
	Preemption                  string      `json:"preemption,omitempty"`
	ConflictResolution          string      `json:"conflictResolution,omitempty"`
	PreserveResourcesOnDeletion bool        `json:"preserveResourcesOnDeletion,omitempty"`
	SchedulerName               string      `json:"schedulerName,omitempty"`
	Failover                    *failover   `json:"failover,omitempty"`
	Placement                   *placement  `json:"placement,omitempty"`
	Suspension                  *suspension `json:"suspension,omitempty"`
}

type selector struct {
	APIVersion    string                `json:"apiVersion,omitempty"`
	Kind          string                `json:"kind,omitempty"`
	Name          string                `json:"name,omitempty"`
	Namespace     string                `json:"namespace,omitempty"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

type failover struct {
	Application *applicationFailover `json:"application,omitempty"`
}

type applicationFailover struct {
	DecisionConditions decisionConditions `json:"decisionConditions"`
	PurgeMode          string             `json:"purgeMode,omitempty"`
	GracePeriodSeconds int64              `json:"gracePeriodSeconds,omitempty"`
}

type decisionConditions struct {
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

type placement struct {
	ClusterAffinity    *affinity           `json:"clusterAffinity,omitempty"`
	ClusterAffinities  []affinityTerm      `json:"clusterAffinities,omitempty"`
	ClusterTolerations []corev1.Toleration `json:"clusterTolerations,omitempty"`
	SpreadConstraints  []spread            `json:"spreadConstraints,omitempty"`
	ReplicaScheduling  *replicaScheduling  `json:"replicaScheduling,omitempty"`
}

type affinity struct {
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	FieldSelector *fieldSelector        `json:"fieldSelector,omitempty"`
	ClusterNames  []string              `json:"clusterNames,omitempty"`
	Exclude       []string              `json:"exclude,omitempty"`
}

type affinityTerm struct {
	AffinityName string `json:"affinityName,omitempty"`
	affinity
}

type fieldSelector struct {
	MatchExpressions []corev1.NodeSelectorRequirement `json:"matchExpressions,omitempty"`
}

type spread struct {
	SpreadByField string `json:"spreadByField,omitempty"`
	SpreadByLabel string `json:"spreadByLabel,omitempty"`
	MinGroups     int64  `json:"minGroups,omitempty"`
	MaxGroups     int64  `json:"maxGroups,omitempty"`
}

type replicaScheduling struct {
	ReplicaSchedulingType     string   `json:"replicaSchedulingType,omitempty"`
	ReplicaDivisionPreference string   `json:"replicaDivisionPreference,omitempty"`
	WeightPreference          *weights `json:"weightPreference,omitempty"`
	CustomSchedulingType      string   `json:"customSchedulingType,omitempty"`
}

type weights struct {
	StaticWeightList []staticWeight `json:"staticWeightList,omitempty"`
	DynamicWeight    string         `json:"dynamicWeight,omitempty"`
}

type staticWeight struct {
	TargetCluster affinity `json:"targetCluster"`
	Weight        int64    `json:"weight,omitempty"`
}

type suspension struct {
	Dispatching           bool             `json:"dispatching,omitempty"`
	DispatchingOnClusters *suspendClusters `json:"dispatchingOnClusters,omitempty"`
	Scheduling            bool             `json:"scheduling,omitempty"`
}

type suspendClusters struct {
	ClusterNames []string `json:"clusterNames,omitempty"`
}

// Values of fields that the hub's API server and webhook fill in, and those that mean something to a plan.
const (
	never            = "Never"
	always           = "Always"
	abort            = "Abort"
	overwrite        = "Overwrite"
	defaultScheduler = "default-scheduler"
	defaultPatience  = 300 // s
	defaultGrace     = 600 // s

	directly    = "Directly"
	immediately = "Immediately"
	gracefully  = "Gracefully"
	graciously  = "Graciously"

	divided    = "Divided"
	duplicated = "Duplicated"
	weighted   = "Weighted"
	aggregated = "Aggregated"
	available  = "AvailableReplicas"
	gang       = "Gang"
	byCluster  = "cluster"
)

// isGang reports whether the policy has its jobs placed as a whole.
func (s *spec) isGang() bool {
	return s.Placement != nil && s.Placement.ReplicaScheduling != nil && s.Placement.ReplicaScheduling.CustomSchedulingType == gang
}

// graceful reports whether a job that moves to another cluster goes on in the old one until it is well in the new one.
func (a *applicationFailover) graceful() bool {
	return a.PurgeMode == "" || a.PurgeMode == gracefully || a.PurgeMode == graciously
}

// read makes a spec of data, without objects that are empty: they mean nothing, and a server-side apply that empties an object
// leaves null, which the API server refuses.
func read(data map[string]any) (s spec, err error) {
	var written spec
	if err = recode(data, &written); err == nil {
		err = recode(written, &s) // without empty lists
	}
	if err != nil {
		return s, fmt.Errorf("the policy is not what its kind promises: %w", err)
	}
	s.compact()
	return s, nil
}

// minimal takes out of the spec of a policy in a namespace what means nothing, and what a hub fills in where nobody says
// it: two specs of which this is the same are one policy.
func minimal(data map[string]any, namespace string) (map[string]any, error) {
	s, err := read(data)
	if err != nil {
		return nil, err
	}
	s.strip(namespace)
	out := map[string]any{}
	return out, recode(s, &out)
}

// complete is the spec of a policy in a namespace as it is written to a hub: with that namespace in each selector, as a hub
// puts it there, and with the defaults of objects that would be empty otherwise.
func complete(data map[string]any, namespace string) (map[string]any, error) {
	s, err := read(data)
	if err != nil {
		return nil, err
	}
	for i := range s.ResourceSelectors {
		s.ResourceSelectors[i].Namespace = namespace
	}
	if s.Failover != nil && s.Failover.Application != nil && s.Failover.Application.DecisionConditions.TolerationSeconds == nil {
		s.Failover.Application.DecisionConditions.TolerationSeconds = ptr.To[int64](defaultPatience)
	}
	if s.Placement != nil && s.Placement.ReplicaScheduling != nil && s.Placement.ReplicaScheduling.ReplicaSchedulingType == "" {
		s.Placement.ReplicaScheduling.ReplicaSchedulingType = divided
	}
	out := map[string]any{}
	return out, recode(s, &out)
}

// recode makes one form of a spec another one.
func recode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// compact takes out objects that are empty.
func (s *spec) compact() {
	for i := range s.ResourceSelectors {
		s.ResourceSelectors[i].LabelSelector = some(s.ResourceSelectors[i].LabelSelector)
	}
	s.Failover = some(s.Failover)
	if p := s.Placement; p != nil {
		if p.ClusterAffinity != nil {
			p.ClusterAffinity.compact()
		}
		p.ClusterAffinity = some(p.ClusterAffinity)
		for i := range p.ClusterAffinities {
			p.ClusterAffinities[i].compact()
		}
		if r := p.ReplicaScheduling; r != nil {
			if r.WeightPreference != nil {
				for i := range r.WeightPreference.StaticWeightList {
					r.WeightPreference.StaticWeightList[i].TargetCluster.compact()
				}
			}
			r.WeightPreference = some(r.WeightPreference)
		}
	}
	s.Placement = some(s.Placement)
	if s.Suspension != nil {
		if on := s.Suspension.DispatchingOnClusters; on != nil && len(on.ClusterNames) == 0 {
			s.Suspension.DispatchingOnClusters = nil
		}
	}
	s.Suspension = some(s.Suspension)
}

func (a *affinity) compact() {
	a.LabelSelector, a.FieldSelector = some(a.LabelSelector), some(a.FieldSelector)
}

// strip takes out defaults.
func (s *spec) strip(namespace string) {
	for i := range s.ResourceSelectors {
		drop(&s.ResourceSelectors[i].Namespace, namespace)
	}
	drop(&s.Preemption, never)
	drop(&s.ConflictResolution, abort)
	drop(&s.SchedulerName, defaultScheduler)
	if s.isGang() {
		drop(&s.SchedulerName, contract.FleetSchedulerName)
	}
	if s.Failover != nil && s.Failover.Application != nil {
		s.Failover.Application.strip()
	}
	if s.Placement != nil {
		s.Placement.strip()
	}
}

func (a *applicationFailover) strip() {
	if t := a.DecisionConditions.TolerationSeconds; t != nil && *t == defaultPatience {
		a.DecisionConditions.TolerationSeconds = nil
	}
	if a.graceful() && a.GracePeriodSeconds == defaultGrace {
		a.GracePeriodSeconds = 0
	}
	drop(&a.PurgeMode, gracefully)
}

func (p *placement) strip() {
	for i := range p.SpreadConstraints {
		c := &p.SpreadConstraints[i]
		if c.SpreadByField == "" && c.SpreadByLabel == "" {
			c.SpreadByField = byCluster
		}
		if c.MinGroups == 1 {
			c.MinGroups = 0
		}
	}
	r := p.ReplicaScheduling
	if r == nil {
		return
	}
	if r.ReplicaSchedulingType == "" {
		r.ReplicaSchedulingType = divided
	}
	if r.ReplicaSchedulingType == divided {
		drop(&r.ReplicaDivisionPreference, weighted)
	}
}

// drop empties a text that is the default.
func drop(text *string, byDefault string) {
	if *text == byDefault {
		*text = ""
	}
}

// some is what there is, nil where that is empty.
func some[T any](value *T) *T {
	if value == nil || reflect.ValueOf(*value).IsZero() {
		return nil
	}
	return value
}
