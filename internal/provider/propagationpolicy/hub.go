package propagationpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// groups are those of policies, the one first that a hub with both is asked for: a Fleet's own has more fields.
var groups = []string{contract.ACKPolicyGroup, contract.KarmadaPolicyGroup}

const noHub = "The cluster is no hub"

// errNoHub: the cluster serves no propagation policies.
var errNoHub = fmt.Errorf("the cluster is no hub of a fleet: it serves propagation policies neither as %s, as the Fleet of ACK One does, nor as %s, as Karmada does; "+
	"configure the provider, or an alias of it, for the hub, whose kubeconfig is another one than those of its member clusters", contract.ACKPolicyGroup, contract.KarmadaPolicyGroup)

// servedKinds are the kinds of policies that the hub serves. The error is errNoHub where it serves none.
func servedKinds(ctx context.Context, client *kube.Client) (kinds []schema.GroupVersionKind, err error) {
	for _, group := range groups {
		version, served, err := client.Served(ctx, group, contract.PropagationPolicyKind)
		if err != nil {
			return nil, err
		}
		if served {
			kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: contract.PropagationPolicyKind})
		}
	}
	if len(kinds) == 0 {
		return nil, errNoHub
	}
	return kinds, nil
}

// kindOf is the kind that the policy of a model has, or gets, with the errors of servedKinds.
func kindOf(ctx context.Context, client *kube.Client, m *model) (schema.GroupVersionKind, error) {
	if has := m.APIVersion.ValueString(); has != "" {
		return schema.FromAPIVersionAndKind(has, contract.PropagationPolicyKind), nil
	}
	kinds, err := servedKinds(ctx, client)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

// find returns the policy of that namespace and name, in whatever group it is. The error answers to [kube.IsNotFound] where
// there is none, and is errNoHub where the cluster is no hub.
func find(ctx context.Context, client *kube.Client, m *model) (*unstructured.Unstructured, error) {
	kinds, err := servedKinds(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(kinds) > 1 && kinds[1].GroupVersion().String() == m.APIVersion.ValueString() { // that of the state comes first
		slices.Reverse(kinds)
	}
	var obj *unstructured.Unstructured
	for _, kind := range kinds {
		obj, err = client.Get(ctx, kind, m.namespace(), m.Name.ValueString())
		if !kube.IsNotFound(err) {
			break
		}
	}
	return obj, err
}

// notHub says that policies cannot be written to the cluster.
func notHub(err error) (diags diag.Diagnostics) {
	summary := "Propagation policies cannot be looked up"
	if errors.Is(err, errNoHub) {
		summary = noHub
	}
	diags.AddError(summary, session.Sentence(err))
	return diags
}
