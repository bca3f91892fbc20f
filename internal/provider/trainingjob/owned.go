package trainingjob

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// applyOwned writes an object that belongs to the job, in the place of none of someone else.
func applyOwned(ctx context.Context, client *kube.Client, spec job.Spec, obj *unstructured.Unstructured) error {
	live, err := client.Get(ctx, obj.GroupVersionKind(), spec.Namespace, obj.GetName())
	switch {
	case kube.IsNotFound(err):
	case err != nil:
		return err
	case !spec.Owns(live.GetOwnerReferences()):
		return fmt.Errorf("%s %s/%s is not the job's%s, and stays as it is: delete it if nobody needs it, or give the job another name",
			obj.GetKind(), spec.Namespace, obj.GetName(), job.Whose(live.GetOwnerReferences()))
	default:
		obj.SetUID(live.GetUID())
	}
	_, err = client.Apply(ctx, obj)
	return err
}

// deleteOwned deletes an object that belongs to the job, and none of someone else.
func deleteOwned(ctx context.Context, client *kube.Client, spec job.Spec, kind schema.GroupVersionKind, name string) error {
	live, err := client.Get(ctx, kind, spec.Namespace, name)
	switch {
	case kube.IsNotFound(err) || err == nil && !spec.Owns(live.GetOwnerReferences()):
		return nil
	case err != nil:
		return err
	}
	return client.DeleteObject(ctx, live)
}
