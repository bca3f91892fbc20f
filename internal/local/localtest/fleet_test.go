package localtest_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
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

// plugin asks the hub of a fleet through kubectl's plugin.
func (i instance) plugin(args ...string) string {
	i.t.Helper()
	hub := strings.TrimSpace(i.must("kubeconfig", "--cluster", "hub"))
	output, err := exec.Command(filepath.Join(i.programs, "kubectl-gpuplan"), append(args, "--kubeconfig", hub)...).CombinedOutput()
	require.NoError(i.t, err, "kubectl gpuplan %v: %s", args, output)
	return string(output)
}

// create creates objects, in the namespace default where they have one.
func create(t *testing.T, client *kube.Client, manifests string) (created []*unstructured.Unstructured) {
	t.Helper()
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(manifest), &object.Object))
		if object.GetNamespace() == "" && !strings.HasPrefix(object.GetKind(), "Cluster") {
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

// makePool gives a cluster of a fleet a pool of one node with eight V100.
func makePool(t *testing.T, i instance, cluster string) {
	t.Helper()
	cloud := cloudClient(t, i.env("--cluster", cluster))
	created, err := cloud.CreateNodePool(t.Context(), "c-gpuplan-"+cluster, v100Pool("v100", 1))
	require.NoError(t, err)
	_, err = cloud.WaitTask(t.Context(), created.TaskID, nil)
	require.NoError(t, err)
}

// fleetOfTwo is a hub with two member clusters, each with a pool of one node with eight V100.
func fleetOfTwo(t *testing.T) (i instance, hub *kube.Client, members map[string]*kube.Client) {
	t.Helper()
	i = newInstance(t)
	hub, members = i.fleetOfTwo()
	return i, hub, members
}

// fleetOfTwo starts such a fleet, with options.
func (i instance) fleetOfTwo(options ...string) (hub *kube.Client, members map[string]*kube.Client) {
	i.t.Helper()
	needKarmada(i.t, i)
	i.must(append([]string{"up", "--members", "2"}, options...)...)
	members = map[string]*kube.Client{}
	for _, name := range []string{"member-1", "member-2"} {
		makePool(i.t, i, name)
		members[name] = i.access(name)
	}
	return i.access("hub"), members
}

// hubProgramsMayAllTheyNeed looks for requests of the programs of the hub that their accounts there had no right to.
func (i instance) hubProgramsMayAllTheyNeed() {
	i.t.Helper()
	for _, program := range []string{contract.FleetSchedulerName, contract.FleetQueueName} {
		log, err := os.ReadFile(datadir.Dir(i.dir).Log(program))
		require.NoError(i.t, err)
		assert.NotContains(i.t, string(log), "orbidden", program)
	}
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
	for _, name := range []string{"gpuplan-local", "gpuplan-karmada", "gpuplan-karmada-scheduler", contract.FleetSchedulerName, "member-1", "member-1 gpuplan-joboperator"} {
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

	t.Run("gangs go to a cluster by our scheduler", func(t *testing.T) {
		makePool(t, i, "member-1")
		objects := create(t, hub, queuedPolicy+"\n---\n"+gangOf("pytorch-test", 1))
		scheduler, _, err := unstructured.NestedString(objects[0].Object, "spec", "schedulerName")
		require.NoError(t, err)
		assert.Equal(t, contract.FleetSchedulerName, scheduler)
		preference, _, err := unstructured.NestedString(objects[0].Object, "spec", "placement", "replicaScheduling", "replicaDivisionPreference")
		require.NoError(t, err)
		assert.Equal(t, "Weighted", preference, "as by Karmada's webhook")
		suspended, _, err := unstructured.NestedBool(objects[0].Object, "spec", "suspension", "scheduling")
		require.NoError(t, err)
		assert.True(t, suspended, "a field of ACK's policies")
		binding := bound(t, hub, "pytorch-test-pytorchjob")
		eventually(t, "the queue of the hub holds the job", func() error {
			unit, err := hub.Dynamic.Resource(queueUnits).Namespace("default").Get(t.Context(), "pytorch-test-py-qu", metav1.GetOptions{})
			if err == nil && !strings.Contains(fmt.Sprint(unit.Object["status"]), "there is no quota tree") {
				err = fmt.Errorf("%v", unit.Object["status"])
			}
			return err
		})
		create(t, hub, oneAtATime)
		components, _, err := unstructured.NestedSlice(binding.Object, "spec", "components")
		require.NoError(t, err)
		replicas := map[any]any{}
		for _, component := range components {
			replicas[component.(map[string]any)["name"]] = component.(map[string]any)["replicas"]
		}
		assert.Equal(t, map[any]any{"master": int64(1), "worker": int64(2)}, replicas)
		eventually(t, "the hub hears that the gang runs on the member", func() error {
			binding := bound(t, hub, "pytorch-test-pytorchjob")
			statuses, _, err := unstructured.NestedSlice(binding.Object, "status", "aggregatedStatus")
			if err == nil && (len(statuses) != 1 || !strings.Contains(fmt.Sprint(statuses[0]), "type:Running")) {
				err = fmt.Errorf("%v", statuses)
			}
			return err
		})
		eventually(t, "the job on the hub says that it runs", func() error {
			job, err := hub.Dynamic.Resource(pyTorchJobs).Namespace("default").Get(t.Context(), "pytorch-test", metav1.GetOptions{})
			if err == nil && !strings.Contains(fmt.Sprint(job.Object["status"]), "type:Running") {
				err = fmt.Errorf("%v", job.Object["status"])
			}
			return err
		})
		pods, err := member.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=pytorch-test"})
		require.NoError(t, err)
		require.Len(t, pods.Items, 3)
		for _, pod := range pods.Items {
			assert.Contains(t, pod.Annotations, contract.AllocationAnnotation, "the member's scheduler has chosen the GPUs")
		}
		said, _, err := unstructured.NestedSlice(bound(t, hub, "pytorch-test-pytorchjob").Object, "status", "conditions")
		require.NoError(t, err)
		assert.Contains(t, fmt.Sprint(said), "Result: {member-1:0,[{master 1} {worker 2}]}")
	})

	t.Run("what dies is started again", func(t *testing.T) {
		for _, name := range []string{"gpuplan-karmada", "gpuplan-karmada-scheduler", contract.FleetSchedulerName, "member-1"} {
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

// A hub sends gangs to a member of an older version of Kubernetes, which keeps their places as any other.
func TestFleetOfAnOlderMember(t *testing.T) {
	i := newInstance(t)
	needKarmada(t, i)
	older := []string{"--emulated-version", "1.34"}
	if program := os.Getenv(localtest.APIServer); program != "" {
		older = []string{"--kube-apiserver", program}
	}
	i.must(append([]string{"up", "--members", "1"}, older...)...)
	makePool(t, i, "member-1")
	hub, member := i.access("hub"), i.access("member-1")
	minors := map[string]string{}
	for name, client := range map[string]*kube.Client{"hub": hub, "member": member} {
		version, err := client.Typed.Discovery().ServerVersion()
		require.NoError(t, err)
		minors[name] = cmp.Or(version.EmulationMinor, version.Minor)
	}
	assert.Equal(t, "36", minors["hub"])
	assert.Less(t, minors["member"], minors["hub"])
	t.Logf("the member is of 1.%s", minors["member"])
	kept := watchReservations(t, member)
	create(t, hub, gangPolicy)
	create(t, hub, gangOf("old", 2))
	gangRuns(t, member, "old")
	assert.Contains(t, kept(), "old-pytorchjob")
	i.must("down", "--purge")
}

// queuedPolicy is the policy of ACK's document on fleets, as Karmada spells it, and gangPolicy the same without the queue.
var queuedPolicy = strings.Replace(gangPolicy, "spec:\n", "spec:\n  suspension: {scheduling: true}\n", 1)

const gangPolicy = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: example-policy}
spec:
  propagateDeps: true
  failover:
    application:
      decisionConditions: {tolerationSeconds: 30}
      purgeMode: Immediately
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      customSchedulingType: Gang
  resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]`

// gangOf is a job for it, of a master and two workers with so many GPUs each.
func gangOf(name string, gpus int) string {
	replicas := func(count int) string {
		return fmt.Sprintf(`
      replicas: %d
      template:
        metadata: {labels: {gpu-topology: %s, gpu-topology-replica: "3"}}
        spec: {schedulerName: gpuplan-scheduler, containers: [{name: pytorch, image: "example.com/train:1", resources: {limits: {aliyun.com/gpu: "%d"}}}]}`, count, name, gpus)
	}
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: %s}
spec:
  pytorchReplicaSpecs:
    Master:%s
    Worker:%s`, name, replicas(1), replicas(2))
}

// gangRuns waits until all pods of such a job run in a member cluster.
func gangRuns(t *testing.T, member *kube.Client, name string) {
	t.Helper()
	eventually(t, "gang "+name+" runs in "+member.Config.Host, func() error {
		pods, err := member.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if err == nil && running != 3 {
			err = fmt.Errorf("%d of 3 pods run", running)
		}
		return err
	})
}

var gangReservations = schema.GroupVersionResource{Group: contract.GangReservationGroup, Version: contract.GangReservationVersion, Resource: contract.GangReservationResource}

// watchReservations returns what a member cluster has answered so far that it keeps, by reservation.
func watchReservations(t *testing.T, member *kube.Client) func() map[string]contract.GangReservationStatus {
	t.Helper()
	changes, err := member.Dynamic.Resource(gangReservations).Namespace("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var mu sync.Mutex
	kept := map[string]contract.GangReservationStatus{}
	go func() {
		for change := range changes.ResultChan() {
			object, ok := change.Object.(*unstructured.Unstructured)
			var reservation contract.GangReservation
			if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &reservation) == nil && reservation.Status.Phase == contract.PhaseReserved {
				mu.Lock()
				kept[object.GetName()] = reservation.Status
				mu.Unlock()
			}
		}
	}()
	return func() map[string]contract.GangReservationStatus {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(kept)
	}
}

// Three gangs at once, and room for one in each of two clusters: two run, each whole in a cluster of its own, and the third waits until
// one of them has gone. Karmada's scheduler sends all three to the first cluster.
func TestFleetScheduler(t *testing.T) {
	i, hub, members := fleetOfTwo(t)
	promised := map[string]func() map[string]contract.GangReservationStatus{}
	for name, member := range members {
		promised[name] = watchReservations(t, member)
	}
	create(t, hub, gangPolicy)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		create(t, hub, gangOf(name, 2)) // six of the eight GPUs of a cluster
	}
	where := map[string]string{} // of the jobs that were sent
	placed := func(want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d gangs have a cluster", want), func() error {
			clear(where)
			for _, name := range names {
				clusters, _, err := unstructured.NestedSlice(bound(t, hub, name+"-pytorchjob").Object, "spec", "clusters")
				if err != nil {
					return err
				}
				if len(clusters) > 0 {
					where[name], _ = clusters[0].(map[string]any)["name"].(string)
				}
			}
			if len(where) != want {
				return fmt.Errorf("%v", where)
			}
			return nil
		})
		assert.Len(t, slices.Compact(slices.Sorted(maps.Values(where))), 2, "%v", where)
	}
	runs := func(name string) {
		t.Helper()
		member := members[where[name]]
		gangRuns(t, member, name)
		kept, ok := promised[where[name]]()[name+"-pytorchjob"]
		require.True(t, ok, "its place was kept before it was sent")
		at := map[string][]int{}
		pods, err := member.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
		require.NoError(t, err)
		for _, pod := range pods.Items {
			record, _, err := contract.AllocationFrom(pod.Annotations)
			require.NoError(t, err)
			at[pod.Labels[contract.JobReplicaTypeLabel]+"-"+pod.Labels[contract.JobReplicaIndexLabel]] = record.GPUs
		}
		require.Len(t, kept.Gangs, 1)
		require.Len(t, kept.Gangs[0].Nodes, 1)
		assert.Equal(t, kept.Gangs[0].Nodes[0].Members, at, "it has the place that was kept")
		eventually(t, "nothing is kept for it any more", func() error {
			if _, err := member.Dynamic.Resource(gangReservations).Namespace("default").Get(t.Context(), name+"-pytorchjob", metav1.GetOptions{}); !kube.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
	placed(2)
	var waits string
	for _, name := range names {
		if where[name] == "" {
			waits = name
			continue
		}
		runs(name)
	}
	eventually(t, "the third is told why it waits", func() error {
		conditions, _, err := unstructured.NestedSlice(bound(t, hub, waits+"-pytorchjob").Object, "status", "conditions")
		said := fmt.Sprint(conditions)
		if err == nil && (!strings.Contains(said, "NoClusterFit") || !strings.Contains(said, "member-1: 1 of 3 members fit") || !strings.Contains(said, "member-2: 1 of 3 members fit")) {
			err = errors.New(said)
		}
		return err
	})

	// The hub says of all where they are, or why they are nowhere.
	said := i.plugin("gangs")
	for name, cluster := range where {
		assert.Regexp(t, `default/`+name+` +`+cluster+` +Running +3/3`, said)
	}
	assert.Regexp(t, `default/`+waits+` +- +Waiting +0/3 .*member-1: 1 of 3 members fit.*member-2: 1 of 3 members fit`, said)
	said = i.plugin("why", waits)
	assert.Contains(t, said, "PyTorchJob default/"+waits+" is in no cluster of the fleet: member-1: 1 of 3 members fit")
	assert.Contains(t, said, "pool size 2 (now 1) for pool v100 in member-1")
	assert.Contains(t, said, "pool size 2 (now 1) for pool v100 in member-2")
	assert.Regexp(t, `(?s)Cluster member-1\n.*default/`+".*Cluster member-2\n.*default/", i.plugin("map"))
	assert.Contains(t, i.plugin("map", "-o", "svg", "--member", "member-2"), "<svg")

	// The scheduler dies: what it has decided stays, and what it has not decides the next one.
	require.NoError(t, syscall.Kill(i.status().process(contract.FleetSchedulerName), syscall.SIGKILL))
	done := names[(slices.Index(names, waits)+1)%3]
	freed := where[done]
	require.NoError(t, hub.Dynamic.Resource(pyTorchJobs).
		Namespace("default").Delete(t.Context(), done, metav1.DeleteOptions{}))
	names = slices.DeleteFunc(names, func(name string) bool { return name == done })
	placed(2)
	assert.Equal(t, freed, where[waits])
	runs(waits)
	i.hubProgramsMayAllTheyNeed()
	i.must("down", "--purge")
}

// A member cluster whose scheduler does not answer gets no job, and keeps no place once it answers again.
func TestFleetWithASilentScheduler(t *testing.T) {
	i, hub, members := fleetOfTwo(t)
	create(t, hub, strings.Replace(gangPolicy, "  placement:", `  placement:
    clusterAffinities: [{affinityName: first, clusterNames: [member-1]}, {affinityName: second, clusterNames: [member-2]}]`, 1))
	clusterOf := func(name string) string {
		clusters, _, err := unstructured.NestedSlice(bound(t, hub, name+"-pytorchjob").Object, "spec", "clusters")
		require.NoError(t, err)
		if len(clusters) == 0 {
			return ""
		}
		cluster, _ := clusters[0].(map[string]any)["name"].(string)
		return cluster
	}
	sent := func(name, to string) {
		t.Helper()
		eventually(t, name+" goes to "+to, func() error {
			if cluster := clusterOf(name); cluster != to {
				return fmt.Errorf("it is in %q", cluster)
			}
			return nil
		})
	}
	create(t, hub, gangOf("preferred", 1))
	sent("preferred", "member-1")

	scheduler := 0
	for _, p := range i.status().Processes {
		if strings.HasPrefix(p.Name, "member-1 gpuplan-system.gpuplan-scheduler-") {
			scheduler = p.PID
		}
	}
	require.Positive(t, scheduler)
	require.NoError(t, syscall.Kill(scheduler, syscall.SIGSTOP))
	create(t, hub, gangOf("silent", 1))
	sent("silent", "member-2")
	create(t, hub, gangOf("only", 1))
	eventually(t, "member-1 is asked for the place of a job that is deleted then", func() error {
		_, err := members["member-1"].Dynamic.Resource(gangReservations).Namespace("default").Get(t.Context(), "only-pytorchjob", metav1.GetOptions{})
		return err
	})
	require.NoError(t, hub.Dynamic.Resource(pyTorchJobs).
		Namespace("default").Delete(t.Context(), "only", metav1.DeleteOptions{}))
	require.NoError(t, syscall.Kill(scheduler, syscall.SIGCONT))
	eventually(t, "no cluster keeps a place", func() error {
		for name, member := range members {
			list, err := member.Dynamic.Resource(gangReservations).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) > 0 {
				return fmt.Errorf("%s has %d reservations: %w", name, len(list.Items), err)
			}
		}
		return nil
	})
	create(t, hub, gangOf("again", 1))
	sent("again", "member-1")
	i.must("down", "--purge")
}

var queueUnits = schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueUnitResource}

// oneAtATime is the quota tree of ACK's document on fleets, in small: one job of the namespace default runs at a time.
const oneAtATime = `
apiVersion: scheduling.sigs.k8s.io/v1beta1
kind: ElasticQuotaTree
metadata: {name: elasticquotatree, namespace: kube-system}
spec:
  root:
    name: root
    max: {cpu: 1000, aliyun.com/gpu: 100}
    min: {cpu: 1000, aliyun.com/gpu: 100}
    children:
    - name: child
      namespaces: [default]
      max: {cpu: 1000, aliyun.com/gpu: 100, kube-queue/max-jobs: 1}`

// The queue of the hub lets gangs go one at a time, in their order, whatever room the clusters have, and another one when the first has gone.
func TestFleetQueue(t *testing.T) {
	i := newInstance(t)
	needKarmada(t, i)
	i.must("up", "--members", "1")
	hub := i.access("hub")
	makePool(t, i, "member-1")
	create(t, hub, oneAtATime)
	create(t, hub, queuedPolicy)
	phases := func() map[string]string {
		units, err := hub.Dynamic.Resource(queueUnits).Namespace("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		all := map[string]string{}
		for _, unit := range units.Items {
			phase, _, err := unstructured.NestedString(unit.Object, "status", "phase")
			require.NoError(t, err)
			position, _, err := unstructured.NestedInt64(unit.Object, "status", "position")
			require.NoError(t, err)
			all[strings.TrimSuffix(unit.GetName(), "-py-qu")] = strings.TrimSuffix(fmt.Sprintf("%s %d", phase, position), " 0")
		}
		return all
	}
	await := func(want map[string]string) {
		t.Helper()
		eventually(t, fmt.Sprint(want), func() error {
			if have := phases(); !maps.Equal(have, want) {
				return fmt.Errorf("%v", have)
			}
			return nil
		})
	}
	for _, name := range []string{"first", "second", "third"} {
		create(t, hub, gangOf(name, 1))
		eventually(t, name+" has a unit", func() error {
			if _, ok := phases()[name]; !ok {
				return errors.New("it has none")
			}
			return nil
		})
	}
	await(map[string]string{"first": "Running", "second": "Enqueued 1", "third": "Enqueued 2"})
	pods, err := i.access("member-1").Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, pods.Items, 3, "the others have no pods yet")

	jobs := hub.Dynamic.Resource(pyTorchJobs).Namespace("default")
	require.NoError(t, syscall.Kill(i.status().process(contract.FleetQueueName), syscall.SIGKILL))
	require.NoError(t, jobs.Delete(t.Context(), "first", metav1.DeleteOptions{}))
	await(map[string]string{"second": "Running", "third": "Enqueued 1"})
	require.NoError(t, jobs.Delete(t.Context(), "third", metav1.DeleteOptions{}))
	await(map[string]string{"second": "Running"})
	i.hubProgramsMayAllTheyNeed()
	i.must("down", "--purge")
}
