package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Timeout is how long install and removal may take unless the user says otherwise.
const Timeout = 10 * time.Minute

// Manager is one of our programs in the cluster of a session.
type Manager struct {
	Session *session.Session
	// Title is the program for people, "Scheduler"; Resource its Terraform type.
	Title, Resource string
	// Name is the name of the program's workload.
	Name string
	// Kind is the kind of the workload, "Deployment" or "DaemonSet".
	Kind string
	// Optional are kinds of objects that a cluster may lack, or serve in another version.
	// They serve the workload, so they come after it. Without says what they are missed for.
	Optional []string
	Without  string
	// OldestMinor is the minor version of the oldest Kubernetes on which the program runs, 0 for any.
	OldestMinor int
	// Removed is told that a plan removes the program, and says who would miss it; nil for nobody.
	Removed func(context.Context, *session.Session) diag.Diagnostics
}

// ID is the import ID: namespace and name of the workload.
func (p Manager) ID() string { return contract.SystemNamespace + "/" + p.Name }

// describe puts the stamp of this configuration on a program's manifests, and turns an
// error of them into a diagnostic.
func (p Manager) describe(objs []*unstructured.Unstructured, err error) ([]*unstructured.Unstructured, diag.Diagnostics) {
	var diags diag.Diagnostics
	if err != nil {
		diags.AddError(p.Title+" cannot be described", session.Sentence(err))
	}
	for _, obj := range objs {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[contract.OwnerLabel] = p.Session.Owner
		obj.SetLabels(labels)
	}
	return objs, diags
}

// Apply installs the objects or brings them up to date, and waits until they run.
func (p Manager) Apply(ctx context.Context, objs []*unstructured.Unstructured) (diags diag.Diagnostics) {
	client, err := p.Session.Kube()
	if err == nil {
		err = p.install(ctx, client, objs)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w. `kubectl -n %s describe %s %s` shows what it waits for", err, contract.SystemNamespace, p.Kind, p.Name)
	}
	if err != nil {
		diags.AddError(p.Title+" is not running", session.Sentence(err))
	}
	return diags
}

func (p Manager) install(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured) error {
	core, optional, err := p.split(ctx, client, objs)
	if err != nil {
		return err
	}
	progress := func(status string) { tflog.Info(ctx, p.Name+": "+status) }
	for _, objs := range [][]*unstructured.Unstructured{core, optional} {
		if err := p.write(ctx, client, objs, progress); err != nil {
			return err
		}
		if err := awaitRunning(ctx, client, objs, progress); err != nil {
			return err
		}
	}
	return nil
}

// sharedObjects is the ledger's name of the namespaces and definitions that our programs have in common. One
// that another program removes at the same time would take with it what is put there.
const sharedObjects = "namespaces and definitions of the programs"

func (p Manager) write(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured, progress func(string)) error {
	defer p.Session.Ledger.Begin(sharedObjects)()
	return write(ctx, client, objs, progress)
}

// split tells the optional objects that the cluster serves from the others, and gives
// them the version in which it does.
func (p Manager) split(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured) (core, optional []*unstructured.Unstructured, err error) {
	for _, obj := range objs {
		if !slices.Contains(p.Optional, obj.GetKind()) {
			core = append(core, obj)
			continue
		}
		gvk := obj.GroupVersionKind()
		version, served, err := client.Served(ctx, gvk.Group, gvk.Kind)
		if err != nil {
			return nil, nil, err
		}
		if served {
			gvk.Version = version
			obj.SetGroupVersionKind(gvk)
			optional = append(optional, obj)
		}
	}
	return core, optional, nil
}

// CheckServed warns when the cluster lacks optional objects.
func (p Manager) CheckServed(ctx context.Context, objs []*unstructured.Unstructured) (diags diag.Diagnostics) {
	wanted := slices.ContainsFunc(objs, func(obj *unstructured.Unstructured) bool { return slices.Contains(p.Optional, obj.GetKind()) })
	if !wanted || p.Session.Ledger.Applying() {
		return nil
	}
	client, err := p.Session.Kube()
	if err != nil {
		return nil // others say so
	}
	if core, optional, err := p.split(ctx, client, objs); err == nil && len(core)+len(optional) < len(objs) {
		diags.AddWarning("The API server has no "+p.Optional[0], p.Without)
	}
	return diags
}

// Live returns the program's workload, nil when there is none that stays.
func (p Manager) Live(ctx context.Context) (*unstructured.Unstructured, error) {
	client, err := p.Session.Kube()
	if err != nil {
		return nil, err
	}
	workload, err := client.Get(ctx, workloadKind(p.Kind), contract.SystemNamespace, p.Name)
	if kube.IsNotFound(err) || err == nil && workload.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	return workload, err
}

// Drift lists what of the objects is not as it should be, nil when there is nothing of them.
func (p Manager) Drift(ctx context.Context, objs []*unstructured.Unstructured) (drifted []string, diags diag.Diagnostics) {
	client, err := p.Session.Kube()
	var refused []string
	if err == nil {
		var core, optional []*unstructured.Unstructured
		if core, optional, err = p.split(ctx, client, objs); err == nil {
			drifted, refused, err = Drift(ctx, client, slices.Concat(core, optional))
		}
	}
	if len(refused) > 0 {
		diags.AddWarning(p.Title+" is not compared with what was applied", fmt.Sprintf("The API server tells what has changed by trying, without effect, to apply it again, and refuses that: %s "+
			"Changes by others are not seen there. A user needs the right to patch these objects for it.", session.Sentence(errors.New(strings.Join(refused, "; ")))))
	}
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		diags.AddError(p.Title+" cannot be read", session.Sentence(err))
	}
	p.Session.Ledger.Own(p.ID())
	return drifted, diags
}

// Unfinished says of workloads among the objects that do not run as they were applied how far
// they are.
func (p Manager) Unfinished(ctx context.Context, objs []*unstructured.Unstructured) (texts []string, diags diag.Diagnostics) {
	client, err := p.Session.Kube()
	if err == nil {
		texts, err = unfinished(ctx, client, objs)
	}
	if err != nil {
		diags.AddError(p.Title+" cannot be read", session.Sentence(err))
	}
	return texts, diags
}

// CheckNew refuses to install the program where someone else has installed it. An
// install of this configuration that broke off is none.
func (p Manager) CheckNew(ctx context.Context) (diags diag.Diagnostics) {
	if p.Session.Ledger.Owns(p.ID()) {
		return nil // it is replaced
	}
	client, err := p.Session.Kube()
	if p.Session.NotChecked(err, &diags) {
		return diags
	}
	var workload *unstructured.Unstructured
	if err == nil {
		workload, err = client.Get(ctx, workloadKind(p.Kind), contract.SystemNamespace, p.Name)
	}
	switch {
	case kube.IsNotFound(err):
		diags.Append(p.checkVersion(client)...)
	case err != nil:
		diags.AddError(p.Title+" cannot be installed", session.Sentence(err))
	default:
		if stamp := workload.GetLabels()[contract.OwnerLabel]; !p.Session.Mine(stamp) {
			diags.AddError(p.Title+" is installed already", fmt.Sprintf(
				"A cluster needs only one, and there is %s %s: %s.", p.Kind, p.ID(),
				p.Session.Advice(session.Foreign{Stamp: stamp, Resource: p.Resource, ID: p.ID(), Deletable: true})))
		}
	}
	return diags
}

// checkVersion refuses a cluster that is too old for the program, as far as it says how old it is.
func (p Manager) checkVersion(client *kube.Client) (diags diag.Diagnostics) {
	if p.OldestMinor == 0 || p.Session.Ledger.Applying() {
		return nil
	}
	info, err := client.Typed.Discovery().ServerVersion()
	if err != nil {
		return nil // others say so
	}
	if minor := kube.Minor(info); minor != 0 && minor < p.OldestMinor {
		diags.AddError("The cluster is too old", fmt.Sprintf("%s needs Kubernetes 1.%d or newer, and the API server behaves like 1.%d: it would never be ready. "+
			"Upgrade the cluster, or leave %s out and give the jobs another scheduler_name.", p.Title, p.OldestMinor, minor, p.Resource))
	}
	return diags
}

// CheckObjects refuses to install the program over objects of someone else, as their labels say.
func (p Manager) CheckObjects(ctx context.Context, objs []*unstructured.Unstructured, theirs func(labels map[string]string) bool) (diags diag.Diagnostics) {
	client, err := p.Session.Kube()
	if err == nil {
		var core, optional []*unstructured.Unstructured
		if core, optional, err = p.split(ctx, client, objs); err == nil {
			err = p.refuseForeign(ctx, client, slices.Concat(core, optional), theirs)
		}
	}
	if err != nil {
		diags.AddError(p.Title+" cannot be installed", session.Sentence(err))
	}
	return diags
}

func (p Manager) refuseForeign(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured, theirs func(labels map[string]string) bool) error {
	_, foreign, err := withoutTheirs(ctx, client, slices.DeleteFunc(objs, isShared), theirs)
	if err != nil || len(foreign) == 0 {
		return err
	}
	return fmt.Errorf("%s exists, and %s", title(foreign[0]), p.Session.Advice(session.Foreign{Stamp: foreign[0].GetLabels()[contract.OwnerLabel], Deletable: true}))
}

// Remove deletes those of the objects that are ours and waits until they are gone. Those that are another
// configuration's, as theirs says of their labels, nil for none, stay, with a warning, and so does a
// namespace in which others have objects, or a kind of which they have.
func (p Manager) Remove(ctx context.Context, objs []*unstructured.Unstructured, theirs func(labels map[string]string) bool) (diags diag.Diagnostics, err error) {
	client, err := p.Session.Kube()
	if err != nil {
		return nil, err
	}
	core, optional, err := p.split(ctx, client, objs)
	if err != nil {
		return nil, err
	}
	progress := func(status string) { tflog.Info(ctx, p.Name+": "+status) }
	own := slices.DeleteFunc(slices.Concat(core, optional), isShared)
	if theirs != nil {
		var foreign []*unstructured.Unstructured
		if own, foreign, err = withoutTheirs(ctx, client, own, theirs); err != nil {
			return nil, err
		}
		if len(foreign) > 0 {
			diags.AddWarning("Objects of another configuration were not deleted", fmt.Sprintf("They carry its owner: %s.", titles(foreign)))
		}
	}
	if err := client.DeleteAll(ctx, own, progress); err != nil {
		return diags, err
	}
	core = slices.DeleteFunc(core, func(obj *unstructured.Unstructured) bool { return !isShared(obj) })
	defer p.Session.Ledger.Begin(sharedObjects)()
	if err := client.DeleteAll(ctx, core, progress); err != nil {
		return diags, err
	}
	for _, obj := range core {
		kept, err := others(ctx, client, obj)
		unseen := (*kube.UnseenError)(nil)
		switch {
		case errors.As(err, &unseen):
			diags.AddWarning(title(obj)+" was not deleted", session.Sentence(unseen)+" Delete it when nobody needs what is in it.")
		case err != nil:
			return diags, err
		case len(kept) > 0:
			diags.AddWarning(title(obj)+" was not deleted", left(obj, kept))
		}
	}
	return diags, nil
}

// withoutTheirs tells those of the objects that exist and are another configuration's, as they are, from the others.
func withoutTheirs(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured, theirs func(labels map[string]string) bool) (own, foreign []*unstructured.Unstructured, err error) {
	for _, obj := range objs {
		live, err := client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		switch {
		case kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed):
		case err != nil:
			return nil, nil, err
		case theirs(live.GetLabels()):
			foreign = append(foreign, live)
		default:
			own = append(own, obj)
		}
	}
	return own, foreign, nil
}

func titles(objs []*unstructured.Unstructured) string {
	names := make([]string, len(objs))
	for i, obj := range objs {
		names[i] = title(obj)
	}
	return strings.Join(names, ", ")
}

// others are the objects for which a namespace or a definition of ours was left.
func others(ctx context.Context, client *kube.Client, holder *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	live, err := client.Get(ctx, holder.GroupVersionKind(), "", holder.GetName())
	if kube.IsNotFound(err) {
		return nil, nil
	}
	if err != nil || live.GetLabels()[contract.ManagedByLabel] != contract.ManagedByValue {
		return nil, err
	}
	return client.OthersOf(ctx, live)
}

// left says what a namespace or a definition was left for, and what becomes of it.
func left(holder *unstructured.Unstructured, others []unstructured.Unstructured) string {
	const named = 3
	var names []string
	for i := range others[:min(named, len(others))] {
		names = append(names, title(&others[i]))
	}
	if n := len(others) - named; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	name := holder.GetName()
	what, listed, resource := "namespace", "", "namespace"
	if holder.GetKind() == "CustomResourceDefinition" {
		what, listed, resource = "definition", fmt.Sprintf(" `kubectl get %s -A` lists them.", name), "crd"
	}
	return fmt.Sprintf("With it would go what others have made: %s.%s "+
		"The next install takes the %s over, whichever configuration makes it. Once its objects are not needed any more, "+
		"`kubectl delete %s %s` deletes it with them.", strings.Join(names, ", "), listed, what, resource, name)
}

// CheckImport refuses an import ID that is not the program's.
func (p Manager) CheckImport(id string) (diags diag.Diagnostics) {
	if id != p.ID() {
		diags.AddError("Invalid import ID", fmt.Sprintf("A cluster has one %s, and its import ID is %s, not %q.", p.Resource, p.ID(), id))
	}
	return diags
}
