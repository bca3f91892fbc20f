package lifecycle

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Kept is what Terraform keeps of a resource beside its attributes.
type Kept struct {
	// UIDs are those of its objects in the cluster, as they were seen last.
	UIDs UIDs `json:"uids,omitempty"`
	// Unfinished means that an apply ended before all of it ran.
	Unfinished bool `json:"unfinished,omitempty"`
}

// UIDs are those of objects, by their names: they tell an object from another one that has its name by now.
type UIDs map[string]types.UID

// UIDsOf are the UIDs of objects.
func UIDsOf[O metav1.Object](objects ...O) UIDs {
	uids := UIDs{}
	for _, obj := range objects {
		uids[obj.GetName()] = obj.GetUID()
	}
	return uids
}

// Other reports whether an object is another one than that of its name. One of which there is no UID, as in
// states of earlier versions, is not.
func (u UIDs) Other(obj metav1.Object) bool {
	uid, seen := u[obj.GetName()]
	return seen && uid != obj.GetUID()
}

// Foreign reports whether an object that has the name of the resource's is someone else's: it is another one, and
// without the stamp of this configuration. One with the stamp was written again, as from a backup.
func (r *Resource[M]) Foreign(m *M, obj metav1.Object) bool {
	return r.Kept(m).UIDs.Other(obj) && !r.Session.Mine(obj.GetLabels()[contract.OwnerLabel])
}

// Private is where Terraform keeps it.
type Private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

const keptKey = "kept"

// keep writes down what is to be kept.
func (r *Resource[M]) keep(ctx context.Context, to Private, m *M) (diags diag.Diagnostics) {
	if r.Kept == nil {
		return nil
	}
	value, err := json.Marshal(r.Kept(m))
	if err != nil {
		diags.AddError("State cannot be written", err.Error())
		return diags
	}
	return to.SetKey(ctx, keptKey, value)
}

// Recall reads what was kept. States of earlier versions have nothing, and what cannot be read is nothing.
func (r *Resource[M]) Recall(ctx context.Context, from Private, m *M) diag.Diagnostics {
	if r.Kept == nil {
		return nil
	}
	value, diags := from.GetKey(ctx, keptKey)
	if err := json.Unmarshal(value, r.Kept(m)); err != nil {
		*r.Kept(m) = Kept{}
	}
	return diags
}
