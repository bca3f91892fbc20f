// Package deploy holds the manifests of the node agent.
package deploy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Options are what a user decides about the node agent.
type Options struct {
	// Image is the container image.
	Image string
	// Interval is how often the agent looks at the hardware, 0 for its default.
	Interval time.Duration
	// MetricsPort is the port on which the agent serves metrics, 0 for none.
	MetricsPort int
}

// Objects returns the node agent's objects in the order in which they can be
// applied: namespace, CRD, account, rights, DaemonSet. All carry
// [contract.ManagedByLabel].
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	if o.Image == "" {
		return nil, errors.New("the node agent needs a container image")
	}
	var objs []*unstructured.Unstructured
	for _, name := range []string{"agent.yaml", "crd.yaml"} {
		more, err := decode("manifests/" + name)
		if err != nil {
			return nil, err
		}
		objs = append(objs, more...)
	}
	for _, obj := range objs {
		labels := map[string]string{contract.PartOfLabel: contract.PartOfValue, contract.ManagedByLabel: contract.ManagedByValue}
		if obj.GetKind() != "Namespace" { // which is shared with the scheduler
			labels[contract.NameLabel] = contract.NodeAgentName
		}
		obj.SetLabels(labels)
		if obj.GetKind() == "DaemonSet" {
			if err := configure(obj, o); err != nil {
				return nil, err
			}
		}
	}
	return objs, nil
}

// RemovePublished deletes what agents have published about nodes that still
// exist and that does not go with the agent's own objects: the ConfigMaps that
// mirror the topology.
func RemovePublished(ctx context.Context, client *kube.Client) error {
	mirrors := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	return client.DeleteLabelled(ctx, mirrors, "kube-system", contract.NameLabel+"="+contract.NodeAgentName)
}

func decode(file string) ([]*unstructured.Unstructured, error) {
	text, err := manifests.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	var objs []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		objs = append(objs, obj)
	}
}

// configure puts the options into the DaemonSet.
func configure(daemonSet *unstructured.Unstructured, o Options) error {
	container := map[string]any{}
	containers, _, err := unstructured.NestedSlice(daemonSet.Object, "spec", "template", "spec", "containers")
	if err == nil && len(containers) == 1 {
		container, _ = containers[0].(map[string]any)
	}
	container["image"] = o.Image
	args := []any{}
	if o.Interval != 0 {
		args = append(args, "--interval="+o.Interval.String())
	}
	if o.MetricsPort != 0 {
		args = append(args, fmt.Sprintf("--metrics-addr=:%d", o.MetricsPort))
		container["ports"] = []any{map[string]any{"name": "metrics", "containerPort": int64(o.MetricsPort), "protocol": "TCP"}}
	}
	if len(args) > 0 {
		container["args"] = args
	}
	if err := unstructured.SetNestedSlice(daemonSet.Object, []any{container}, "spec", "template", "spec", "containers"); err != nil {
		return fmt.Errorf("configure the DaemonSet: %w", err)
	}
	hash, err := configHash(o)
	if err != nil {
		return err
	}
	return unstructured.SetNestedField(daemonSet.Object, hash, "spec", "template", "metadata", "annotations", contract.ConfigHashAnnotation)
}

// configHash changes when the options do.
func configHash(o Options) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode the options: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}
