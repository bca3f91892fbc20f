package fleetplan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// policyGroups are those of policies, the one first that a hub with both is asked for: a Fleet's own has more fields.
var policyGroups = []string{contract.ACKPolicyGroup, contract.KarmadaPolicyGroup}

// ErrNoHub means that the cluster serves no propagation policies.
var ErrNoHub = fmt.Errorf("the cluster is no hub of a fleet: it serves propagation policies neither as %s, as the Fleet of ACK One does, nor as %s, as Karmada does; "+
	"configure the provider, or an alias of it, for the hub, whose kubeconfig is another one than those of its member clusters", contract.ACKPolicyGroup, contract.KarmadaPolicyGroup)

// PolicyKinds are the kinds of policies that a hub serves. The error is [ErrNoHub] where it serves none.
func PolicyKinds(ctx context.Context, hub *kube.Client) (kinds []schema.GroupVersionKind, err error) {
	for _, group := range policyGroups {
		version, served, err := hub.Served(ctx, group, contract.PropagationPolicyKind)
		if err != nil {
			return nil, err
		}
		if served {
			kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: contract.PropagationPolicyKind})
		}
	}
	if len(kinds) == 0 {
		return nil, ErrNoHub
	}
	return kinds, nil
}

// FindPolicy returns the policy of that namespace and name, in whatever group it is, the one of that group and version first. The error
// answers to [kube.IsNotFound] where there is none, and is [ErrNoHub] where the cluster is no hub.
func FindPolicy(ctx context.Context, hub *kube.Client, namespace, name, first string) (policy *unstructured.Unstructured, err error) {
	kinds, err := PolicyKinds(ctx, hub)
	if err != nil {
		return nil, err
	}
	if len(kinds) > 1 && kinds[1].GroupVersion().String() == first {
		slices.Reverse(kinds)
	}
	for _, kind := range kinds {
		policy, err = hub.Get(ctx, kind, namespace, name)
		if !kube.IsNotFound(err) {
			break
		}
	}
	return policy, err
}

// Policy is what a propagation policy says of the jobs that it selects.
type Policy struct {
	Name string
	// Scheduler is the name of the one that chooses clusters, "" where that is not known.
	Scheduler string
	// Held means that the jobs wait in the queue of the hub.
	Held bool
	fleet.Rules

	selectors []selector
}

type selector struct {
	APIVersion    string                `json:"apiVersion"`
	Kind          string                `json:"kind"`
	Name          string                `json:"name"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector"`
}

// policyOf reads a policy.
func policyOf(object *unstructured.Unstructured) (*Policy, error) {
	var read struct {
		Spec struct {
			ResourceSelectors []selector  `json:"resourceSelectors"`
			SchedulerName     string      `json:"schedulerName"`
			Placement         fleet.Rules `json:"placement"`
			Suspension        struct {
				Scheduling bool `json:"scheduling"`
			} `json:"suspension"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &read); err != nil {
		return nil, fmt.Errorf("policy %s/%s is not what its kind promises: %w", object.GetNamespace(), object.GetName(), err)
	}
	s := read.Spec
	p := &Policy{Name: object.GetName(), Scheduler: s.SchedulerName, Held: s.Suspension.Scheduling, Rules: s.Placement, selectors: s.ResourceSelectors}
	return p, nil
}

// Has reports whether the policy selects a job of a kind, by its name and labels.
func (p *Policy) Has(kind schema.GroupVersionKind, name string, of map[string]string) bool {
	return slices.ContainsFunc(p.selectors, func(s selector) bool {
		if s.APIVersion != kind.GroupVersion().String() || s.Kind != kind.Kind {
			return false
		}
		if s.Name != "" || s.LabelSelector == nil {
			return s.Name == "" || s.Name == name
		}
		match, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
		return err == nil && match.Matches(labels.Set(of))
	})
}

// ErrPolicyOpen means that some of a policy is unknown until apply.
var ErrPolicyOpen = errors.New("some of the policy is unknown until apply")

// PlanPolicy records what the walk makes of a policy, nil where that is unknown until apply.
func (f *Fleet) PlanPolicy(namespace, name string, object *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policies[namespace+"/"+name] = nil
	if object == nil {
		return
	}
	if p, err := policyOf(object); err == nil { // else the hub says what is wrong
		f.policies[namespace+"/"+name] = p
	}
}

// Policy is the policy of that namespace and name as the walk makes it, else as the hub has it. The error answers to [kube.IsNotFound]
// where there is none, and is [ErrPolicyOpen] or [ErrNoHub].
func (f *Fleet) Policy(ctx context.Context, namespace, name string) (*Policy, error) {
	f.mu.Lock()
	p, known := f.policies[namespace+"/"+name]
	f.mu.Unlock()
	switch {
	case known && p == nil:
		return nil, ErrPolicyOpen
	case known:
		return p, nil
	}
	object, err := FindPolicy(ctx, f.hub, namespace, name, "")
	if err != nil {
		return nil, err
	}
	return policyOf(object)
}
