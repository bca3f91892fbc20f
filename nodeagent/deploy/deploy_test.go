package deploy_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

func objects(t *testing.T, o deploy.Options) []*unstructured.Unstructured {
	t.Helper()
	objs, err := deploy.Objects(o)
	require.NoError(t, err)
	return objs
}

// typed finds the object of a kind and decodes it strictly: an unknown field fails.
func typed[T any](t *testing.T, objs []*unstructured.Unstructured, kind string) T {
	t.Helper()
	i := slices.IndexFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	require.GreaterOrEqual(t, i, 0, kind)
	var out T
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objs[i].Object, &out, true))
	return out
}

func TestObjects(t *testing.T) {
	objs := objects(t, deploy.Options{Image: "example.com/agent:1"})

	for _, obj := range objs {
		assert.Equal(t, contract.ManagedByValue, obj.GetLabels()[contract.ManagedByLabel], obj.GetName())
		assert.Equal(t, contract.PartOfValue, obj.GetLabels()[contract.PartOfLabel], obj.GetName())
	}
	ds := typed[appsv1.DaemonSet](t, objs, "DaemonSet")
	assert.Equal(t, contract.NodeAgentName, ds.Name)
	assert.Equal(t, contract.SystemNamespace, ds.Namespace)
	assert.Equal(t, contract.PartOfValue, ds.Spec.Template.Labels[contract.PartOfLabel])
	for k, v := range ds.Spec.Selector.MatchLabels {
		assert.Equal(t, v, ds.Spec.Template.Labels[k])
	}
	container := ds.Spec.Template.Spec.Containers[0]
	assert.Equal(t, contract.NodeAgentName, container.Name)
	assert.Equal(t, "example.com/agent:1", container.Image)
	assert.Empty(t, container.Args)
	require.NotNil(t, container.LivenessProbe, "an agent that hangs is restarted")
	assert.Equal(t, 9401, container.LivenessProbe.HTTPGet.Port.IntValue())
	assert.True(t, slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_IP" }), "without it the agent does not answer")
	terms := ds.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	assert.Equal(t, contract.NodeModeLabel, terms[0].MatchExpressions[0].Key)
}

func TestOptionsRollThePods(t *testing.T) {
	one := typed[appsv1.DaemonSet](t, objects(t, deploy.Options{Image: "a"}), "DaemonSet")
	two := typed[appsv1.DaemonSet](t, objects(t, deploy.Options{Image: "a", Interval: time.Minute, MetricsPort: 9400}), "DaemonSet")

	assert.Equal(t, []string{"--interval=1m0s", "--metrics-addr=[$(POD_IP)]:9400"}, two.Spec.Template.Spec.Containers[0].Args)
	assert.NotEmpty(t, one.Spec.Template.Annotations[contract.ConfigHashAnnotation])
	assert.NotEqual(t, one.Spec.Template.Annotations, two.Spec.Template.Annotations)

	three := typed[appsv1.DaemonSet](t, objects(t, deploy.Options{Image: "a", NoFeatureLabels: true}), "DaemonSet")
	assert.Equal(t, []string{"--feature-labels=false"}, three.Spec.Template.Spec.Containers[0].Args)

	_, err := deploy.Objects(deploy.Options{})
	assert.ErrorContains(t, err, "image")
}

// Every right of the agent is here; to grant one more is to write it here, too.
func TestRights(t *testing.T) {
	cluster := []string{
		"/nodes: get list watch",
		"/nodes/status: patch",
		"/events: create patch",
		"gpuplan.dev/gpunodes: get list watch create patch",
		"gpuplan.dev/gpunodes/status: patch",
	}
	// With them it reads the pods of its node, and writes what their containers were given.
	plugins := []string{"/pods: get list watch", "/pods/status: patch"}
	for name, test := range map[string]struct {
		options deploy.Options
		cluster []string
	}{
		"by default":     {deploy.Options{Image: "a"}, cluster},
		"device plugins": {deploy.Options{Image: "a", DevicePlugins: true, MPS: true}, slices.Concat(cluster, plugins)},
	} {
		t.Run(name, func(t *testing.T) {
			objs := objects(t, test.options)
			assert.ElementsMatch(t, test.cluster, rightsOf(typed[rbacv1.ClusterRole](t, objs, "ClusterRole").Rules))
			role := typed[rbacv1.Role](t, objs, "Role")
			assert.Equal(t, "kube-system", role.Namespace)
			assert.Equal(t, []string{"/configmaps: get list watch create patch delete"}, rightsOf(role.Rules))
		})
	}
}

// rightsOf renders rules as "group/resource: verbs" per resource.
func rightsOf(rules []rbacv1.PolicyRule) (rights []string) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			what := append([]string{strings.Join(rule.APIGroups, ",") + "/" + resource}, rule.ResourceNames...)
			rights = append(rights, strings.Join(what, " ")+": "+strings.Join(rule.Verbs, " "))
		}
	}
	return rights
}

func TestCRDMatchesTheContract(t *testing.T) {
	crd := typed[apiextensionsv1.CustomResourceDefinition](t, objects(t, deploy.Options{Image: "a"}), "CustomResourceDefinition")
	assert.Equal(t, contract.GPUNodeResource+"."+contract.GPUNodeGroup, crd.Name)
	assert.Equal(t, contract.GPUNodeKind, crd.Spec.Names.Kind)
	assert.Equal(t, contract.GPUNodeVersion, crd.Spec.Versions[0].Name)

	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
	full := contract.GPUNodeStatus{
		Wiring: "w", Model: "m", DriverVersion: "1", NVLinkGBps: "25", PCIeGeneration: 3, NVSwitch: true, NoP2P: true, P2P: &contract.P2PInfo{Read: []string{"X"}, Write: []string{"X"}, NVLink: []string{"X"}, Atomics: []string{"X"}},
		Sharing: &contract.GPUSharing{Reason: "r"}, BootID: "b", Agent: &contract.AgentInfo{Version: "v", BootID: "b"}, GPUs: []contract.GPUInfo{{
			UUID: "u", MemoryMiB: 1, CPUAffinity: "0", PCIBusID: "0", Reason: "r", Since: &metav1.Time{}, State: "s", NVLinks: 1, MaxNVLinks: 1, UncorrectableErrors: new(int64),
			PCIe: "p", BestPCIe: "p", MIG: true, PendingMIG: "Disabled", MIGDevices: []contract.MIGDevices{{Profile: "1g.5gb", Count: 1}}, Fabric: "f", Faults: []contract.GPUFault{{Cured: true}},
		}}, Links: []string{"X"}, PCIeLinks: []string{"X"}, NICs: []contract.NICInfo{{Name: "e0"}},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&full)
	require.NoError(t, err)
	gpu := fields["gpus"].([]any)[0].(map[string]any)
	for at, test := range map[string]struct {
		fields map[string]any
		schema map[string]apiextensionsv1.JSONSchemaProps
	}{
		"status":  {fields, status},
		"p2p":     {fields["p2p"].(map[string]any), status["p2p"].Properties},
		"sharing": {fields["sharing"].(map[string]any), status["sharing"].Properties},
		"agent":   {fields["agent"].(map[string]any), status["agent"].Properties},
		"gpu":     {gpu, status["gpus"].Items.Schema.Properties},
		"mig":     {gpu["migDevices"].([]any)[0].(map[string]any), status["gpus"].Items.Schema.Properties["migDevices"].Items.Schema.Properties},
		"fault":   {gpu["faults"].([]any)[0].(map[string]any), status["gpus"].Items.Schema.Properties["faults"].Items.Schema.Properties},
	} {
		for field := range test.fields {
			assert.Contains(t, test.schema, field, "the API server would drop it from the %s", at)
		}
	}
}

func TestInstallAndRemove(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	objs := objects(t, deploy.Options{Image: "a"})

	require.NoError(t, client.ApplyAll(ctx, objs, nil))
	mirror := &unstructured.Unstructured{Object: map[string]any{}}
	mirror.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	mirror.SetNamespace("kube-system")
	mirror.SetName(contract.TopologyConfigMapPrefix + "n1")
	mirror.SetLabels(map[string]string{contract.NameLabel: contract.NodeAgentName})
	server.Put(mirror)
	labels := map[string]string{contract.GFDCountLabel: "8"}
	for name, labels := range map[string]map[string]string{"ours": nil, "discovered": {contract.GFDTimestampLabel: "1724632719"}, "theirs": labels} {
		node := &unstructured.Unstructured{Object: map[string]any{}}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		node.SetName(name)
		node.SetLabels(labels)
		server.Put(node)
		if name != "theirs" {
			node.SetLabels(map[string]string{contract.GFDCountLabel: "8"})
			_, err := client.ApplyBeside(ctx, contract.NodeFeaturesManager, node, "status")
			require.NoError(t, err)
		}
	}

	require.NoError(t, client.DeleteAll(ctx, objs, nil))
	require.NoError(t, deploy.RemovePublished(ctx, client))
	for name, want := range map[string]map[string]string{"ours": {}, "discovered": {contract.GFDTimestampLabel: "1724632719", contract.GFDCountLabel: "8"}, "theirs": labels} {
		node, err := client.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Len(t, node.Labels, len(want), name)
		assert.Subset(t, node.Labels, want, name)
	}
	for _, obj := range append(objs, mirror) {
		_, err := client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		assert.Error(t, err, "%s %s", obj.GetKind(), obj.GetName())
	}
}
