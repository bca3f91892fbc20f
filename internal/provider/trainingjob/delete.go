package trainingjob

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// remove deletes the job and waits until its pods are gone, because they hold the
// GPUs of nodes that may be deleted next.
func (r *trainingJob) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	defer r.Session.Ledger.BeginDeletion()()
	client, err := r.Session.Kube()
	if err != nil {
		return nil, err
	}
	spec := job.Spec{
		Namespace: m.Namespace.ValueString(),
		Name:      m.Name.ValueString(),
		Framework: job.Framework(m.Framework.ValueString()),
		Arena:     m.ArenaCompatible.ValueBool(),
	}
	if !m.TensorBoard.IsNull() {
		spec.TensorBoard = &job.TensorBoard{}
	}
	live, err := find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	switch {
	case absent(err):
		live = nil // its pods may be there still
	case err != nil:
		return nil, err
	case m.kept.UIDs.Other(live), r.TakenOver(m, live.GetLabels()[contract.OwnerLabel]):
		return nil, nil
	}
	if live != nil {
		if err := copyOfHub(live); err != nil {
			return nil, err
		}
	}
	at := site{}
	if m.ofFleet() && live != nil {
		if at, err = r.siteOf(ctx, m, live); err != nil && at.cluster == "" {
			return nil, err
		}
		if left := at.left; left != "" { // it may run there still
			at, err = siteInMember(ctx, r.Session, spec.Framework, live, left)
			at.left = left
		}
		if err != nil { // the hub deletes it there all the same, and a cluster that is lost would keep it for ever
			diags.AddWarning("Job may run still", fmt.Sprintf("%s Job %s is deleted on the hub, which deletes it in cluster %s as soon as it reaches that. Until then nobody knows whether its pods have gone, and their GPUs are free.",
				session.Sentence(err), spec.ID(), at.cluster))
			at = site{}
		}
	}
	if err := r.discard(ctx, client, spec, live); err != nil {
		return diags, err
	}
	stays, err := at.emptied(ctx, spec)
	if stays && at.left == "" {
		diags.AddWarning("Job runs on", fmt.Sprintf("Job %s is deleted on the hub, and stays in cluster %s, as the policy's preserve_resources_on_deletion asks. Delete it there once it is not needed any more.",
			spec.ID(), at.cluster))
	}
	return diags, err
}

// discard deletes a job, of which live is the object, and makes what it held seen as free by those that
// are created next.
func (r *trainingJob) discard(ctx context.Context, client *kube.Client, spec job.Spec, live *unstructured.Unstructured) error {
	spec.Owner = r.Session.Owner
	if err := remove(ctx, client, spec, live); err != nil {
		return err
	}
	r.Session.Changed()
	return nil
}

// remove deletes the job's object, nil for none, and no other one of its name, with its pods, arena's
// ConfigMap and TensorBoard, and waits until they are gone.
func remove(ctx context.Context, client *kube.Client, spec job.Spec, live *unstructured.Unstructured) error {
	if err := removeJob(ctx, client, spec, live); err != nil {
		return err
	}
	if spec.TensorBoard != nil {
		if err := hideTensorBoard(ctx, client, spec); err != nil {
			return err
		}
	}
	if !spec.Arena {
		return nil
	}
	return forgetArena(ctx, client, spec)
}

// removeJob deletes the job's object with its pods.
func removeJob(ctx context.Context, client *kube.Client, spec job.Spec, live *unstructured.Unstructured) error {
	if spec.Framework == job.TrainJob {
		return removeTrainJob(ctx, client, spec, live)
	}
	if live != nil {
		if err := client.DeleteObject(ctx, live); err != nil {
			return err
		}
	}
	pods := ownLabels(spec)
	switch {
	case live == nil:
	case spec.Framework == job.JobSet:
		return nil // its Jobs and their pods have gone before it
	case spec.Framework == job.Batch: // another Job of that name may be there by now
		pods = labels.SelectorFromSet(labels.Set{batchv1.ControllerUidLabel: string(live.GetUID())})
	}
	return client.DeleteLabelled(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), spec.Namespace, pods.String())
}
