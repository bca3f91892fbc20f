package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servedTimeout bounds the wait for the API server to serve a CRD, and to ask an admission policy.
const servedTimeout = 60 * time.Second

// owner names this program as the manager of what it applies.
const owner = client.FieldOwner("gpuplan-karmada")

// own holds the objects of the hub that are not Karmada's: cluster.yaml and admission.yaml.
//
//go:embed hub
var own embed.FS

// policies are the CRDs of policies, which lack fields that ACK's have.
var policies = []string{"propagationpolicies.policy.karmada.io", "clusterpropagationpolicies.policy.karmada.io"}

// prepare gives the hub its CRDs and admission policies, and returns when the API server obeys them.
func prepare(ctx context.Context, config *rest.Config, crdDir string) error {
	if crdDir == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own folder: %w", err)
		}
		crdDir = filepath.Join(filepath.Dir(exe), "crds", "karmada")
	}
	objects, err := manifests(crdDir)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	for _, object := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), owner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := poll(ctx, func(ctx context.Context) (bool, error) { return established(ctx, c, object) }); err != nil {
			return fmt.Errorf("wait until %s is served: %w", object.GetName(), err)
		}
	}
	if err := poll(ctx, func(ctx context.Context) (bool, error) { return obeyed(ctx, c) }); err != nil {
		return fmt.Errorf("wait until admission policies work: %w", err)
	}
	return nil
}

// manifests are all objects of the hub, in the order in which they can be applied: CRDs first.
func manifests(crdDir string) (objects []*unstructured.Unstructured, err error) {
	if objects, err = read(os.DirFS(crdDir), "*.yaml"); err != nil {
		return nil, fmt.Errorf("read Karmada's CRDs in %s: %w", crdDir, err)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("no CRDs of Karmada in %s; run `make fleet`, or name their folder with --crd-dir", crdDir)
	}
	for _, name := range policies {
		found := false
		for _, object := range objects {
			if object.GetName() == name {
				found = true
				err = errors.Join(err, extend(object))
			}
		}
		if !found {
			err = errors.Join(err, fmt.Errorf("the CRD %s is not in %s", name, crdDir))
		}
	}
	if err != nil {
		return nil, err
	}
	for _, file := range []string{"cluster.yaml", "admission.yaml"} {
		more, err := read(own, "hub/"+file)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// extend gives the CRD of a policy the fields that ACK's has and Karmada's lacks. Without them the
// API server would refuse policies that are written for ACK, or drop the fields.
func extend(crd *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("the CRD %s: %w", crd.GetName(), err)
	}
	if len(versions) != 1 {
		return fmt.Errorf("the CRD %s has %d versions, and that of Karmada 1.17 has one", crd.GetName(), len(versions))
	}
	version, _ := versions[0].(map[string]any)
	spec := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
	for _, field := range []struct {
		under  []string
		name   string
		schema map[string]any
	}{
		{[]string{"suspension"}, "scheduling", map[string]any{"type": "boolean",
			"description": "Scheduling says that jobs wait until the queue releases them."}},
		{[]string{"placement", "properties", "replicaScheduling"}, "customSchedulingType", map[string]any{"type": "string", "enum": []any{"Gang"},
			"description": "CustomSchedulingType Gang has a job placed as a whole, by the scheduler of fleets."}},
	} {
		path := append(append([]string{}, spec...), field.under...)
		if _, found, err := unstructured.NestedMap(version, append(path, "properties")...); err != nil || !found {
			return fmt.Errorf("the CRD %s has no field %s, under which %s belongs", crd.GetName(), field.under[len(field.under)-1], field.name)
		}
		if err := unstructured.SetNestedField(version, field.schema, append(path, "properties", field.name)...); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
}

// read returns the objects in the files that a pattern names.
func read(files fs.FS, pattern string) (objects []*unstructured.Unstructured, err error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func poll(ctx context.Context, done func(context.Context) (bool, error)) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, servedTimeout, true, done)
}

// established tells whether the API server serves a CRD.
func established(ctx context.Context, c client.Client, crd *unstructured.Unstructured) (bool, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(crd.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(crd), live); err != nil {
		return false, err
	}
	conditions, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, condition := range conditions {
		if condition, ok := condition.(map[string]any); ok && condition["type"] == "Established" && condition["status"] == "True" {
			return true, nil
		}
	}
	return false, err
}

// obeyed tells, by a policy that is only tried, whether admission policies work already.
func obeyed(ctx context.Context, c client.Client) (bool, error) {
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": "gpuplan-karmada-probe", "namespace": "default"},
		"spec": map[string]any{"resourceSelectors": []any{
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "gpuplan-karmada-probe"},
		}},
	}}
	err := c.Create(ctx, policy, client.DryRunAll)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return false, nil // the validating policy works already, the other one not yet
	}
	return policy.GetLabels()["propagationpolicy.karmada.io/permanent-id"] != "", err
}
