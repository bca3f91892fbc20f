// Package program installs, watches and removes one of our programs in a cluster:
// the objects that a deploy package renders, with Deployments or DaemonSets among them.
package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// ErrAbsent means that none of the program's objects exists.
var ErrAbsent = errors.New("it is not installed")

// shared are kinds that several programs have in common; only that they exist counts.
var shared = []string{"Namespace", "CustomResourceDefinition"}

func isShared(obj *unstructured.Unstructured) bool { return slices.Contains(shared, obj.GetKind()) }

// isWorkload tells what runs pods.
func isWorkload(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet"
}

// write applies the objects, those that others have changed included.
func write(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured, progress func(string)) error {
	for _, obj := range objs {
		if isShared(obj) {
			continue
		}
		paths, err := client.Drift(ctx, obj)
		if kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed) {
			continue
		}
		if err != nil {
			return err
		}
		if len(paths) > 0 && !slices.Contains(paths, kube.Deletion) {
			progress("changing " + title(obj))
			if _, err := client.TakeOver(ctx, obj); err != nil {
				return err
			}
		}
	}
	return client.ApplyAll(ctx, objs, progress)
}

// awaitRunning waits until the workloads among the objects run everywhere they should.
func awaitRunning(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured, progress func(string)) error {
	for _, obj := range objs {
		if !isWorkload(obj) {
			continue
		}
		if _, err := client.WaitFor(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName(), rolledOut, progress); err != nil {
			return err
		}
	}
	return nil
}

// Drift says what of the objects is not as it should be: "Deployment
// gpuplan-system/gpuplan-scheduler: .spec.replicas". The error is [ErrAbsent] when none
// of them exists: what is left of a removal that broke off has to be removed as well. Those that exist
// and that the server refuses to compare are in refused, each with the reason.
func Drift(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured) (drifted, refused []string, err error) {
	drifted = []string{}
	missing := 0
	for _, obj := range objs {
		var paths []string
		var err error
		if isShared(obj) {
			_, err = client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		} else {
			paths, err = client.Drift(ctx, obj)
		}
		paths = withoutOurs(paths)
		unseen := (*kube.RefusedError)(nil)
		switch {
		case errors.As(err, &unseen):
			refused = append(refused, fmt.Sprintf("%s (%v)", title(obj), unseen))
		case kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed):
			missing++
			drifted = append(drifted, title(obj)+": missing")
		case err != nil:
			return nil, nil, err
		case len(paths) > 0:
			drifted = append(drifted, title(obj)+": "+strings.Join(paths, ", "))
		}
	}
	if missing == len(objs) {
		return nil, nil, ErrAbsent
	}
	return drifted, refused, nil
}

// unfinished says of workloads whose pods do not run as they were applied how far they are. The
// next apply waits for them.
func unfinished(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured) ([]string, error) {
	texts := []string{}
	for _, obj := range objs {
		if !isWorkload(obj) {
			continue
		}
		live, err := client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		if kube.IsNotFound(err) {
			continue // that is drift itself
		}
		if err != nil {
			return nil, err
		}
		if done, text, err := rolledOut(live); !done || err != nil {
			texts = append(texts, title(obj)+": .status: "+text)
		}
	}
	return texts, nil
}

// withoutOurs leaves out the owner's stamp and our notes: an object that was imported, or
// whose configuration has moved, gets them with the next change.
func withoutOurs(paths []string) []string {
	ours := []string{".metadata.labels." + contract.OwnerLabel, ".metadata.annotations." + contract.SettingsAnnotation}
	return slices.DeleteFunc(paths, func(path string) bool { return slices.Contains(ours, path) })
}

// rolledOut is done when the workload's pods are all of the newest version and ready.
// A DaemonSet for which no node qualifies is done.
func rolledOut(obj *unstructured.Unstructured) (bool, string, error) {
	count := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(obj.Object, fields...)
		return n
	}
	if count("status", "observedGeneration") < obj.GetGeneration() {
		return false, "not looked at by its controller yet", nil
	}
	wanted, updated, ready := count("spec", "replicas"), count("status", "updatedReplicas"), count("status", "availableReplicas")
	total := count("status", "replicas")
	if obj.GetKind() == "DaemonSet" {
		wanted, updated, ready = count("status", "desiredNumberScheduled"), count("status", "updatedNumberScheduled"), count("status", "numberReady")
		total = wanted
	}
	status := fmt.Sprintf("%d of %d pods up to date, %d ready", updated, wanted, ready)
	if obj.GetKind() == "Deployment" {
		if message := failing(obj); message != "" {
			status += ": " + message
		}
	}
	return updated >= wanted && ready >= wanted && total <= wanted, status, nil
}

// failing is the message of a Deployment that does not progress.
func failing(obj *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, raw := range conditions {
		condition, ok := raw.(map[string]any)
		if !ok {
			continue
		}
		bad := condition["type"] == "ReplicaFailure" && condition["status"] == "True" ||
			condition["type"] == "Progressing" && condition["status"] == "False"
		if message, _ := condition["message"].(string); bad {
			return message
		}
	}
	return ""
}

func title(obj *unstructured.Unstructured) string {
	if obj.GetNamespace() == "" {
		return obj.GetKind() + " " + obj.GetName()
	}
	return obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName()
}
