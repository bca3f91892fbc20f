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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

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
		hub       bool
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
		"hub of a fleet": {
			values: map[string]any{
				"scheduler": map[string]any{"enabled": false},
				"nodeAgent": map[string]any{"enabled": false},
				"hub":       map[string]any{"enabled": true},
			},
			hub: true,
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
			if test.hub {
				hub, err := scheduler.HubObjects()
				require.NoError(t, err)
				want = append(want, slices.DeleteFunc(hub, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })...)
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

// The programs of a fleet run without rights where they run, and reach the hub with the tokens of their accounts there.
func TestChartOfAFleet(t *testing.T) {
	values := func(fleet map[string]any) map[string]any {
		fleet["enabled"] = true
		return map[string]any{"scheduler": map[string]any{"enabled": false}, "nodeAgent": map[string]any{"enabled": false}, "fleet": fleet}
	}
	objects, failure := helm(t, contract.SystemNamespace, values(map[string]any{"image": "s", "server": "https://hub.example.com:5443", "logLevel": 2, "port": 9000}))
	require.Empty(t, failure)
	onHub, err := scheduler.HubObjects()
	require.NoError(t, err)
	args := map[string][]string{
		contract.FleetSchedulerName: {"fleet", "--kubeconfig=/config/kubeconfig", "--v=2", "--metrics-bind-address=[$(POD_IP)]:9000"},
		contract.FleetQueueName:     {"queue", "--fleet", "--kubeconfig=/config/kubeconfig", "--v=2", "--metrics-bind-address=[$(POD_IP)]:9000"},
	}
	kubeconfigs, deployments := map[string]string{}, map[string]appsv1.Deployment{}
	for _, object := range objects {
		switch object.GetKind() {
		case "ConfigMap":
			kubeconfigs[object.GetName()], _, err = unstructured.NestedString(object.Object, "data", "kubeconfig")
			require.NoError(t, err)
		case "Deployment":
			var deployment appsv1.Deployment
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment))
			deployments[deployment.Name] = deployment
		case "ServiceAccount", "ClusterRole", "Role":
			t.Errorf("%s %s", object.GetKind(), object.GetName())
		}
	}
	require.Len(t, deployments, len(args))
	for name, args := range args {
		config, err := clientcmd.Load([]byte(kubeconfigs[name]))
		require.NoError(t, err)
		assert.Equal(t, &api.Context{Cluster: "hub", AuthInfo: name, Extensions: map[string]runtime.Object{}}, config.Contexts[config.CurrentContext])
		assert.Equal(t, "https://hub.example.com:5443", config.Clusters["hub"].Server)
		pod := deployments[name].Spec.Template.Spec
		assert.Equal(t, args, pod.Containers[0].Args)
		assert.EqualValues(t, 9000, pod.Containers[0].Ports[0].ContainerPort)
		for _, probe := range []*corev1.Probe{pod.Containers[0].LivenessProbe, pod.Containers[0].ReadinessProbe} {
			assert.Equal(t, "/healthz", probe.HTTPGet.Path)
			assert.Equal(t, pod.Containers[0].Ports[0].Name, probe.HTTPGet.Port.String())
		}
		assert.False(t, *pod.AutomountServiceAccountToken)
		mounted := map[string]string{}
		for _, mount := range pod.Containers[0].VolumeMounts {
			mounted[mount.Name] = mount.MountPath
		}
		secret := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })]
		assert.Equal(t, mounted[secret.Name]+"/token", config.AuthInfos[name].TokenFile)
		assert.Equal(t, mounted[secret.Name]+"/ca.crt", config.Clusters["hub"].CertificateAuthority)
		assert.True(t, slices.ContainsFunc(onHub, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Secret" && o.GetName() == secret.Secret.SecretName && o.GetAnnotations()["kubernetes.io/service-account.name"] == name
		}), name)
	}
	for says, bad := range map[string]map[string]any{
		"fleet.image is required":  {"server": "https://hub.example.com"},
		"fleet.server is required": {"image": "s"},
		"/fleet/server":            {"image": "s", "server": "http://hub.example.com"},
	} {
		_, failure := helm(t, contract.SystemNamespace, values(bad))
		assert.Contains(t, failure, says)
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
			`"--host-root=/host"`, `{"mountPath":"/host/sys/bus","name":"sys-bus","readOnly":true}`, `{"mountPath":"/host/sys/class","name":"sys-class","readOnly":true}`,
			`{"mountPath":"/host/sys/devices","name":"sys-devices","readOnly":true}`, `{"hostPath":{"path":"/sys/bus"},"name":"sys-bus"}`,
			`{"hostPath":{"path":"/sys/class"},"name":"sys-class"}`, `{"hostPath":{"path":"/sys/devices"},"name":"sys-devices"}`,
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
			`"hostPath":{"path":"/run/gpuplan/mps","type":"DirectoryOrCreate"}`, `"hostPath":{"path":"/proc"}`, `{"mountPath":"/host/sys/fs/cgroup","name":"cgroup"}`, `"hostPath":{"path":"/sys/fs/cgroup"}`,
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
		"scheduler.image is required":          {"nodeAgent": map[string]any{"image": "a"}},
		"/scheduler/port":                      {"scheduler": map[string]any{"image": "s", "port": 0}, "nodeAgent": map[string]any{"image": "a"}},
		"maximum: got 65,535":                  {"scheduler": map[string]any{"image": "s", "port": 65535}, "nodeAgent": map[string]any{"image": "a"}},
		"/nodeAgent/metricsPort":               {"scheduler": map[string]any{"image": "s"}, "nodeAgent": map[string]any{"image": "a", "metricsPort": 9401}},
		"replica":                              {"scheduler": map[string]any{"image": "s", "replica": 1}, "nodeAgent": map[string]any{"image": "a"}},
		"set scheduler.enabled to false there": {"scheduler": map[string]any{"image": "s"}, "nodeAgent": map[string]any{"image": "a"}, "hub": map[string]any{"enabled": true}},
		"/hub/clusterSecretsNamespace":         {"scheduler": map[string]any{"enabled": false}, "hub": map[string]any{"enabled": true, "clusterSecretsNamespace": contract.SystemNamespace}},
	} {
		_, failure := helm(t, contract.SystemNamespace, bad)
		assert.Contains(t, failure, says)
	}

	_, failure = helm(t, "elsewhere", values)
	assert.Contains(t, failure, "gpuplan works in the namespace "+contract.SystemNamespace+" only, not in elsewhere")
}
