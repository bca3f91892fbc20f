package localtest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

var (
	bindings        = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}
	clusterBindings = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "clusterresourcebindings"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// needKarmada skips a test of fleets where Karmada's program was not built, which takes minutes.
func needKarmada(t *testing.T, i instance) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(i.programs, "gpuplan-karmada")); err != nil {
		t.Skip("gpuplan-karmada is not built: run make fleet")
	}
}

// access is the client of a cluster of a fleet.
func (i instance) access(cluster string) *kube.Client {
	i.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(i.must("kubeconfig", "--cluster", cluster)))
	require.NoError(i.t, err)
	client, err := kube.New(config)
	require.NoError(i.t, err)
	return client
}

// create creates objects, in the namespace default where they have one.
func create(t *testing.T, client *kube.Client, manifests string) (created []*unstructured.Unstructured) {
	t.Helper()
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(manifest), &object.Object))
		if !strings.HasPrefix(object.GetKind(), "Cluster") {
			object.SetNamespace("default")
		}
		object, err := client.Create(t.Context(), object)
		require.NoError(t, err)
		created = append(created, object)
	}
	return created
}

// bound waits for the binding of an object.
func bound(t *testing.T, hub *kube.Client, name string) (binding *unstructured.Unstructured) {
	t.Helper()
	eventually(t, "Karmada makes the binding "+name, func() (err error) {
		binding, err = hub.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	return binding
}

// release sends the object of a binding to a cluster, as a scheduler does.
func release(t *testing.T, hub *kube.Client, binding *unstructured.Unstructured, cluster string) {
	t.Helper()
	placement, err := json.Marshal(binding.Object["spec"].(map[string]any)["placement"])
	require.NoError(t, err)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": binding.GetResourceVersion(),
			"annotations":     map[string]any{"policy.karmada.io/applied-placement": string(placement)},
		},
		"spec": map[string]any{
			"clusters":   []any{map[string]any{"name": cluster}},
			"suspension": map[string]any{"scheduling": false},
		},
	})
	require.NoError(t, err)
	_, err = hub.Dynamic.Resource(bindings).Namespace("default").Patch(t.Context(), binding.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// process is the number of a process by its name, 0 when there is none.
func (s status) process(name string) int {
	for _, p := range s.Processes {
		if p.Name == name {
			return p.PID
		}
	}
	return 0
}

func TestFleet(t *testing.T) {
	i := newInstance(t)
	needKarmada(t, i)
	output := i.must("up", "--members", "1")
	assert.Contains(t, output, "Ready after")
	assert.Contains(t, output, "member-1")
	first := i.status()
	for _, name := range []string{"gpuplan-local", "gpuplan-karmada", "gpuplan-karmada-scheduler", "member-1", "member-1 gpuplan-joboperator"} {
		assert.Positive(t, first.process(name), name)
	}
	require.Len(t, first.Members, 1)
	assert.True(t, first.Members[0].Joined)
	assert.Equal(t, "c-gpuplan-member-1", first.Members[0].Cloud.ClusterID)
	t.Logf("ready after %.1f s, %d MiB", first.ReadySeconds, first.MemoryBytes>>20)

	env := i.must("env", "--cluster", "member-1")
	assert.Contains(t, env, "export GPUPLAN_CLUSTER_ID='c-gpuplan-member-1'")
	assert.NotContains(t, i.must("env"), "GPUPLAN_CS_ENDPOINT", "the hub has no cloud")
	output, err := i.run("env", "--cluster", "member-2")
	require.Error(t, err)
	assert.Contains(t, output, `there is no cluster "member-2"; there are hub, member-1`)

	hub, member := i.access("hub"), i.access("member-1")
	onMember := func(name string) error {
		_, err := member.Dynamic.Resource(configMaps).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		return err
	}
	objects := create(t, hub, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: settings}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: first}
data: {key: value}`)
	assert.Equal(t, "default.settings", objects[0].GetLabels()["propagationpolicy.karmada.io/permanent-id"])
	assert.Equal(t, []string{"karmada.io/propagation-policy-controller"}, objects[0].GetFinalizers())
	binding := bound(t, hub, "first-configmap")
	assert.Equal(t, string(objects[1].GetUID()), binding.GetLabels()["resourcebinding.karmada.io/permanent-id"])
	eventually(t, "Karmada's scheduler sends the object to the member", func() error { return onMember("first") })

	t.Run("policies without an identity are refused", func(t *testing.T) {
		_, err := hub.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
			"metadata": map[string]any{"name": strings.Repeat("long", 15), "namespace": "default"},
			"spec":     map[string]any{"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "Secret"}}},
		}})
		assert.ErrorContains(t, err, "at most 62 characters")
	})

	t.Run("objects without a namespace", func(t *testing.T) {
		objects := create(t, hub, `
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: roles}
spec:
  resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: reader}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]`)
		assert.Equal(t, "roles", objects[0].GetLabels()["clusterpropagationpolicy.karmada.io/permanent-id"])
		assert.Equal(t, []string{"karmada.io/cluster-propagation-policy-controller"}, objects[0].GetFinalizers())
		eventually(t, "Karmada makes the binding", func() error {
			binding, err := hub.Dynamic.Resource(clusterBindings).Get(t.Context(), "reader-clusterrole", metav1.GetOptions{})
			if err == nil {
				assert.Equal(t, string(objects[1].GetUID()), binding.GetLabels()["clusterresourcebinding.karmada.io/permanent-id"])
			}
			return err
		})
	})

	t.Run("gangs are held", func(t *testing.T) {
		cloud := cloudClient(t, i.env("--cluster", "member-1"))
		created, err := cloud.CreateNodePool(t.Context(), "c-gpuplan-member-1", v100Pool("v100", 1))
		require.NoError(t, err)
		_, err = cloud.WaitTask(t.Context(), created.TaskID, nil)
		require.NoError(t, err)
		objects := create(t, hub, gang)
		scheduler, _, err := unstructured.NestedString(objects[0].Object, "spec", "schedulerName")
		require.NoError(t, err)
		assert.Equal(t, "gpuplan-fleet-scheduler", scheduler)
		preference, _, err := unstructured.NestedString(objects[0].Object, "spec", "placement", "replicaScheduling", "replicaDivisionPreference")
		require.NoError(t, err)
		assert.Equal(t, "Weighted", preference, "as by Karmada's webhook")
		suspended, _, err := unstructured.NestedBool(objects[0].Object, "spec", "suspension", "scheduling")
		require.NoError(t, err)
		assert.True(t, suspended, "a field of ACK's policies")
		binding := bound(t, hub, "pytorch-test-pytorchjob")
		held, _, err := unstructured.NestedBool(binding.Object, "spec", "suspension", "scheduling")
		require.NoError(t, err)
		assert.True(t, held)
		components, _, err := unstructured.NestedSlice(binding.Object, "spec", "components")
		require.NoError(t, err)
		replicas := map[any]any{}
		for _, component := range components {
			replicas[component.(map[string]any)["name"]] = component.(map[string]any)["replicas"]
		}
		assert.Equal(t, map[any]any{"master": int64(1), "worker": int64(2)}, replicas)

		create(t, hub, `
apiVersion: v1
kind: ConfigMap
metadata: {name: later}`)
		eventually(t, "Karmada's scheduler has seen what is later than the gang", func() error { return onMember("later") })
		binding = bound(t, hub, "pytorch-test-pytorchjob")
		clusters, _, err := unstructured.NestedSlice(binding.Object, "spec", "clusters")
		require.NoError(t, err)
		assert.Empty(t, clusters)

		// What releases it and sends it to a cluster is done by hand here.
		release(t, hub, binding, "member-1")
		eventually(t, "the hub hears that the gang runs on the member", func() error {
			binding := bound(t, hub, "pytorch-test-pytorchjob")
			statuses, _, err := unstructured.NestedSlice(binding.Object, "status", "aggregatedStatus")
			if err == nil && (len(statuses) != 1 || !strings.Contains(fmt.Sprint(statuses[0]), "type:Running")) {
				err = fmt.Errorf("%v", statuses)
			}
			return err
		})
		pods, err := member.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=pytorch-test"})
		require.NoError(t, err)
		require.Len(t, pods.Items, 3)
		for _, pod := range pods.Items {
			assert.Contains(t, pod.Annotations, contract.AllocationAnnotation, "the member's scheduler has chosen the GPUs")
		}
	})

	t.Run("what dies is started again", func(t *testing.T) {
		for _, name := range []string{"gpuplan-karmada", "gpuplan-karmada-scheduler", "member-1"} {
			require.NoError(t, syscall.Kill(first.process(name), syscall.SIGKILL))
			eventually(t, name+" runs again", func() error {
				now := i.status()
				if pid := now.process(name); pid == 0 || pid == first.process(name) || len(now.Members) == 0 || !now.Members[0].Joined || now.Members[0].Nodes == nil {
					return fmt.Errorf("%+v", now)
				}
				return nil
			})
		}
	})

	i.must("down")
	assert.Empty(t, first.alive())
	assert.Equal(t, env, i.must("env", "--cluster", "member-1"))
	i.must("up", "--members", "1")
	require.NoError(t, onMember("first"), "addresses and data stay")
	create(t, hub, `
apiVersion: v1
kind: ConfigMap
metadata: {name: second}`)
	eventually(t, "the second object is on the member", func() error { return onMember("second") })
	require.NoError(t, hub.Dynamic.Resource(configMaps).Namespace("default").Delete(t.Context(), "first", metav1.DeleteOptions{}))
	eventually(t, "what is deleted on the hub goes from the member", func() error {
		if err := onMember("first"); !kube.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	require.NoError(t, onMember("second"))

	policies := schema.GroupVersionResource{Group: "policy.karmada.io", Version: "v1alpha1", Resource: "propagationpolicies"}
	require.NoError(t, hub.Dynamic.Resource(policies).Namespace("default").Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	eventually(t, "the policy goes, and leaves its objects", func() error {
		if _, err := hub.Dynamic.Resource(policies).Namespace("default").Get(t.Context(), "settings", metav1.GetOptions{}); !kube.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		object, err := hub.Dynamic.Resource(configMaps).Namespace("default").Get(t.Context(), "second", metav1.GetOptions{})
		if err == nil && len(object.GetLabels()) > 0 {
			err = fmt.Errorf("labels %v", object.GetLabels())
		}
		return err
	})

	last := i.status()
	i.must("down", "--purge")
	assert.Empty(t, last.alive())
	assert.NoDirExists(t, i.dir)
}

// gang is the policy of ACK's document on fleets, as Karmada spells it, and a job for it.
const gang = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: example-policy}
spec:
  suspension: {scheduling: true}
  propagateDeps: true
  failover:
    application:
      decisionConditions: {tolerationSeconds: 30}
      purgeMode: Immediately
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      customSchedulingType: Gang
  resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: pytorch-test}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        metadata: {labels: {gpu-topology: pytorch-test, gpu-topology-replica: "3"}}
        spec: {schedulerName: gpuplan-scheduler, containers: [{name: pytorch, image: "example.com/train:1", resources: {limits: {aliyun.com/gpu: "1"}}}]}
    Worker:
      replicas: 2
      template:
        metadata: {labels: {gpu-topology: pytorch-test, gpu-topology-replica: "3"}}
        spec: {schedulerName: gpuplan-scheduler, containers: [{name: pytorch, image: "example.com/train:1", resources: {limits: {aliyun.com/gpu: "1"}}}]}`
