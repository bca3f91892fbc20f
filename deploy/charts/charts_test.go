package charts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	nodeagent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

const chartFolder = "gpuplan"

// helm renders the chart with Helm's own engine.
func helm(t *testing.T, namespace string, values map[string]any) (objects []*unstructured.Unstructured, failure string) {
	t.Helper()
	program, err := filepath.Abs("../../bin/helm")
	require.NoError(t, err)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		output, err := exec.Command("make", "--no-print-directory", "-C", "../..", "bin/helm").CombinedOutput()
		require.NoError(t, err, string(output))
	}
	text, err := json.Marshal(values)
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	command := exec.Command(program, chartFolder, namespace, string(text))
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, stderr.String()
	}
	decoder := yaml.NewYAMLOrJSONDecoder(&stdout, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, ""
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// byName maps objects to their kind and name, without what a release has different by
// design: who manages the objects, and the namespace and the CRDs, which helm makes.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	named := map[string]any{}
	for _, object := range objects {
		if object.GetKind() == "Namespace" && object.GetName() == contract.SystemNamespace {
			continue
		}
		labels := object.GetLabels()
		delete(labels, contract.ManagedByLabel)
		if object.GetKind() == "CustomResourceDefinition" {
			labels = nil
		}
		object.SetLabels(labels)
		// Numbers are compared as JSON has them.
		text, err := json.Marshal(object.Object)
		require.NoError(t, err)
		var plain any
		require.NoError(t, json.Unmarshal(text, &plain))
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		assert.NotContains(t, named, key)
		named[key] = plain
	}
	return named
}

// Helm renders the same objects as those that the provider applies.
func TestChartRendersTheManifests(t *testing.T) {
	tests := map[string]struct {
		values    map[string]any
		scheduler *scheduler.Options
		agent     *nodeagent.Options
	}{
		"defaults": {
			values: map[string]any{
				"scheduler": map[string]any{"image": "registry.example.com/s:1"},
				"nodeAgent": map[string]any{"image": "registry.example.com/a:1"},
			},
			scheduler: &scheduler.Options{Image: "registry.example.com/s:1", Port: 10259, UnreachableGrace: time.Minute, RoutePods: true},
			agent:     &nodeagent.Options{Image: "registry.example.com/a:1", Interval: 30 * time.Second, MetricsPort: 9400},
		},
		"options": {
			values: map[string]any{
				"scheduler": map[string]any{"image": "s", "replicas": 3, "logLevel": 4, "port": 8443, "unreachableGrace": "1m30s", "reserveAfter": "10m0s", "staleAfter": "1h0m0s", "routePods": false},
				"nodeAgent": map[string]any{"enabled": false},
			},
			scheduler: &scheduler.Options{Image: "s", Replicas: 3, LogLevel: 4, Port: 8443, UnreachableGrace: 90 * time.Second, ReserveAfter: 10 * time.Minute, StaleAfter: time.Hour},
		},
		"agent only": {
			values: map[string]any{
				"scheduler": map[string]any{"enabled": false},
				"nodeAgent": map[string]any{"image": "a", "interval": "5s", "metricsPort": 9999},
			},
			agent: &nodeagent.Options{Image: "a", Interval: 5 * time.Second, MetricsPort: 9999},
		},
	}
	crds := func(objects []*unstructured.Unstructured) (found []*unstructured.Unstructured) {
		for _, object := range objects {
			if object.GetKind() == "CustomResourceDefinition" {
				found = append(found, object)
			}
		}
		return found
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var want []*unstructured.Unstructured
			ours, err := scheduler.Objects(scheduler.Options{Image: "x"})
			require.NoError(t, err)
			if test.scheduler != nil {
				ours, err = scheduler.Objects(*test.scheduler)
				require.NoError(t, err)
				want = append(want, ours...)
			} else {
				want = append(want, crds(ours)...) // helm always brings them
			}
			agents, err := nodeagent.Objects(nodeagent.Options{Image: "x"})
			require.NoError(t, err)
			if test.agent != nil {
				agents, err = nodeagent.Objects(*test.agent)
				require.NoError(t, err)
				want = append(want, agents...)
			} else {
				want = append(want, crds(agents)...)
			}
			have, failure := helm(t, contract.SystemNamespace, test.values)
			require.Empty(t, failure)
			for _, object := range have {
				if object.GetKind() != "CustomResourceDefinition" {
					assert.Equal(t, "Helm", object.GetLabels()[contract.ManagedByLabel], object.GetName())
				}
			}
			assert.Equal(t, byName(t, want), byName(t, have))
		})
	}
}

// Only an agent that is the device plugin of its node may see and annotate pods, runs as root, and reaches the kubelet.
func TestChartDevicePlugins(t *testing.T) {
	for _, plugins := range []bool{true, false} {
		objects, failure := helm(t, contract.SystemNamespace, map[string]any{
			"scheduler": map[string]any{"enabled": false},
			"nodeAgent": map[string]any{"image": "a", "devicePlugins": plugins},
		})
		require.Empty(t, failure)
		text := ""
		for _, object := range objects {
			if object.GetKind() == "DaemonSet" || object.GetKind() == "ClusterRole" {
				b, err := object.MarshalJSON()
				require.NoError(t, err)
				text += string(b)
			}
		}
		for _, part := range []string{
			`"--device-plugins","--device-plugin-dir=/var/lib/kubelet/device-plugins"`, `"resources":["pods"],"verbs":["get","list","watch"]`, `"resources":["pods/status"],"verbs":["patch"]`, `"runAsUser":0`,
			`"hostPath":{"path":"/var/lib/kubelet/device-plugins","type":"DirectoryOrCreate"}`, `"mountPath":"/host/proc/driver"`, `"--nri-socket=/var/run/nri/nri.sock"`, `"mountPath":"/var/run/nri"`,
		} {
			assert.Equal(t, plugins, strings.Contains(text, part), part)
		}
		assert.Equal(t, !plugins, strings.Contains(text, `"runAsNonRoot":true`))
	}
}

// Only an agent that enforces parts of GPUs is privileged and sees the processes of the host.
func TestChartMPS(t *testing.T) {
	agent := func(mps, plugins bool) (string, string) {
		objects, failure := helm(t, contract.SystemNamespace, map[string]any{
			"scheduler": map[string]any{"enabled": false},
			"nodeAgent": map[string]any{"image": "a", "devicePlugins": plugins, "mps": mps},
		})
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" })
		if i < 0 {
			return "", failure
		}
		b, err := objects[i].MarshalJSON()
		require.NoError(t, err)
		return string(b), failure
	}
	_, failure := agent(true, false)
	assert.Contains(t, failure, "nodeAgent.mps needs nodeAgent.devicePlugins")
	for _, mps := range []bool{true, false} {
		text, failure := agent(mps, true)
		require.Empty(t, failure)
		for _, part := range []string{
			`"--mps","--mps-dir=/run/gpuplan/mps"`, `"hostPID":true`, `"privileged":true`, `"value":"compute,utility"`, `"mountPath":"/run/gpuplan/mps"`,
			`"hostPath":{"path":"/run/gpuplan/mps","type":"DirectoryOrCreate"}`, `"hostPath":{"path":"/proc"}`,
		} {
			assert.Equal(t, mps, strings.Contains(text, part), part)
		}
		assert.Equal(t, !mps, strings.Contains(text, `"allowPrivilegeEscalation":false`))
	}
}

// The user's resources are used; what cannot work is refused.
func TestChartValues(t *testing.T) {
	values := map[string]any{
		"scheduler": map[string]any{"image": "s", "resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}},
		"nodeAgent": map[string]any{"enabled": false},
	}
	objects, failure := helm(t, contract.SystemNamespace, values)
	require.Empty(t, failure)
	for _, object := range objects {
		if object.GetKind() == "Deployment" && object.GetName() == contract.SchedulerName {
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			require.NoError(t, err)
			resources := containers[0].(map[string]any)["resources"].(map[string]any)
			assert.Equal(t, map[string]any{"memory": "1Gi"}, resources["limits"])
			assert.Contains(t, resources, "requests", "the defaults stay")
		}
	}

	values["scheduler"].(map[string]any)["reserveAfter"] = "-1s"
	_, failure = helm(t, contract.SystemNamespace, values)
	assert.Empty(t, failure, "no reservation for a gang that waits")

	for says, bad := range map[string]map[string]any{
		"scheduler.image is required": {"nodeAgent": map[string]any{"image": "a"}},
		"/scheduler/port":             {"scheduler": map[string]any{"image": "s", "port": 0}, "nodeAgent": map[string]any{"image": "a"}},
		"maximum: got 65,535":         {"scheduler": map[string]any{"image": "s", "port": 65535}, "nodeAgent": map[string]any{"image": "a"}},
		"/nodeAgent/metricsPort":      {"scheduler": map[string]any{"image": "s"}, "nodeAgent": map[string]any{"image": "a", "metricsPort": 9401}},
		"replica":                     {"scheduler": map[string]any{"image": "s", "replica": 1}, "nodeAgent": map[string]any{"image": "a"}},
	} {
		_, failure := helm(t, contract.SystemNamespace, bad)
		assert.Contains(t, failure, says)
	}

	_, failure = helm(t, "elsewhere", values)
	assert.Contains(t, failure, "gpuplan works in the namespace "+contract.SystemNamespace+" only, not in elsewhere")
}
