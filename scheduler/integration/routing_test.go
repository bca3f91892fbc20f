package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/bypass"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// routePods installs the policy that sends pods to our scheduler for the rest of the
// test, and waits until it is in force.
func (s *testCluster) routePods() {
	s.t.Helper()
	objects, err := deploy.Objects(deploy.Options{Image: "test", RoutePods: true})
	require.NoError(s.t, err)
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() != contract.RoutePolicyName })
	require.Len(s.t, objects, 2)
	require.NoError(s.t, cluster.client.ApplyAll(s.t.Context(), objects, nil))
	s.awaitRouted(s.t.Context(), contract.SchedulerName)
	s.t.Cleanup(func() {
		assert.NoError(s.t, cluster.client.DeleteAll(context.Background(), objects, nil))
		s.awaitRouted(context.Background(), corev1.DefaultSchedulerName)
	})
}

// awaitRouted waits until a pod that asks for a GPU and names no scheduler is given one.
func (s *testCluster) awaitRouted(ctx context.Context, scheduler string) {
	s.t.Helper()
	probe := s.unnamed(job{name: "probe", workers: 1, gpus: 1, resource: contract.ResourceTopologyGPU})[0]
	require.Eventually(s.t, func() bool {
		made, err := api().CoreV1().Pods(s.namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && made.Spec.SchedulerName == scheduler
	}, settled, 100*time.Millisecond, "pods are not sent to %s", scheduler)
}

// unnamed are a job's pods as someone writes them who knows nothing of our scheduler.
func (s *testCluster) unnamed(j job) []*corev1.Pod {
	pods := s.pods(j)
	for _, pod := range pods {
		pod.Spec.SchedulerName = ""
	}
	return pods
}

// Who is sent to our scheduler, and who is left alone.
func TestRouting(t *testing.T) {
	s := newTestCluster(t)
	s.routePods()
	excused, err := api().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "excused-", Labels: map[string]string{contract.RouteLabel: "false"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api().CoreV1().Namespaces().Delete(context.Background(), excused.Name, metav1.DeleteOptions{}))
	})
	gpu := func(resource string) job { return job{name: "pod", workers: 1, gpus: 5, resource: resource} }
	gang := func(label string) job {
		return job{name: "pod", workers: 1, labels: map[string]string{label: "gang"}}
	}
	changed := func(change func(*corev1.Pod)) job {
		j := gpu(contract.ResourceTopologyGPU)
		j.change = change
		return j
	}
	stays := corev1.DefaultSchedulerName
	for name, test := range map[string]struct {
		job  job
		want string
	}{
		"topology GPUs":      {gpu(contract.ResourceTopologyGPU), contract.SchedulerName},
		"regular GPUs":       {gpu(contract.ResourceDefaultGPU), contract.SchedulerName},
		"GPU memory":         {gpu(contract.ResourceGPUMemory), contract.SchedulerName},
		"gang, document":     {gang(contract.TopologyGroupLabel), contract.SchedulerName},
		"gang, light labels": {gang(contract.LightGangLabel), contract.SchedulerName},
		"gang, PodGroup":     {gang(contract.PodGroupLabel), contract.SchedulerName},
		"GPU of an init container": {changed(func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{{Name: "plain", Image: "test"}}
		}), contract.SchedulerName},
		"of a ReplicaSet": {changed(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "a", UID: "a"}}
		}), contract.SchedulerName},
		"no GPUs":           {job{name: "pod", workers: 1}, stays},
		"other scheduler":   {changed(func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }), "volcano"},
		"bound by hand":     {changed(func(p *corev1.Pod) { p.Spec.NodeName = "node" }), stays},
		"excused":           {changed(func(p *corev1.Pod) { p.Labels[contract.RouteLabel] = "false" }), stays},
		"excused namespace": {changed(func(p *corev1.Pod) { p.Namespace = excused.Name }), stays},
		"in kube-system":    {changed(func(p *corev1.Pod) { p.Namespace = metav1.NamespaceSystem }), stays},
		"of a DaemonSet": {changed(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "a", UID: "a"}}
		}), stays},
	} {
		t.Run(name, func(t *testing.T) {
			pod := s.pods(test.job)[0]
			if pod.Spec.SchedulerName == contract.SchedulerName {
				pod.Spec.SchedulerName = ""
			}
			pod.Spec.AutomountServiceAccountToken = new(bool)
			var made *corev1.Pod
			require.Eventually(t, func() bool { // the default service account of a new namespace
				var err error
				made, err = api().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err == nil
			}, settled, 100*time.Millisecond)
			assert.Equal(t, test.want, made.Spec.SchedulerName)
		})
	}
}

// A gang of the document's labels that names no scheduler starts whole or not at all.
func TestRoutedGangIsNotSplit(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.routePods()
	create := func(name string) {
		for _, pod := range s.unnamed(topologyGang(name, 3, 2)) {
			s.create(pod)
		}
	}
	create("first") // two gangs that are created in one moment start in either order
	for _, pod := range s.awaitBound("first") {
		assert.Len(t, s.allocation(pod).GPUs, 2)
	}
	create("second")
	s.awaitReason("second", "1 of 3")
	assert.Zero(t, bound(s.list(t.Context(), "second")))
}

// Where pods are not routed, one that takes GPUs past the scheduler is told so, once.
func TestBypassIsTold(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	pods := s.unnamed(job{name: "past", workers: 3, gpus: 1, resource: contract.ResourceTopologyGPU})
	pods[1].Labels[contract.RouteLabel] = "false"
	pods[2].Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	for _, pod := range pods {
		s.create(pod)
	}
	s.awaitBound("past")
	s.await("the pod to be told", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + bypass.Reason})
		require.NoError(t, err)
		for _, event := range list.Items {
			assert.Equal(t, "past-worker-0", event.InvolvedObject.Name)
			assert.Contains(t, event.Message, "default-scheduler, or its nodeName, put this pod on "+s.nodes[0])
		}
		return len(list.Items) == 1, fmt.Sprint(len(list.Items))
	})
}
