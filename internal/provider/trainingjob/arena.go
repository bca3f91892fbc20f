package trainingjob

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// tellArena writes arena's ConfigMap beside the job, when the job is to be known to it.
func tellArena(ctx context.Context, client *kube.Client, spec job.Spec, uid k8stypes.UID) error {
	if !spec.Arena {
		return nil
	}
	configMap, err := spec.ArenaConfigMap(uid)
	if err != nil {
		return err
	}
	return applyOwned(ctx, client, spec, configMap)
}

// forgetArena deletes arena's ConfigMap of the job, and none of someone else.
func forgetArena(ctx context.Context, client *kube.Client, spec job.Spec) error {
	return deleteOwned(ctx, client, spec, configMaps, spec.ArenaName())
}

// switchArena makes a job that exists known to arena, or not any more: its pods run on,
// and their marks are changed.
func switchArena(ctx context.Context, client *kube.Client, spec job.Spec, uid k8stypes.UID) error {
	if err := tellArena(ctx, client, spec, uid); err != nil {
		return err
	}
	err := markPods(ctx, client, spec, func(role string) map[string]any {
		labels, annotations := spec.ArenaPodMarks(role)
		return map[string]any{"labels": marks(labels, spec.Arena), "annotations": marks(annotations, spec.Arena)}
	})
	if err != nil || spec.Arena {
		return err
	}
	return forgetArena(ctx, client, spec)
}

// stampPods makes the pods of a job that exists, which run on, this configuration's.
func stampPods(ctx context.Context, client *kube.Client, spec job.Spec) error {
	return markPods(ctx, client, spec, func(string) map[string]any {
		return map[string]any{"labels": map[string]any{contract.OwnerLabel: spec.Owner}}
	})
}

// markPods changes the metadata of a job's pods, of which metadata has what changes by their role.
func markPods(ctx context.Context, client *kube.Client, spec job.Spec, metadata func(role string) map[string]any) error {
	pods, err := client.Typed.CoreV1().Pods(spec.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podLabels(spec).String()})
	if err != nil {
		return fmt.Errorf("list the pods of job %s: %w", spec.ID(), err)
	}
	for _, pod := range pods.Items {
		role, _ := inventory.Replica(&pod)
		patch, err := json.Marshal(map[string]any{"metadata": metadata(role)})
		if err != nil {
			return err
		}
		_, err = client.Typed.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, k8stypes.MergePatchType, patch, metav1.PatchOptions{FieldManager: contract.FieldManager})
		if err != nil && !kube.IsNotFound(err) {
			return fmt.Errorf("mark pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// marks sets the keys, or removes them.
func marks(keys map[string]string, set bool) map[string]any {
	patch := map[string]any{}
	for key, value := range keys {
		patch[key] = nil
		if set {
			patch[key] = value
		}
	}
	return patch
}
