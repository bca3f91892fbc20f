package trainingjob

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// What may become of the runtime of a TrainJob whose pods run on.
const (
	runtimeGone    = "is gone"
	runtimeChanged = "was changed by someone else"
)

// asItRuns tells what has become of the runtime of a TrainJob that is known, "" where it is as it was, and gives the job
// what its JobSet runs in place of what a changed runtime says. Where something else than is known runs it leaves the job
// as it is.
func asItRuns(ctx context.Context, client *kube.Client, known job.Spec, obj *unstructured.Unstructured) (became string, err error) {
	if !hasRuntime(obj) || !job.Whole(obj) {
		return "", nil
	}
	if _, err := client.Get(ctx, job.RuntimeGVK(), obj.GetNamespace(), obj.GetName()); absent(err) {
		return runtimeGone, nil
	} else if err != nil {
		return "", err
	}
	differs := func(obj *unstructured.Unstructured) (bool, error) {
		is, err := job.Parse(obj)
		replace, _ := differences(known, is)
		return len(replace) > 0, err
	}
	if drifted, err := differs(obj); err != nil || !drifted {
		return "", err
	}
	set, err := client.Get(ctx, job.JobSet.GVK(), obj.GetNamespace(), obj.GetName())
	if absent(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	runs := obj.DeepCopy()
	if err != nil || job.Held(set) || !job.JoinSet(runs, set) {
		return "", err
	}
	if other, err := differs(runs); err != nil || other {
		return "", err
	}
	obj.Object = runs.Object
	return runtimeChanged, nil
}

// restoreRuntime writes into the runtime of a TrainJob, which someone has changed, what its JobSet runs, which live has of
// it, and nothing else.
func restoreRuntime(ctx context.Context, client *kube.Client, live *unstructured.Unstructured) error {
	runtime, _ := job.Split(live)
	if runtime == nil {
		return nil
	}
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": runtime.Object["spec"]}})
	if err == nil {
		runtimes := client.Dynamic.Resource(job.RuntimeGVK().GroupVersion().WithResource(contract.TrainingRuntimeResource)).Namespace(live.GetNamespace())
		_, err = runtimes.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: contract.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("write the TrainingRuntime of job %s/%s back: %w", live.GetNamespace(), live.GetName(), err)
	}
	return client.Manage(ctx, runtime)
}
