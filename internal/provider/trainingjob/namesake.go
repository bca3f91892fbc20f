package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// checkName refuses a job whose name another one has in the cluster, of any framework,
// that this configuration did not create: an apply would refuse it. Of one that it did create it says
// what becomes of it, where a plan with -target may leave it to another address, and where it is
// replaced: Terraform shows a new job as one that is created, and no end of another. A job that takes
// the place of one in the state shows that itself.
func (r *trainingJob) checkName(ctx context.Context, of tfsdk.State, m model) (diags diag.Diagnostics) {
	spec := job.Spec{Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString(), Framework: job.Framework(m.Framework.ValueString())}
	if m.ID.IsUnknown() || r.Session.Ledger.Owns(object(spec)) {
		return nil
	}
	client := r.asked(ctx, session.CheckError) // the name is no question of placement
	if client == nil {
		return nil
	}
	for _, framework := range job.Frameworks() {
		live, err := find(ctx, client, framework, spec.Namespace, spec.Name)
		if err != nil || live.GetDeletionTimestamp() != nil || r.apart(live, spec) {
			continue // an apply waits for the end of what is being deleted
		}
		if err := r.refuseForeign(live, spec.Framework); err != nil {
			diags.AddAttributeError(path.Root("name"), "Job exists already", session.Sentence(err))
		} else if r.Session.Targets && !r.Session.Ledger.Applying() {
			diags.AddAttributeWarning(path.Root("name"), "Job exists already", fmt.Sprintf(
				"%s %s of this configuration exists, and this plan is about a part of the configuration (-target), which may lack the resource that has it. "+
					"The apply then takes it for this one: it goes on if it is what this one is to be, as after an apply that was cut off, and is deleted otherwise, or when this one had another name. "+
					"Plan without -target when jobs change names.", live.GetKind(), spec.ID()))
		} else if differs := r.replaced(ctx, of, m, live); len(differs) > 0 {
			diags.AddAttributeWarning(path.Root("name"), "Job exists already", fmt.Sprintf(
				"%[1]s %[2]s of this configuration exists, and Terraform makes a new one without regard to it, as after an apply that was cut off, `terraform state rm`, a removed block, a change of the address without a moved block, or with create_before_destroy. "+
					"It differs in %[3]s, so the apply deletes it and runs this one instead. To keep it running, write here what it has.",
				live.GetKind(), spec.ID(), strings.Join(differs, ", ")))
		}
	}
	return diags
}

// checkNeeds refuses a new job that needs an object which is made for another new one, too: one of them would
// never run. What is there already is found in the cluster, which also says in which version the job is made.
func (r *trainingJob) checkNeeds(ctx context.Context, m model, q question) (diags diag.Diagnostics) {
	spec, unknown, specDiags := m.spec(ctx)
	spec.Version = q.spec.Version
	if specDiags.HasError() || anyOf(unknown, "namespace", "name", "framework", "roles") {
		return nil
	}
	for _, o := range spec.Needs() {
		if other := r.Session.Ledger.Need(o.Kind+" "+spec.Namespace+"/"+o.Name, spec.ID()); other != "" {
			diags.AddAttributeError(path.Root("name"), "Two jobs need one object", fmt.Sprintf(
				"Jobs %s and %s each need a %s %s/%s: it would be made for one of them, and the other would not run. Give one of them another name.",
				min(other, spec.ID()), max(other, spec.ID()), o.Kind, spec.Namespace, o.Name))
			return diags
		}
	}
	return nil
}

// replaced names what makes a plan replace a live job of this configuration that is not in the state
// at this address, nil when it goes on or that is not known.
func (r *trainingJob) replaced(ctx context.Context, of tfsdk.State, m model, live *unstructured.Unstructured) (differs []string) {
	if !of.Raw.IsNull() || r.Session.Ledger.Applying() {
		return nil
	}
	spec, _, diags := m.spec(ctx)
	if diags.HasError() || r.Session.Ledger.Replaced(spec.ID()) != "" {
		return nil
	}
	_, replace, err := outdated(ctx, live, m, of, spec)
	if err != nil {
		return nil // the apply says it
	}
	for _, attribute := range replace {
		switch known := m.known(ctx, attribute); {
		case known && attribute == "roles":
			differs = append(differs, "roles or their containers")
		case known:
			differs = append(differs, attribute)
		}
	}
	return differs
}

// known reports whether nothing of an attribute is unknown until apply. What a job's description
// calls roles comes from several.
func (m model) known(ctx context.Context, attribute string) bool {
	at := slices.IndexFunc(jobAttributes, func(a jobAttribute) bool { return a.name == attribute })
	values := []attr.Value{jobAttributes[at].property.value(&m)}
	if attribute == "roles" {
		for _, a := range containerAttributes {
			values = append(values, a.property.value(&m.container))
		}
	}
	return known.Wholly(ctx, values...)
}

// apart reports whether a live job is another one beside a job of the same name. A TrainJob and a JobSet are one JobSet.
func (r *trainingJob) apart(live *unstructured.Unstructured, spec job.Spec) bool {
	if spec.Framework.AsJobSet() && (live.GetKind() == contract.TrainJobKind || live.GetKind() == contract.JobSetKind) {
		return false
	}
	return live.GetKind() != spec.Framework.GVK().Kind && !job.Clashes(live) && !r.Session.Mine(live.GetLabels()[contract.OwnerLabel])
}

// refuseForeign says that a live job is not this configuration's and has the name of one of a framework
// that is to be created, nil when it is this configuration's.
func (r *trainingJob) refuseForeign(live *unstructured.Unstructured, framework job.Framework) error {
	if err := copyOfHub(live); err != nil {
		return err
	}
	stamp := live.GetLabels()[contract.OwnerLabel]
	if r.Session.Mine(stamp) {
		return nil
	}
	id, clash := live.GetNamespace()+"/"+live.GetName(), ""
	if framework != "" && live.GetKind() != framework.GVK().Kind {
		clash = ", whose pods could not be told from this job's"
	}
	return fmt.Errorf("%s %s exists already%s, and %s", live.GetKind(), id, clash,
		r.Session.Advice(session.Foreign{Stamp: stamp, Resource: "gpuplan_training_job", ID: id, Renamable: true, Deletable: true}))
}

// clearName removes what this configuration has left of a job of that name and another
// framework, and refuses the name where such a job is someone else's.
func (r *trainingJob) clearName(ctx context.Context, client *kube.Client, spec job.Spec) error {
	for _, framework := range job.Frameworks() {
		if framework == spec.Framework {
			continue
		}
		live, err := find(ctx, client, framework, spec.Namespace, spec.Name)
		if err == nil {
			live, err = settled(ctx, client, live)
		}
		if framework == job.TrainJob && kube.IsNotFound(err) {
			err = r.clearRuntime(ctx, client, spec)
			live = nil
		}
		if absent(err) || apierrors.IsForbidden(err) || err == nil && (live == nil || r.apart(live, spec)) {
			continue // who may not look at a kind has nothing of it
		}
		if err == nil {
			err = r.refuseForeign(live, spec.Framework)
		}
		var left job.Spec
		if err == nil {
			left, err = job.Parse(live)
		}
		if err == nil {
			err = r.discard(ctx, client, left, live)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clearRuntime removes the runtime that an apply of this configuration has left which did not come to the TrainJob. One
// that belongs to a TrainJob goes with that, and one that others refer to stays.
func (r *trainingJob) clearRuntime(ctx context.Context, client *kube.Client, spec job.Spec) error {
	spec.Owner = r.Session.Owner
	left, err := client.Get(ctx, job.RuntimeGVK(), spec.Namespace, spec.Name)
	if err != nil || len(left.GetOwnerReferences()) > 0 || usedByOthers(ctx, client, spec) != nil {
		return err
	}
	return removeRuntime(ctx, client, spec)
}

// podFindings names a pod of someone else that has the name of one of the job's: the
// operator could not create that.
func (r *trainingJob) podFindings(ctx context.Context, spec job.Spec) []preflight.Finding {
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil || r.Session.Ledger.Owns(object(spec)) || spec.Framework == job.Batch || spec.Framework.AsJobSet() {
		return nil // names of a Job's pods end in characters of chance
	}
	pods, err := spec.Pods()
	if err != nil {
		return nil // said elsewhere
	}
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Name] = true
	}
	own := podLabels(spec)
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		if pod.Namespace != spec.Namespace || !names[pod.Name] || pod.DeletionTimestamp != nil || own.Matches(labels.Set(pod.Labels)) || r.Session.Mine(pod.Labels[contract.OwnerLabel]) {
			continue
		}
		return []preflight.Finding{{Attribute: "name", Summary: "Pod exists already", Detail: fmt.Sprintf(
			"Job %s needs a pod %s, and there is one of that name that is not the job's%s: choose another name, or delete what the pod belongs to.",
			spec.ID(), pod.Name, job.Whose(pod.OwnerReferences))}}
	}
	return nil
}
