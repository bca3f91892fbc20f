package propagationpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

var clusterKind = schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: contract.KarmadaClusterKind}

// ModifyPlan asks the hub what it would make of the policy.
func (r *policy) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Session == nil || req.Plan.Raw.IsNull() {
		return
	}
	var plan model
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); resp.Diagnostics.HasError() {
		return
	}
	named, isNew := known.Wholly(ctx, plan.Name, plan.Namespace), req.State.Raw.IsNull()
	if isNew {
		if named {
			plan.ID = types.StringValue(plan.object())
		}
	} else {
		var state model
		if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() || state.object() != plan.object() {
			return // Terraform asks once more, for the new one
		}
	}
	client, err := r.Session.Kube()
	if err != nil {
		if !r.Session.NotChecked(err, &resp.Diagnostics) {
			resp.Diagnostics.Append(notHub(err)...)
		}
		resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
		return
	}
	if !isNew && r.leaves(ctx, client, &plan) {
		plan.ID = types.StringUnknown()
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("id"))
	}
	kinds, err := fleetplan.PolicyKinds(ctx, client)
	switch {
	case errors.Is(err, fleetplan.ErrNoHub) && !r.Session.Ledger.Applying(): // what else is planned may make it one
		resp.Diagnostics.AddWarning(noHub, session.Sentence(err)+" An apply fails, unless it becomes a hub before.")
	case err != nil:
		resp.Diagnostics.Append(notHub(err)...)
	case isNew:
		plan.APIVersion = types.StringValue(kinds[0].GroupVersion().String())
	}
	if err == nil && named {
		r.tell(ctx, client, &plan)
	}
	if resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...); err != nil || !named || resp.Plan.Raw.Equal(req.State.Raw) {
		return
	}
	resp.Diagnostics.Append(r.check(ctx, client, req.State, &plan, isNew)...)
}

// tell tells the jobs of the fleet what becomes of the policy.
func (r *policy) tell(ctx context.Context, client *kube.Client, m *model) {
	fleet, err := r.Session.Fleet()
	if err != nil {
		return // which is said already
	}
	var obj *unstructured.Unstructured
	if values, _ := m.values(ctx); known.Wholly(ctx, values) {
		if kind, err := kindOf(ctx, client, m); err == nil {
			obj, _ = m.policy(ctx, kind, r.Session.Owner)
		}
	}
	if obj != nil && m.SchedulerName.IsNull() { // the hub chooses one when the policy is made
		if live, err := find(ctx, client, m); err == nil {
			takeScheduler(obj, live)
		} else if stored, err := client.TryCreate(ctx, obj); err == nil {
			takeScheduler(obj, stored)
		}
	}
	fleet.PlanPolicy(m.namespace(), m.Name.ValueString(), obj)
}

// takeScheduler gives a policy the scheduler of another one.
func takeScheduler(policy, from *unstructured.Unstructured) {
	name, _, _ := unstructured.NestedString(from.Object, "spec", "schedulerName")
	_ = unstructured.SetNestedField(policy.Object, name, "spec", "schedulerName") // a policy has a spec
}

// leaves reports whether the policy's deletion has begun, which nothing stops: a destroy waits for its end, and any other plan
// for a new policy.
func (r *policy) leaves(ctx context.Context, client *kube.Client, m *model) bool {
	if r.Session.Ledger.Applying() {
		return false // Terraform accepts no replacement that it was not told of
	}
	obj, err := find(ctx, client, m)
	return err == nil && obj.GetDeletionTimestamp() != nil
}

// check asks what the hub has to say to the policy: what is in its way, rights, admission, and what it names.
func (r *policy) check(ctx context.Context, client *kube.Client, of tfsdk.State, m *model, isNew bool) (diags diag.Diagnostics) {
	kind, err := kindOf(ctx, client, m)
	if err != nil {
		return notHub(err)
	}
	exists := !isNew
	if isNew && !r.Session.Ledger.Owns(owned(m)) { // of a replacement, the old one is in the state
		var more diag.Diagnostics
		exists, more = r.checkExisting(ctx, client, m)
		if diags.Append(more...); diags.HasError() {
			return diags
		}
	}
	diags.Append(r.Session.Rights(ctx, m.identified(kind))...)
	if diags.HasError() || r.Session.Ledger.Applying() {
		return diags
	}
	if values, _ := m.values(ctx); known.Wholly(ctx, values) {
		obj, more := r.described(ctx, of, client, m)
		if diags.Append(more...); diags.HasError() {
			return diags
		}
		for _, d := range r.Session.Writes(ctx, obj, exists, "policy", "") {
			if d.Severity() == diag.SeverityError {
				d = diag.NewErrorDiagnostic(d.Summary(), d.Detail()+hint(d.Detail()))
			}
			diags.Append(d)
		}
	}
	diags.Append(m.checkSelected(ctx, client)...)
	return append(diags, m.checkClusters(ctx, client)...)
}

// checkExisting refuses to plan a new policy in the place of one of others. exists means that an earlier apply of this
// configuration has made it.
func (r *policy) checkExisting(ctx context.Context, client *kube.Client, m *model) (exists bool, diags diag.Diagnostics) {
	live, err := find(ctx, client, m)
	switch {
	case kube.IsNotFound(err) || err == nil && live.GetDeletionTimestamp() != nil:
		return false, nil
	case err != nil:
		return false, notHub(err)
	case !r.Session.Mine(live.GetLabels()[contract.OwnerLabel]):
		diags.AddAttributeError(path.Root("name"), title+" cannot be created", session.Sentence(r.taken(live)))
	case !r.Session.Ledger.Applying():
		diags.AddWarning(title+" exists already", fmt.Sprintf(
			"Policy %s of this configuration exists, and Terraform makes a new one without regard to it, as after an apply that was cut off, `terraform state rm`, "+
				"or a change of the address without a moved block. The apply goes on with it, changed where it differs.", m.object()))
	}
	return true, diags
}

// checkSelected warns of selectors to which nothing answers on the hub. Where it does not say, nobody does.
func (m *model) checkSelected(ctx context.Context, client *kube.Client) (diags diag.Diagnostics) {
	s, _ := m.known(ctx)
	var said []string
	for i, selector := range s.ResourceSelectors {
		at := path.Root("resource_selectors").AtListIndex(i)
		kind := schema.FromAPIVersionAndKind(selector.APIVersion, selector.Kind)
		served, err := client.Serves(kind)
		if err == nil && !served {
			said = append(said, fmt.Sprintf("%s: the hub serves no %s %s: install its CRD on the hub, or correct the selector.", at, selector.APIVersion, selector.Kind))
		}
		if err != nil || !served || selector.Name == "" && selector.LabelSelector == nil {
			continue // all of the kind: there is nothing to misspell
		}
		by, match := "", labels.Everything()
		if selector.Name == "" {
			if match, err = metav1.LabelSelectorAsSelector(selector.LabelSelector); err != nil {
				continue
			}
			by = " with these labels"
		}
		found := false
		if selector.Name != "" {
			by = fmt.Sprintf(" called %q", selector.Name)
			_, err = client.Get(ctx, kind, m.namespace(), selector.Name)
			found = err == nil
			if kube.IsNotFound(err) {
				err = nil
			}
		} else {
			items, listErr := client.List(ctx, kind, m.namespace(), match.String())
			found, err = len(items) > 0, listErr
		}
		if err == nil && !found {
			said = append(said, fmt.Sprintf("%s: the namespace %s of the hub has no %s%s yet.", at, m.namespace(), selector.Kind, by))
		}
	}
	if len(said) > 0 { // Terraform shows one warning of those that are alike
		diags.AddAttributeWarning(path.Root("resource_selectors"), "Selectors select nothing", strings.Join(said, " ")+" What comes later is sent to clusters then.")
	}
	return diags
}

// checkClusters warns of clusters that the hub does not know. Where it does not say, nobody does.
func (m *model) checkClusters(ctx context.Context, client *kube.Client) (diags diag.Diagnostics) {
	s, _ := m.known(ctx)
	names := s.clusters()
	if len(names) == 0 {
		return nil
	}
	items, err := client.List(ctx, clusterKind, "", "")
	if err != nil {
		return nil
	}
	var has []string
	for i := range items {
		has = append(has, items[i].GetName())
	}
	slices.Sort(has)
	unknown := slices.DeleteFunc(names, func(n clusterName) bool { return slices.Contains(has, n.text) })
	var said []string
	for _, n := range unknown {
		said = append(said, fmt.Sprintf("%s: the hub has no cluster %q.", n.at, n.text))
	}
	if len(said) > 0 {
		diags.AddAttributeWarning(unknown[0].at, "Clusters are not known", strings.Join(said, " ")+" Its clusters: "+strings.Join(has, ", ")+".")
	}
	return diags
}
