package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	nodeagent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// The scheduler works with the rights that its manifests give it, and with leader election.
func TestInstalled(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	records := api().CoreV1().ConfigMaps(contract.SystemNamespace)
	if err := records.Delete(t.Context(), contract.WorkloadName, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		require.NoError(t, err) // another test has left it
	}
	objects, err := deploy.Objects(deploy.Options{Image: "test", LogLevel: 2})
	require.NoError(t, err)
	require.NoError(t, cluster.client.ApplyAll(t.Context(), objects, nil))
	t.Cleanup(func() {
		ours := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
		assert.NoError(t, cluster.client.DeleteAll(context.Background(), ours, nil))
		awaitUnprotected(context.Background(), s)
	})
	s.setQuota(map[string]any{contract.ResourceTopologyGPU: "8"})
	s.createPodGroup("job", 3)
	gang := job{name: "job", workers: 3, gpus: 2, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.PodGroupLabel: "job"}}
	s.submit(gang)
	runs := s.awaitBound("job")
	s.submit(topologyGang("big", 2, 8))
	s.awaitReason("big", "of 2")
	s.requireRecordsProtected(runs[0])

	// A new admission policy is in force a little later.
	refused := func(pod *corev1.Pod, why string) {
		require.Eventually(t, func() bool {
			_, err := api().CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), why)
		}, settled, 200*time.Millisecond, why)
	}
	beside := func(add func(pod *corev1.Pod, c corev1.Container)) *corev1.Pod {
		pod := s.pods(sharedJob("beside", 1, 4, 10))[0]
		c := *pod.Spec.Containers[0].DeepCopy()
		c.Name, c.Resources.Limits = "beside", c.Resources.Requests
		add(pod, c)
		return pod
	}
	for why, pod := range map[string]*corev1.Pod{
		"multiple of 5":            s.pods(sharedJob("odd", 1, 2, 7))[0],
		"needs aliyun.com/gpu-mem": s.pods(job{name: "bare", workers: 1, gpus: 5, resource: contract.ResourceCorePercent})[0],
		"asks for several": s.pods(job{name: "many", workers: 1, labels: map[string]string{contract.ResourceGPUCount: "2"},
			change: sharedJob("", 0, 4, 10).change})[0],
		"each with aliyun.com/gpu-mem has to": beside(func(pod *corev1.Pod, c corev1.Container) {
			delete(c.Resources.Requests, contract.ResourceCorePercent)
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}),
		"not for other init containers": beside(func(pod *corev1.Pod, c corev1.Container) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}),
	} {
		refused(pod, why)
	}
	always := corev1.ContainerRestartPolicyAlways
	_, err = api().CoreV1().Pods(s.namespace).Create(t.Context(), beside(func(pod *corev1.Pod, c corev1.Container) {
		c.RestartPolicy = &always
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err, "a sidecar is as the containers are")

	// It learns what arrives.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		record, err := records.Get(t.Context(), contract.WorkloadName, metav1.GetOptions{})
		require.NoError(c, err)
		learnt, _, err := inventory.WorkloadOf(record)
		require.NoError(c, err)
		nodes := contract.NodePoolNameLabel + " In " + s.namespace
		big := placement.Demand{Mode: placement.ModeTopology, GPUs: 8, MilliCPU: 1000, Nodes: nodes}
		assert.Contains(c, []int64{1, 2}, learnt[big], "one more pod is too little to be written, if it is of a later second")
		assert.Equal(c, placement.Workload{{Mode: placement.ModeTopology, GPUs: 2, MilliCPU: 1000, Nodes: nodes}: 3, big: learnt[big]}, learnt)
	}, settled, 200*time.Millisecond)

	s.requireRestricted(objects)
	agent, err := nodeagent.Objects(nodeagent.Options{Image: "test"})
	require.NoError(t, err)
	s.requireRestricted(agent)

	// Repair has the rights that it needs, too.
	s.awaitRunning("job")
	require.NoError(t, api().CoreV1().Nodes().Delete(t.Context(), s.nodes[0], metav1.DeleteOptions{}))
	s.awaitDegraded("job", "True NodeLost: node "+s.nodes[0]+" is gone, and with it worker-0, worker-1, worker-2 of the gang")
	s.await("the members to fail", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, "job")
		alive := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		return len(alive) == 0, fmt.Sprint(len(alive))
	})

	log, err := os.ReadFile(filepath.Join(localtest.Start(t).Dir, "log", contract.SchedulerName+".log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "Successfully bound pod to node")
	// A namespace that is being deleted forbids things, too.
	assert.NotContains(t, string(log), "forbidden: User")
}

// requireRestricted has the API server admit the pods of workloads where it enforces the
// restricted pod security standard.
func (s *testCluster) requireRestricted(objects []*unstructured.Unstructured) {
	s.t.Helper()
	namespace, err := api().CoreV1().Namespaces().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "restricted-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, api().CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}))
	})
	admitted := 0
	for _, object := range objects {
		if object.GetKind() != "Deployment" && object.GetKind() != "DaemonSet" {
			continue
		}
		var workload appsv1.Deployment // both have the template in the same place
		require.NoError(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &workload))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: workload.Spec.Template.Spec}
		pod.Spec.ServiceAccountName, pod.Spec.SchedulerName = "", "none"
		pod.Spec.AutomountServiceAccountToken = new(bool)
		require.Eventually(s.t, func() bool {
			_, err = api().CoreV1().Pods(namespace.Name).Create(s.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil || !strings.Contains(err.Error(), "serviceaccount")
		}, settled, 100*time.Millisecond)
		require.NoError(s.t, err, "%s %s", object.GetKind(), object.GetName())
		admitted++
		pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext = nil, nil
		_, err = api().CoreV1().Pods(namespace.Name).Create(s.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.ErrorContains(s.t, err, "violates PodSecurity", "the namespace enforces nothing")
	}
	require.NotZero(s.t, admitted)
}
