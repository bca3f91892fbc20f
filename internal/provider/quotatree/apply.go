package quotatree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// limits hold unless the user sets others; create and update wait for the kind to be installed.
var limits = lifecycle.Limits{Create: 5 * time.Minute, Update: 5 * time.Minute, Delete: 5 * time.Minute}

var (
	crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	crd     = schema.GroupResource{Group: contract.QuotaTreeGroup, Resource: contract.QuotaTreeResource}
)

func (r *tree) add(ctx context.Context, of tfsdk.State, m *model) (exists bool, diags diag.Diagnostics) {
	diags = r.apply(ctx, of, nil, m)
	return !diags.HasError(), diags
}

func (r *tree) change(ctx context.Context, of tfsdk.State, before, m *model) (changed bool, diags diag.Diagnostics) {
	if diags = r.refuseUsed(ctx, *before, *m); diags.HasError() {
		return false, diags
	}
	diags.Append(r.apply(ctx, of, before, m)...)
	return !diags.HasError(), diags
}

func (r *tree) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	client, err := r.Session.Kube()
	if err != nil {
		return nil, err
	}
	live, others, err := r.live(ctx, client, m)
	switch {
	case others || err != nil:
		return nil, err
	case m.replaced && live != nil && live.GetName() == contract.QuotaTreeName && live.GetDeletionTimestamp() == nil:
		r.Session.Ledger.Own(owned)
		return nil, nil
	}
	defer r.Session.Changed()
	return nil, client.Delete(ctx, kind, contract.QuotaTreeNamespace, objectName(*m))
}

// live is the tree that has the resource's name by now, nil for none. others means that it is someone else's.
func (r *tree) live(ctx context.Context, client *kube.Client, m *model) (obj *unstructured.Unstructured, others bool, err error) {
	obj, err = client.Get(ctx, kind, contract.QuotaTreeNamespace, objectName(*m))
	switch {
	case kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return obj, r.Foreign(m, obj), nil
}

// apply writes the tree; before is nil for a new one. A new one takes over a tree that exists only if it replaces that, or
// an apply of this configuration created it, and did not live to record it.
func (r *tree) apply(ctx context.Context, of tfsdk.State, before, m *model) (diags diag.Diagnostics) {
	client, err := r.Session.Kube()
	if err != nil {
		diags.AddError("Quota tree was not written", session.Sentence(err))
		return diags
	}
	if err := waitServed(ctx, client); err != nil {
		diags.AddError("The cluster has no quota trees", session.Sentence(err))
		return diags
	}
	obj, objectDiags := r.described(ctx, of, m)
	if diags.Append(objectDiags...); diags.HasError() {
		return diags
	}
	var stored *unstructured.Unstructured
	goesOn := false
	if before == nil {
		stored, goesOn, err = r.create(ctx, client, obj)
	} else {
		stored, err = r.update(ctx, client, before, obj)
	}
	if err != nil {
		diags.AddError("Quota tree was not written", session.Sentence(err))
		return diags
	}
	r.Session.Changed()
	m.kept.UIDs = lifecycle.UIDsOf(stored)
	r.Stamped(m)
	if goesOn {
		diags.AddWarning("Quota tree was there already", fmt.Sprintf(
			"Quota tree %s/%s of this configuration exists, so it goes on, changed where it differed.", obj.GetNamespace(), obj.GetName()))
	}
	planned := *m
	diags.Append(m.refresh(ctx, stored)...)
	if !m.Total.Equal(planned.Total) || !m.MaxJobs.Equal(planned.MaxJobs) || !m.Quotas.Equal(planned.Quotas) {
		m.Total, m.MaxJobs, m.Quotas = planned.Total, planned.MaxJobs, planned.Quotas
		if !planned.Leaves.IsUnknown() {
			m.Leaves = planned.Leaves
		}
		diags.AddWarning("Quota tree was changed by admission", fmt.Sprintf(
			"What was written to quota tree %s is not what the API server's admission (a webhook or a policy) has made of it. The next plan shows how; write here what it makes, or change what does so.", m.ID.ValueString()))
	}
	return diags
}

// described is the object of the tree, with what the object cannot tell written down on it.
func (r *tree) described(ctx context.Context, of tfsdk.State, m *model) (*unstructured.Unstructured, diag.Diagnostics) {
	obj, diags := m.object(ctx, objectName(*m), r.Session.Owner)
	if diags.HasError() {
		return nil, diags
	}
	var derived model
	diags.Append(written.Blank(ctx, of, &derived)...)
	diags.Append(derived.imported(ctx, obj)...)
	diags.Append(written.Note(ctx, of, obj, m, derived)...)
	return obj, diags
}

// update writes the tree that the resource has had.
func (r *tree) update(ctx context.Context, client *kube.Client, before *model, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	_, others, err := r.live(ctx, client, before)
	if err != nil {
		return nil, err
	}
	if others {
		return nil, fmt.Errorf("quota tree %s/%s is another one since the plan was made: plan again", obj.GetNamespace(), obj.GetName())
	}
	return write(ctx, client, obj)
}

// write writes a tree that exists, and takes out of its total what others have added, which an apply leaves.
func write(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := client.Manage(ctx, obj); err != nil {
		return nil, err
	}
	stored, err := client.TakeOver(ctx, obj) // what others have changed is in the plan
	if err != nil {
		return nil, err
	}
	added := map[string]any{}
	for _, limits := range []string{"min", "max"} {
		ours, _, _ := unstructured.NestedMap(obj.Object, "spec", "root", limits)
		live, _, _ := unstructured.NestedMap(stored.Object, "spec", "root", limits)
		gone := map[string]any{}
		for name := range live {
			if _, kept := ours[name]; !kept {
				gone[name] = nil
			}
		}
		if len(gone) > 0 {
			added[limits] = gone
		}
	}
	if len(added) == 0 {
		return stored, nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"root": added}})
	if err == nil {
		trees := client.Dynamic.Resource(kind.GroupVersion().WithResource(contract.QuotaTreeResource)).Namespace(contract.QuotaTreeNamespace)
		stored, err = trees.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: contract.FieldManager})
	}
	if err != nil {
		return nil, fmt.Errorf("take what others have added out of the quota tree's total: %w", err)
	}
	return stored, nil
}

// create writes a new tree, or goes on with one of this configuration.
func (r *tree) create(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) (stored *unstructured.Unstructured, goesOn bool, err error) {
	defer r.Session.Ledger.Begin(owned)()
	for {
		exists, err := r.makeRoom(ctx, client)
		if err != nil {
			return nil, false, err
		}
		if exists {
			stored, err = write(ctx, client, obj)
			return stored, true, err
		}
		if stored, err = client.Create(ctx, obj); !kube.IsAlreadyExists(err) {
			return stored, false, err
		} // an apply at the same time was faster
	}
}

// waitServed waits until the kind is installed: the program that installs it may be
// created by the same apply.
func waitServed(ctx context.Context, client *kube.Client) error {
	_, served, err := client.Served(ctx, kind.Group, kind.Kind)
	if served || err != nil {
		return err
	}
	progress := func(status string) {
		tflog.Info(ctx, "waiting for the kind "+kind.Kind, map[string]any{"status": status})
	}
	_, err = client.WaitFor(ctx, crdKind, "", crd.String(), func(*unstructured.Unstructured) (bool, string, error) {
		return true, "created", nil
	}, progress)
	if err == nil {
		err = client.AwaitServed(ctx, crd)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the kind %s is not installed. A gpuplan_scheduler installs it: add one, and name it in depends_on of the quota tree "+
			"so that it comes first; on ACK the add-on ack-kube-queue installs it as well (%w)", kind.Kind, err)
	}
	return err
}

// makeRoom refuses a new tree beside another one, and waits for one that is being deleted. exists
// means that the tree is there already, to go on.
func (r *tree) makeRoom(ctx context.Context, client *kube.Client) (exists bool, err error) {
	items, err := client.List(ctx, kind, contract.QuotaTreeNamespace, "")
	if err != nil {
		return false, err
	}
	for i := range items {
		live, err := client.GetSettled(ctx, kind, contract.QuotaTreeNamespace, items[i].GetName(), nil)
		if kube.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = r.second(live)
		}
		if err != nil {
			return false, err
		}
		exists = true
	}
	return exists, nil
}

// second says that a tree is in the way of a new one, unless that replaces it, or an earlier apply of this
// configuration has made it.
func (r *tree) second(live metav1.Object) error {
	stamp := live.GetLabels()[contract.OwnerLabel]
	if live.GetName() == contract.QuotaTreeName && (r.Session.Ledger.Owns(owned) || r.Session.Mine(stamp)) {
		return nil
	}
	name := contract.QuotaTreeNamespace + "/" + live.GetName()
	return fmt.Errorf("only one quota tree of a cluster is effective, and there is %s: %s", name,
		r.Session.Advice(session.Foreign{Stamp: stamp, Resource: "gpuplan_quota_tree", ID: name, Deletable: true}))
}
