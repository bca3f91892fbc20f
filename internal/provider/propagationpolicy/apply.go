package propagationpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// limits hold unless the user sets others.
var limits = lifecycle.Limits{Create: 5 * time.Minute, Update: 5 * time.Minute, Delete: 5 * time.Minute}

const notWritten = title + " was not written"

func (r *policy) add(ctx context.Context, of tfsdk.State, m *model) (exists bool, diags diag.Diagnostics) {
	defer r.Session.Ledger.Begin(owned(m))()
	diags = r.apply(ctx, of, m, r.create)
	return !diags.HasError(), diags
}

func (r *policy) change(ctx context.Context, of tfsdk.State, before, m *model) (changed bool, diags diag.Diagnostics) {
	diags = r.apply(ctx, of, m, func(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		live, err := find(ctx, client, before)
		if err == nil && r.Foreign(before, live) {
			err = fmt.Errorf("policy %s is another one since the plan was made: plan again", m.object())
		}
		if err != nil && !kube.IsNotFound(err) {
			return nil, err
		}
		return write(ctx, client, obj)
	})
	return !diags.HasError(), diags
}

func (r *policy) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	client, err := r.Session.Kube()
	if err != nil {
		return nil, err
	}
	obj, err := find(ctx, client, m)
	switch {
	case kube.IsNotFound(err) || errors.Is(err, fleetplan.ErrNoHub):
		return nil, nil
	case err != nil:
		return nil, err
	case r.Foreign(m, obj):
		return nil, nil
	}
	return nil, client.DeleteObject(ctx, obj)
}

// apply has the policy written.
func (r *policy) apply(ctx context.Context, of tfsdk.State, m *model,
	write func(context.Context, *kube.Client, *unstructured.Unstructured) (*unstructured.Unstructured, error)) (diags diag.Diagnostics) {
	client, err := r.Session.Kube()
	if err != nil {
		diags.AddError(notWritten, session.Sentence(err))
		return diags
	}
	obj, diags := r.described(ctx, of, client, m)
	if diags.HasError() {
		return diags
	}
	stored, err := write(ctx, client, obj)
	if err != nil {
		diags.AddError(notWritten, session.Sentence(err)+hint(err.Error()))
		return diags
	}
	m.identify(stored)
	r.Stamped(m)
	fields, more := m.changed(ctx, stored)
	if diags.Append(more...); len(fields) > 0 {
		diags.AddWarning("The hub has changed the policy", fmt.Sprintf(
			"What was written to %s is not what the hub has made of it: %s. The next plan shows how; write what the hub wants.", m.object(), strings.Join(slices.Sorted(maps.Keys(fields)), ", ")))
	}
	return diags
}

// create writes a new policy, or goes on with one that an apply of this configuration has created, and did not live to record.
func (r *policy) create(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	for {
		live, err := client.GetSettled(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName(), nil)
		switch {
		case err == nil && r.Session.Mine(live.GetLabels()[contract.OwnerLabel]):
			return write(ctx, client, obj)
		case err == nil:
			return nil, r.taken(live)
		case !kube.IsNotFound(err):
			return nil, err
		}
		created, err := client.Create(ctx, obj)
		if !kube.IsAlreadyExists(err) {
			return created, err
		} // an apply at the same time was faster
	}
}

// taken says that a policy of others is in the way of a new one.
func (r *policy) taken(live *unstructured.Unstructured) error {
	id := live.GetNamespace() + "/" + live.GetName()
	return fmt.Errorf("there is a policy %s: %s", id, r.Session.Advice(session.Foreign{
		Stamp: live.GetLabels()[contract.OwnerLabel], Resource: "gpuplan_propagation_policy", ID: id, Renamable: true, Deletable: true}))
}

// write writes a policy that exists, and takes out of it what others have added, which an apply leaves.
func write(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := client.Manage(ctx, obj); err != nil {
		return nil, err
	}
	stored, err := client.TakeOver(ctx, obj) // what others have changed is in the plan
	if err != nil {
		return nil, err
	}
	ours, _, _ := unstructured.NestedMap(obj.Object, "spec")
	live, _, _ := unstructured.NestedMap(stored.Object, "spec")
	wanted, err := minimal(ours, obj.GetNamespace())
	if err != nil {
		return nil, err
	}
	is, err := minimal(live, obj.GetNamespace())
	if err != nil || reflect.DeepEqual(wanted, is) {
		return stored, err
	}
	patch, err := json.Marshal(map[string]any{"spec": added(ours, is)})
	if err == nil {
		policies := client.Dynamic.Resource(obj.GroupVersionKind().GroupVersion().WithResource(contract.PropagationPolicyResource)).Namespace(obj.GetNamespace())
		stored, err = policies.Patch(ctx, obj.GetName(), apitypes.MergePatchType, patch, metav1.PatchOptions{FieldManager: contract.FieldManager})
	}
	if err != nil {
		return nil, fmt.Errorf("take out of the policy what others have added: %w", err)
	}
	return stored, nil
}

// added is a patch that takes out of theirs the fields that ours lacks.
func added(ours, theirs map[string]any) map[string]any {
	gone := map[string]any{}
	for name, value := range theirs {
		mine, has := ours[name]
		below, _ := value.(map[string]any)
		if !has {
			gone[name] = nil
		} else if mine, ok := mine.(map[string]any); ok {
			if more := added(mine, below); len(more) > 0 {
				gone[name] = more
			}
		}
	}
	return gone
}

// hint says what to do where a hub does not know fields that only ACK's have, or does not let one change.
func hint(refusal string) string {
	if strings.Contains(refusal, "schedulerName should not be updated") {
		return " A hub with Karmada's webhook does not let a policy change its scheduler: make another one in its place (terraform apply -replace), which leaves jobs where they are, or leave scheduler_name as it was."
	}
	if strings.Contains(refusal, "customSchedulingType") || strings.Contains(refusal, "suspension.scheduling") {
		return " suspension.scheduling and custom_scheduling_type are fields of ACK One's Fleet, which the policies of Karmada alone lack: leave them out there, with scheduler_name = \"" + contract.FleetSchedulerName + "\" for gangs, or extend the CRD, as the hub of the local platform has it."
	}
	return ""
}
