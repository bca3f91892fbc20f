package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"

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
	// Stamp is that of another configuration, with which the object was imported, "" once it has this one's; of a
	// program the one that its workload had when it was seen last.
	Stamp string `json:"stamp,omitempty"`
	// Owner is the stamp that its object had last while it was this configuration's, "" where that is not known.
	Owner string `json:"owner,omitempty"`
	// Ended are the first and last indexes of pods that a training job makes no more, as it was seen last.
	Ended [][2]int `json:"ended,omitempty"`
	// Cluster is the UID of the cluster that has it, of what is in Kubernetes ([Resource.InCluster]), "" when it was not known.
	Cluster types.UID `json:"cluster,omitempty"`
	// Runtime is what has become of the TrainingRuntime of a TrainJob that runs on, "" where nothing has.
	Runtime string `json:"runtime,omitempty"`

	// taker is the stamp of the configuration that has taken it over, "" while nobody has.
	taker string
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
// without the stamp of this configuration, or another configuration has taken it over. Another one with the stamp was
// written again, as from a backup.
func (r *Resource[M]) Foreign(m *M, obj metav1.Object) bool {
	stamp := obj.GetLabels()[contract.OwnerLabel]
	if r.Kept(m).UIDs.Other(obj) {
		return !r.Session.Mine(stamp)
	}
	return r.TakenOver(m, stamp)
}

// TakenOver reports whether the stamp of an object is one that another configuration has written over the last one
// that it had as this configuration's.
func (r *Resource[M]) TakenOver(m *M, stamp string) bool {
	kept := r.Kept(m)
	taken := kept.Owner != "" && stamp != kept.Owner && r.Session.Theirs(stamp)
	if kept.taker = ""; taken {
		kept.taker = stamp
	}
	return taken
}

// NoteOwner keeps the stamp of an object that is this configuration's. What is in the state keeps an older one when the
// state moves.
func (r *Resource[M]) NoteOwner(m *M, stamp string) {
	if kept := r.Kept(m); r.Session.Mine(stamp) || kept.Owner == "" && r.Session.Owner != "" {
		kept.Owner = stamp
	}
}

// NoteStamp keeps the stamp with which an object is imported, until an update has written that of this
// configuration. The stamp of what is in the state stays when the state moves.
func (r *Resource[M]) NoteStamp(m *M, stamp string, imported bool) {
	switch kept := r.Kept(m); {
	case r.Session.Owner == "": // it is unknown until apply
		return
	case !r.Session.Theirs(stamp):
		kept.Stamp = ""
	case imported || kept.Stamp != "":
		kept.Stamp = stamp
		return
	}
	r.NoteOwner(m, stamp)
}

// Stamped keeps that an update has written the stamp of this configuration.
func (r *Resource[M]) Stamped(m *M) {
	kept := r.Kept(m)
	kept.Stamp, kept.Owner = "", r.Session.Owner
}

// sayTakenOver says why what another configuration has taken over counts as gone.
func (r *Resource[M]) sayTakenOver(m *M) (diags diag.Diagnostics) {
	if r.Kept == nil || r.Kept(m).taker == "" {
		return nil
	}
	diags.AddWarning(r.Title+" is another configuration's", fmt.Sprintf(
		"%s %s counts as gone here, and is left as it is: another configuration has taken it over, and its owner is %q by now (it was %q). Remove it from this configuration.",
		r.Title, r.ID(m), r.Kept(m).taker, r.Kept(m).Owner))
	return diags
}

// TakesOver says that a planned update writes the stamp of this configuration on what was imported.
func (r *Resource[M]) TakesOver(m *M, name string) (diags diag.Diagnostics) {
	if r.Session.Ledger.Applying() {
		return nil
	}
	diags.AddWarning(r.Title+" gets the owner of this configuration", fmt.Sprintf(
		"%s %s was imported, and carries the owner %q of another configuration. The apply writes %q on it, and changes nothing else for that. "+
			"It is right only once that configuration has given it up (`terraform state rm` there, or a removed block with destroy = false).",
		r.Title, name, r.Kept(m).Stamp, r.Session.Owner))
	return diags
}

// DeletesTheirs says that a plan deletes what was imported with the stamp of another configuration, and never got this one's.
func (r *Resource[M]) DeletesTheirs(m *M, name string) (diags diag.Diagnostics) {
	if r.Kept(m).Stamp == "" || r.Session.Ledger.Applying() {
		return nil
	}
	diags.AddWarning(r.Title+" of another configuration is deleted", fmt.Sprintf(
		"%s %s was imported, and carries the owner %q of another configuration (this one is %q). The plan deletes it. Where that configuration is to keep it, forget it here instead (`terraform state rm`, or a removed block with destroy = false).",
		r.Title, name, r.Kept(m).Stamp, r.Session.Owner))
	return diags
}

// SayImported says that what was imported carries the stamp of another configuration, and keeps it until an update writes
// that of this one: nothing else would tell that two configurations have it.
func (r *Resource[M]) SayImported(m *M, stamp string) (diags diag.Diagnostics) {
	if !r.Session.Theirs(stamp) || r.Session.Ledger.Applying() {
		return nil
	}
	diags.AddWarning(r.Title+" has the owner of another configuration", fmt.Sprintf(
		"%s %s carries the owner %q of another configuration (this one is %q), which goes on to change it, and deletes it when it is destroyed, until an apply here changes something of it. "+
			"The import is right only once that configuration has given it up (`terraform state rm` there, or a removed block with destroy = false).",
		r.Title, r.ID(m), stamp, r.Session.Owner))
	return diags
}

// elsewhere says as a clause that the cluster which has something is not the one that answers now, "" where it is, or nobody knows.
func (r *Resource[M]) elsewhere(ctx context.Context, m *M) string {
	if !r.InCluster || r.Kept(m).Cluster == "" {
		return ""
	}
	if now := r.Session.ClusterUID(ctx); now != "" && now != r.Kept(m).Cluster {
		return fmt.Sprintf("it was in another cluster than the one that answers now (the UIDs of their namespaces kube-system are %s and %s)", r.Kept(m).Cluster, now)
	}
	return ""
}

// moved says that what is found is in another cluster than the one that has it: it has come back there, as from a backup, or
// is one of its name that another state has. It counts as the former once a command refreshes the state and does nothing else.
func (r *Resource[M]) moved(ctx context.Context, m *M) (diags diag.Diagnostics) {
	where := r.elsewhere(ctx, m)
	switch {
	case where == "":
	case r.Session.Refreshes:
		r.Kept(m).Cluster = ""
		diags.AddWarning(r.Title+" is in another cluster", fmt.Sprintf("%s %s counts as the one of this cluster from now on: %s.", r.Title, r.ID(m), where))
	default:
		diags.AddWarning(r.Title+" is in another cluster", fmt.Sprintf(
			"%s %s need not be what has its name here: %s. Where the kubeconfig or its context is the wrong one, do not apply: what is here would be changed. "+
				"Where this cluster has come in the place of that one, as from a backup, refresh the state (`terraform apply -refresh-only`): until then it is not deleted here.",
			r.Title, r.ID(m), where))
	}
	return diags
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
	if r.InCluster && r.Kept(m).Cluster == "" {
		r.Kept(m).Cluster = r.Session.ClusterUID(ctx)
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
