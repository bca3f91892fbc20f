package fleetplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	// Dependencies means that what the jobs refer to is sent along with them.
	Dependencies bool
	fleet.Rules

	// priority is the greater, the sooner the policy takes objects that others select as well.
	priority  int32
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
			Priority          int32       `json:"priority"`
			SchedulerName     string      `json:"schedulerName"`
			PropagateDeps     bool        `json:"propagateDeps"`
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
	p := &Policy{Name: object.GetName(), Scheduler: s.SchedulerName, Held: s.Suspension.Scheduling, Dependencies: s.PropagateDeps, Rules: s.Placement, priority: s.Priority, selectors: s.ResourceSelectors}
	return p, nil
}

// Has reports whether the policy selects a job of a kind, by its name and labels.
func (p *Policy) Has(kind schema.GroupVersionKind, name string, of map[string]string) bool {
	return p.selects(kind, name, of) > 0
}

// selects is how narrowly the policy selects a job, 0 where it does not: by its kind, by its labels, or by its name.
func (p *Policy) selects(kind schema.GroupVersionKind, name string, of map[string]string) (how int) {
	for _, s := range p.selectors {
		if s.APIVersion != kind.GroupVersion().String() || s.Kind != kind.Kind {
			continue
		}
		switch {
		case s.Name == name:
			how = max(how, 3)
		case s.Name != "":
		case s.LabelSelector == nil:
			how = max(how, 1)
		default:
			if match, err := metav1.LabelSelectorAsSelector(s.LabelSelector); err == nil && match.Matches(labels.Set(of)) {
				how = max(how, 2)
			}
		}
	}
	return how
}

// taker is the policy that takes a new job from the one that it names, by the rules of Karmada, nil for none: the higher priority, the
// narrower selection, the name. https://github.com/karmada-io/karmada/blob/v1.17.1/pkg/detector/compare.go
func (f *Fleet) taker(ctx context.Context, j Job) *Policy {
	namespace, name, _ := strings.Cut(j.ID, "/")
	best := j.Policy
	for _, p := range f.policiesOf(ctx, namespace) {
		if p.Name == j.Policy.Name || !p.Has(j.Kind, name, j.Labels) {
			continue
		}
		if cmp.Or(cmp.Compare(best.priority, p.priority), cmp.Compare(best.selects(j.Kind, name, j.Labels), p.selects(j.Kind, name, j.Labels)), cmp.Compare(p.Name, best.Name)) < 0 {
			best = p
		}
	}
	if best == j.Policy {
		return nil
	}
	return best
}

// policiesOf are the policies of a namespace as the walk makes them, as far as it knows, else as the hub has them.
func (f *Fleet) policiesOf(ctx context.Context, namespace string) (all []*Policy) {
	f.mu.Lock()
	listed, known := f.listed[namespace]
	f.mu.Unlock()
	if !known {
		if kinds, err := PolicyKinds(ctx, f.hub); err == nil {
			listed, _ = f.hub.List(ctx, kinds[0], namespace, "") // who may not list them is not told of others
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed[namespace] = listed
	for i := range listed {
		if _, planned := f.policies[namespace+"/"+listed[i].GetName()]; planned || listed[i].GetDeletionTimestamp() != nil {
			continue
		}
		if p, err := policyOf(&listed[i]); err == nil {
			all = append(all, p)
		}
	}
	for key, p := range f.policies {
		if p != nil && strings.HasPrefix(key, namespace+"/") {
			all = append(all, p)
		}
	}
	return all
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
