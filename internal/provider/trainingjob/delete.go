package trainingjob

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Delete deletes the job and waits until its pods are gone, because they hold the
// GPUs of nodes that may be deleted next.
func (r *trainingJob) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.session.Ledger.StartApplying()
	var m model
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Timeouts.Delete(ctx, defaultDeleteTimeout)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	spec := job.Spec{
		Namespace: m.Namespace.ValueString(),
		Name:      m.Name.ValueString(),
		Framework: job.Framework(m.Framework.ValueString()),
		Arena:     m.ArenaCompatible.ValueBool(),
	}
	defer r.session.Ledger.Begin(object(spec))()
	if r.session.Ledger.Taken(object(spec)) {
		return // it is another resource's now
	}
	client, err := r.session.Kube()
	if err == nil {
		err = remove(ctx, client, spec)
	}
	if err != nil {
		resp.Diagnostics.AddError("Job was not deleted", session.Sentence(err))
	}
}

// remove deletes the job with its pods and arena's ConfigMap, and waits until they are gone.
func remove(ctx context.Context, client *kube.Client, spec job.Spec) error {
	live, err := find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	if err == nil {
		err = client.Delete(ctx, live.GroupVersionKind(), spec.Namespace, spec.Name)
	}
	if err != nil && !absent(err) {
		return err
	}
	if err := client.DeleteLabelled(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), spec.Namespace, podLabels(spec).String()); err != nil {
		return err
	}
	if !spec.Arena {
		return nil
	}
	return client.Delete(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap"), spec.Namespace, spec.ArenaName())
}
