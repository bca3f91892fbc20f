package integration

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func TestSpellings(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	for name, labels := range map[string]map[string]string{
		"light": {contract.LightGangLabel: "light", contract.LightGangMinLabel: "2"},
		"both": {contract.LightGangLabel: "both", contract.LightGangMinLabel: "2",
			contract.TopologyGroupLabel: "both", contract.TopologyReplicasLabel: "2"},
		"flag":  {contract.TopologyGroupLabel: "true", contract.TopologyReplicasLabel: "true"},
		"group": {contract.PodGroupLabel: "group"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testCluster{t: t, namespace: s.namespace}
			if name == "group" {
				s.createPodGroup("group", 2)
			}
			j := job{name: name, workers: 2, gpus: 4, resource: contract.ResourceTopologyGPU, labels: labels}
			s.submit(j)
			for _, pod := range s.awaitBound(name) {
				assert.Equal(t, s.namespace+"/"+name, s.allocation(pod).Gang)
			}
			s.requireNoSharedGPUs()
			s.clear()
		})
	}
}

// A pod that asks for no GPU is a member where the gang needs more than ask for GPUs, like the
// parameter server of a TFJob: the gang waits for all four, and starts with all four.
func TestMembersWithoutGPUs(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	for name, labels := range map[string]map[string]string{
		"topology": {contract.TopologyGroupLabel: "topology", contract.TopologyReplicasLabel: "4"},
		"light":    {contract.LightGangLabel: "light", contract.LightGangMinLabel: "4"},
		"group":    {contract.PodGroupLabel: "group"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testCluster{t: t, namespace: s.namespace}
			if name == "group" {
				s.createPodGroup("group", 4)
			}
			server := s.pods(job{name: name, workers: 1, labels: labels})[0]
			server.Name, server.Labels[contract.JobReplicaTypeLabel] = name+"-ps-0", "ps"
			workers := s.pods(job{name: name, workers: 3, gpus: 1, resource: contract.ResourceTopologyGPU, labels: labels})
			s.create(server)
			s.create(workers[0])
			s.create(workers[1])
			s.submit(topologyGang("other", 1, 1))
			s.awaitBound("other")
			require.Zero(t, bound(s.list(t.Context(), name)), "the fourth member is missing")
			s.create(workers[2])
			for _, pod := range s.awaitBound(name) {
				record := s.allocation(pod)
				assert.Equal(t, s.namespace+"/"+name, record.Gang)
				assert.Equal(t, pod.Name != server.Name, len(record.GPUs) == 1, pod.Name)
			}
			s.clear()
		})
	}
}

func TestPodGroupSaysWhyItWaits(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.createPodGroup("big", 3)
	s.submit(job{name: "big", workers: 3, gpus: 4, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.PodGroupLabel: "big"}})

	text := s.awaitReason("big", "2 of 3")
	s.await("the PodGroup to say so too", func(ctx context.Context) (bool, string) {
		have := s.podGroupCondition(ctx, "big")
		return have == "False: "+text, have
	})
	s.addNode(machine{mode: "topology"})
	s.awaitBound("big")
	s.await("the PodGroup to say that it runs", func(ctx context.Context) (bool, string) {
		have := s.podGroupCondition(ctx, "big")
		return have == "True: runs with 3 members", have
	})
}

func (s *testCluster) createPodGroup(name string, minMember int64) {
	s.t.Helper()
	group := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.PodGroupAPIVersion, "kind": contract.PodGroupKind,
		"metadata": map[string]any{"name": name, "namespace": s.namespace},
		"spec":     map[string]any{"minMember": minMember},
	}}
	_, err := cluster.client.Dynamic.Resource(gvr(contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupResource)).
		Namespace(s.namespace).Create(s.t.Context(), group, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// podGroupCondition renders the PodGroup's condition: "False: text".
func (s *testCluster) podGroupCondition(ctx context.Context, name string) string {
	s.t.Helper()
	group, err := cluster.client.Dynamic.Resource(gvr(contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupResource)).
		Namespace(s.namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(s.t, err)
	conditions, _, err := unstructured.NestedSlice(group.Object, "status", "conditions")
	require.NoError(s.t, err)
	for _, entry := range conditions {
		condition := entry.(map[string]any)
		return fmt.Sprintf("%s: %s", condition["status"], condition["message"])
	}
	return ""
}

// An MPI launcher carries the gang's labels, but asks for no GPU: it starts when the gang runs.
func TestLauncherIsLate(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	gang := topologyGang("mpi", 8, 1)
	launcher := s.pods(job{name: "mpi", workers: 1, labels: gang.labels})[0]
	launcher.Name = "mpi-launcher"
	launcher.Labels[contract.JobReplicaTypeLabel] = contract.ReplicaLauncher
	s.create(launcher)
	pods := s.pods(gang)
	for _, pod := range pods[:7] {
		s.create(pod)
	}
	s.create(s.pods(topologyGang("other", 1, 1))[0])
	s.awaitBound("other")
	require.Zero(t, bound(s.list(t.Context(), "mpi")), "neither the launcher nor an incomplete gang may start")
	s.finish("other")
	s.create(pods[7])
	all := s.awaitBound("mpi")
	require.Len(t, all, 9)
	for _, pod := range all {
		_, recorded := pod.Annotations[contract.AllocationAnnotation]
		assert.Equal(t, pod.Name != "mpi-launcher", recorded, pod.Name)
	}
}

func TestTaintsAndSelectorsAreHonoured(t *testing.T) {
	taint := corev1.Taint{Key: "dedicated", Value: "other", Effect: corev1.TaintEffectNoSchedule}
	s := newTestCluster(t, machine{count: 1, mode: "topology", taints: []corev1.Taint{taint}}, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.submit(topologyGang("plain", 2, 1))
	for _, pod := range s.awaitBound("plain") {
		assert.Equal(t, s.nodes[1], pod.Spec.NodeName)
	}
	s.submit(topologyGang("big", 2, 8))
	s.awaitReason("big", "0 of 2")
	tolerant := topologyGang("tolerant", 1, 8)
	tolerant.change = func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	s.submit(tolerant)
	assert.Equal(t, s.nodes[0], s.awaitBound("tolerant")[0].Spec.NodeName)
}

// Members that must not share a node are planned apart.
func TestMembersKeptApart(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	apart := topologyGang("apart", 2, 1)
	apart.change = func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: "apart"}},
			}},
		}}
	}
	s.submit(apart)
	pods := s.awaitBound("apart")
	assert.NotEqual(t, pods[0].Spec.NodeName, pods[1].Spec.NodeName)
}

// A filter that the planner knows nothing of refuses the node that it would take; the
// gang is planned again without that node.
func TestRejectedNodeIsExcluded(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	guard := s.pods(job{name: "guard", workers: 1, labels: map[string]string{"role": "guard"}})[0]
	guard.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.nodes[0]}
	s.create(guard)
	s.awaitBound("guard")
	away := func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "guard"}},
			}},
		}}
	}
	gang := topologyGang("away", 4, 1)
	gang.change = away
	s.submit(gang)
	for _, pod := range s.awaitBound("away") {
		assert.Equal(t, s.nodes[1], pod.Spec.NodeName)
	}
	s.requireNoSharedGPUs()

	wide := topologyGang("wide", 8, 1)
	wide.change = away
	s.submit(wide)
	s.awaitReason("wide", "4 of 8")
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), guard.Name, metav1.DeleteOptions{}))
	s.awaitBound("wide")
}

func TestPodsOfOthersAreScheduledAsEver(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	s.submit(job{name: "plain", workers: 4})
	for _, pod := range s.awaitBound("plain") {
		assert.NotContains(t, pod.Annotations, contract.AllocationAnnotation)
	}
}

func TestSinglePods(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"}, machine{count: 1, mode: "default"})
	startScheduler(t)
	s.submit(job{name: "topology", workers: 8, gpus: 1, resource: contract.ResourceTopologyGPU})
	s.submit(job{name: "default", workers: 2, gpus: 4, resource: contract.ResourceDefaultGPU})
	for _, pod := range s.awaitBound("topology") {
		record := s.allocation(pod)
		assert.Empty(t, record.Gang)
		assert.Len(t, record.GPUs, 1)
		assert.Equal(t, contract.IndexList(record.GPUs), pod.Annotations[contract.GPUsAnnotation])
	}
	s.requireNoSharedGPUs()
	for _, pod := range s.awaitBound("default") {
		assert.Equal(t, s.nodes[1], pod.Spec.NodeName)
		assert.Empty(t, s.allocation(pod).GPUs, "the device plugin picks the GPUs")
	}
}

// A member that has succeeded counts, so that one that is lost after it is replaced, by
// this scheduler and by one that starts later.
func TestSucceededMemberCounts(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	scheduler := startScheduler(t)
	gang := topologyGang("job", 3, 2)
	pods := s.pods(gang)
	pods[0].Annotations = map[string]string{contract.RunForAnnotation: "1ms"}
	for _, pod := range pods {
		s.create(pod)
	}
	s.awaitBound("job")
	s.await("a member to succeed", func(ctx context.Context) (bool, string) {
		phase := s.list(ctx, "job")[0].Status.Phase
		return phase == corev1.PodSucceeded, string(phase)
	})
	lose := func(lost *corev1.Pod) {
		require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), lost.Name, metav1.DeleteOptions{}))
		s.await("the member to be gone", func(ctx context.Context) (bool, string) {
			n := len(s.list(ctx, "job"))
			return n == 2, strconv.Itoa(n)
		})
		s.create(lost)
	}
	lose(pods[1])
	s.awaitBound("job")

	scheduler.End(syscall.SIGKILL)
	lose(pods[2])
	startScheduler(t)
	s.awaitBound("job")
}

// A member that dies is replaced next to its gang.
func TestMemberIsReplaced(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	gang := topologyGang("job", 4, 1)
	s.submit(gang)
	before := s.awaitBound("job")
	dead := s.pods(gang)[2]
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), dead.Name, metav1.DeleteOptions{}))
	s.await("the member to be gone", func(ctx context.Context) (bool, string) {
		n := len(s.list(ctx, "job"))
		return n == 3, strconv.Itoa(n)
	})
	s.create(dead)
	for _, pod := range s.awaitBound("job") {
		assert.Equal(t, before[0].Spec.NodeName, pod.Spec.NodeName)
	}
	s.requireNoSharedGPUs()
}

func TestQuota(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	s.setQuota(map[string]any{contract.ResourceTopologyGPU: "4", "cpu": "6"})
	startScheduler(t)
	s.submit(topologyGang("first", 4, 1))
	s.awaitBound("first")
	s.submit(topologyGang("second", 4, 1))
	text := s.awaitReason("second", "root/team")
	t.Log(text)
	plain := job{name: "plain", workers: 3}
	s.submit(plain)
	s.awaitSome("plain", 2)
	s.await("the third plain pod to wait for quota", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, "plain")
		return bound(pods) == 2 && reason(pods) != "", reason(pods)
	})
	s.finish("first")
	s.awaitBound("plain")
	s.setQuota(map[string]any{contract.ResourceTopologyGPU: "8", "cpu": "80"})
	s.awaitBound("second")
}

// setQuota makes a quota tree with one leaf for the test's namespace.
func (s *testCluster) setQuota(limit map[string]any) {
	s.t.Helper()
	s.setTree(map[string]any{"name": "root", "children": []any{
		map[string]any{"name": "team", "namespaces": []any{s.namespace}, "max": limit},
	}})
}

// setTree puts a quota tree in force until the test ends.
func (s *testCluster) setTree(root map[string]any) {
	s.t.Helper()
	_, err := cluster.client.Apply(s.t.Context(), newTree(root))
	require.NoError(s.t, err)
	s.t.Cleanup(s.dropTree)
}

// dropTree takes the quota tree away; the cleanup of an earlier call may have done so.
func (s *testCluster) dropTree() {
	_ = cluster.client.Dynamic.Resource(quotaTrees).Namespace(contract.QuotaTreeNamespace).Delete(context.Background(), contract.QuotaTreeName, metav1.DeleteOptions{})
}
