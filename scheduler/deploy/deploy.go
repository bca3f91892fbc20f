// Package deploy holds the manifests of the scheduler, of the queue controller, and of
// the custom resources of both.
package deploy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

//go:embed manifests/*.yaml
var manifests embed.FS

const (
	configFile  = "scheduler.yaml"
	configMount = "/etc/gpuplan"
)

// Options are what a user decides about the scheduler and the queue controller.
type Options struct {
	// Image is the container image.
	Image string
	// Replicas is the number of schedulers, and of queue controllers, of which one
	// each leads; 0 means [DefaultReplicas].
	Replicas int
	// LogLevel is the verbosity of the log, as in klog: 0 (default) to 10.
	LogLevel int
	// Port is the port on which health and metrics are served, by the scheduler with
	// HTTPS, by the queue controller with HTTP; 0 for none. The scheduler answers
	// questions about gangs and GPUs on the next one.
	Port int
	// UnreachableGrace is how long a node may be unreachable before the members of gangs
	// on it are failed; 0 means the scheduler's own default.
	UnreachableGrace time.Duration
	// ReserveAfter is how long a gang waits before capacity is reserved for it; 0 means
	// [DefaultReserveAfter].
	ReserveAfter time.Duration
	// StaleAfter is how long a gang that has lost members may find no place for others before
	// the whole gang is evicted; 0 means that it never is.
	StaleAfter time.Duration
	// RoutePods sends pods to the scheduler that ask for GPUs, or belong to a gang, and
	// name no scheduler. The policy that does is the last of the objects: it is to be in
	// force only while the scheduler runs.
	RoutePods bool
}

// DefaultReplicas is one that leads and one that stands by.
const DefaultReplicas = 2

// DefaultReserveAfter is what the scheduler's configuration says.
const DefaultReserveAfter = 5 * time.Minute

// Objects returns the objects of the scheduler and of the queue controller in the order
// in which they can be applied: namespaces, CRDs, accounts, rights, configuration,
// Deployments, admission policies. All carry [contract.ManagedByLabel]. The scheduler's
// Deployment is the first.
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	if o.Image == "" {
		return nil, errors.New("the scheduler needs a container image")
	}
	if o.Replicas < 0 || o.LogLevel < 0 || o.Port < 0 || o.UnreachableGrace < 0 {
		return nil, errors.New("replicas, log level, port and unreachable grace of the scheduler must not be negative")
	}
	if o.ReserveAfter < 0 || o.StaleAfter < 0 {
		return nil, errors.New("the times after which the scheduler reserves places and evicts stale gangs must not be negative")
	}
	files := []string{"crd-elasticquotatree.yaml", "crd-podgroup.yaml", "crd-queue.yaml", "scheduler.yaml", "queue.yaml", "admission.yaml", "admission-quota.yaml", "allocation.yaml", "explain.yaml"}
	if o.RoutePods {
		files = append(files, "routing.yaml")
	}
	var objs []*unstructured.Unstructured
	for _, name := range files {
		more, err := decode(name)
		if err != nil {
			return nil, err
		}
		objs = append(objs, more...)
	}
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	for _, obj := range objs {
		labels := map[string]string{contract.PartOfLabel: contract.PartOfValue, contract.ManagedByLabel: contract.ManagedByValue}
		program := contract.SchedulerName
		if obj.GetName() == contract.QueueControllerName {
			program = contract.QueueControllerName
		}
		if obj.GetKind() != "Namespace" { // shared with the node agent
			labels[contract.NameLabel] = program
		}
		switch {
		case obj.GetKind() == "ConfigMap":
			err = unstructured.SetNestedStringMap(obj.Object, map[string]string{configFile: string(config)}, "data")
		case obj.GetKind() == "Deployment" && program == contract.QueueControllerName:
			err = o.configureQueue(obj)
		case obj.GetKind() == "Deployment":
			err = o.configure(obj, config)
		}
		if err != nil {
			return nil, fmt.Errorf("configure %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		obj.SetLabels(labels)
	}
	return objs, nil
}

// config is the scheduler's configuration.
func (o Options) config() ([]byte, error) {
	text, err := manifests.ReadFile(path.Join("manifests", "config.yaml"))
	if err != nil {
		return nil, err
	}
	text = bytes.Replace(text, []byte("reserveAfter: "+DefaultReserveAfter.String()), []byte("reserveAfter: "+cmp.Or(o.ReserveAfter, DefaultReserveAfter).String()), 1)
	return bytes.Replace(text, []byte("staleAfter: 0s"), []byte("staleAfter: "+o.StaleAfter.String()), 1), nil
}

func decode(name string) ([]*unstructured.Unstructured, error) {
	text, err := manifests.ReadFile(path.Join("manifests", name))
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var objs []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		objs = append(objs, obj)
	}
}

// configure puts the options into the scheduler's Deployment.
func (o Options) configure(deployment *unstructured.Unstructured, config []byte) error {
	args := []any{
		"--config=" + path.Join(configMount, configFile),
		"--bind-address=$(POD_IP)",
		fmt.Sprintf("--secure-port=%d", o.Port),
		fmt.Sprintf("--v=%d", o.LogLevel),
		// Members of a gang wait for each other in every cycle; nominating a node for
		// each of them would double the writes to the API server.
		"--feature-gates=NominatedNodeNameForExpectation=false",
	}
	if o.UnreachableGrace != 0 {
		args = append(args, "--unreachable-grace="+o.UnreachableGrace.String())
	}
	container := map[string]any{}
	if o.Port != 0 {
		args = append(args, fmt.Sprintf("--explain-port=%d", o.Port+1))
		container["ports"] = []any{
			map[string]any{"name": "https", "containerPort": int64(o.Port), "protocol": "TCP"},
			map[string]any{"name": "explain", "containerPort": int64(o.Port + 1), "protocol": "TCP"},
		}
		container["livenessProbe"] = probe("https", "/livez", 10)
		container["readinessProbe"] = probe("https", "/readyz", 2)
	}
	container["args"] = args
	deployment.SetAnnotations(map[string]string{
		contract.RoutePodsAnnotation:    strconv.FormatBool(o.RoutePods),
		contract.ReserveAfterAnnotation: cmp.Or(o.ReserveAfter, DefaultReserveAfter).String(),
		contract.StaleAfterAnnotation:   o.StaleAfter.String(),
	})
	if err := o.fill(deployment, container); err != nil {
		return err
	}
	sum := sha256.Sum256(config)
	return unstructured.SetNestedField(deployment.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", contract.ConfigHashAnnotation)
}

// configureQueue puts the options into the Deployment of the queue controller, which
// is the same program in the same image.
func (o Options) configureQueue(deployment *unstructured.Unstructured) error {
	args := []any{"queue", fmt.Sprintf("--v=%d", o.LogLevel)}
	if o.Port == 0 {
		return o.fill(deployment, map[string]any{"args": args})
	}
	return o.fill(deployment, map[string]any{
		"args":           append(args, fmt.Sprintf("--metrics-bind-address=[$(POD_IP)]:%d", o.Port)),
		"ports":          []any{map[string]any{"name": "http", "containerPort": int64(o.Port), "protocol": "TCP"}},
		"livenessProbe":  probe("http", "/healthz", 10),
		"readinessProbe": probe("http", "/healthz", 2),
	})
}

// fill sets the image, what differs between the containers, and the number of replicas.
func (o Options) fill(deployment *unstructured.Unstructured, fields map[string]any) error {
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("it has no container")
	}
	container["image"] = o.Image
	maps.Copy(container, fields)
	if err := unstructured.SetNestedSlice(deployment.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return err
	}
	return unstructured.SetNestedField(deployment.Object, int64(cmp.Or(o.Replicas, DefaultReplicas)), "spec", "replicas")
}

// probe asks a port by its name, which is that of its protocol.
func probe(port, path string, periodSeconds int64) map[string]any {
	return map[string]any{
		"httpGet":       map[string]any{"path": path, "port": port, "scheme": strings.ToUpper(port)},
		"periodSeconds": periodSeconds,
	}
}
