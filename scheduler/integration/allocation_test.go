package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// recordRefused is how the admission policy refuses what concerns the record of a pod's GPUs.
const recordRefused = "only the scheduler"

// annotate patches annotations of a pod, where nil removes one, as an administrator.
func (s *testCluster) annotate(pod string, annotations map[string]any, subresources ...string) error {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	require.NoError(s.t, err)
	_, err = api().CoreV1().Pods(s.namespace).Patch(s.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

// label changes labels of a pod.
func (s *testCluster) label(pod string, labels map[string]any) error {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	require.NoError(s.t, err)
	_, err = api().CoreV1().Pods(s.namespace).Patch(s.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// forge is a pod that says it has GPUs of a node.
func (s *testCluster) forge(name, node string) *corev1.Pod {
	pod := s.pods(job{name: name, workers: 1})[0]
	pod.Spec.NodeName = node
	annotations, err := contract.Allocation{Node: node, GPUs: []int{0, 1}, Visible: []int{0, 1}}.Annotations()
	require.NoError(s.t, err)
	pod.Annotations = annotations
	return pod
}

// requireRecordsProtected tries whatever can be done to the record of a bound pod, and of
// pods that are made, as an administrator of the cluster where the policies are installed.
func (s *testCluster) requireRecordsProtected(bound corev1.Pod) {
	s.t.Helper()
	pods := api().CoreV1().Pods(s.namespace)
	require.Eventually(s.t, func() bool {
		_, err := pods.Create(s.t.Context(), s.forge("early", bound.Spec.NodeName), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), recordRefused)
	}, settled, 100*time.Millisecond, "a new policy is in force a little later")

	for _, annotation := range []string{
		contract.AllocationAnnotation, contract.GPUsAnnotation, contract.VisibleAnnotation,
		contract.ShareMemoryAnnotation, contract.ShareCoreAnnotation,
	} {
		for _, subresource := range []string{"", "status"} {
			if _, has := bound.Annotations[annotation]; has {
				assert.ErrorContains(s.t, s.annotate(bound.Name, map[string]any{annotation: nil}, subresource), recordRefused, annotation)
			}
			assert.ErrorContains(s.t, s.annotate(bound.Name, map[string]any{annotation: "{}"}, subresource), recordRefused, annotation)
		}
	}
	assert.ErrorContains(s.t, s.annotate(bound.Name, map[string]any{"mine": "yes", contract.AllocationAnnotation: nil}), recordRefused)
	s.requireConfirmationProtected(bound)
	require.NoError(s.t, s.annotate(bound.Name, map[string]any{"mine": "yes"}), "what is not the record may be changed")
	for _, label := range []string{contract.QuotaLabel, contract.KoordinatorQuotaLabel, contract.PreemptibleLabel, contract.KoordinatorPreemptibleLabel} {
		assert.ErrorContains(s.t, s.label(bound.Name, map[string]any{label: "false"}), "stays with the quota", label)
	}
	for _, label := range []string{contract.PodGroupLabel, contract.LightGangLabel, contract.TopologyGroupLabel} {
		assert.ErrorContains(s.t, s.label(bound.Name, map[string]any{label: "another"}), "stays in its gang", label)
		if bound.Labels[label] != "" {
			assert.ErrorContains(s.t, s.label(bound.Name, map[string]any{label: nil}), "stays in its gang", label)
		}
	}
	require.NoError(s.t, s.label(bound.Name, map[string]any{"mine": "yes"}))
	flagged := s.pods(job{name: "flagged", workers: 1, labels: map[string]string{contract.TopologyGroupLabel: "true"}})[0]
	flagged.Spec.NodeName = bound.Spec.NodeName
	s.create(flagged)
	for _, label := range []string{contract.TopologyGroupLabel, contract.JobNameLabel, contract.ArenaReleaseLabel, contract.JobSetNameLabel} {
		assert.ErrorContains(s.t, s.label(flagged.Name, map[string]any{label: "another"}), "stays in its gang", label)
	}
	require.NoError(s.t, s.label(bound.Name, map[string]any{contract.ArenaReleaseLabel: "another"}), "its gang has a name of its own")
	waiting := s.pods(job{name: "waiting", workers: 1, labels: map[string]string{contract.TopologyGroupLabel: "one"}})[0]
	waiting.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	s.create(waiting)
	require.NoError(s.t, s.label(waiting.Name, map[string]any{contract.TopologyGroupLabel: "another"}), "a pod without a node may change its gang")
	now, err := pods.Get(s.t.Context(), bound.Name, metav1.GetOptions{})
	require.NoError(s.t, err)
	assert.Equal(s.t, bound.Annotations[contract.AllocationAnnotation], now.Annotations[contract.AllocationAnnotation])

	for name, change := range map[string]func(*corev1.Pod){
		"placed":  func(*corev1.Pod) {},
		"foreign": func(p *corev1.Pod) { p.Spec.SchedulerName = "another" },
		"pending": func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = "", "another" },
	} {
		pod := s.forge("forged", bound.Spec.NodeName)
		change(pod)
		assert.ErrorContains(s.t, s.createPod(pod), recordRefused, name)
	}
	foreign := s.pods(job{name: "foreign", workers: 1})[0]
	foreign.Spec.SchedulerName = "another"
	foreign.Annotations = map[string]string{contract.ShareMemoryAnnotation: "{}"}
	require.NoError(s.t, s.createPod(foreign), "another scheduler's pods are not ours")
	assert.ErrorContains(s.t, s.annotate(foreign.Name, map[string]any{contract.AllocationAnnotation: "{}"}), recordRefused)

	record := s.forge("", bound.Spec.NodeName).Annotations
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: foreign.Name, Annotations: record},
		Target:     corev1.ObjectReference{Kind: "Node", Name: bound.Spec.NodeName},
	}
	require.Eventually(s.t, func() bool {
		err := pods.Bind(s.t.Context(), binding, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), recordRefused)
	}, settled, 100*time.Millisecond, "it is in force a little later, too")
	binding.Annotations = map[string]string{"mine": "yes"}
	require.NoError(s.t, pods.Bind(s.t.Context(), binding, metav1.CreateOptions{}), "other schedulers bind as before")
}

// requireConfirmationProtected has others than the agent of the pod's node try to write what its containers were given.
func (s *testCluster) requireConfirmationProtected(bound corev1.Pod) {
	s.t.Helper()
	agents := "system:serviceaccount:" + contract.SystemNamespace + ":" + contract.NodeAgentName
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "confirming-" + s.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "confirming"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: agents}},
	}
	_, err := api().RbacV1().ClusterRoles().Create(s.t.Context(), role, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = api().RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	})
	_, err = api().RbacV1().RoleBindings(s.namespace).Create(s.t.Context(), binding, metav1.CreateOptions{})
	require.NoError(s.t, err)
	confirm := func(user, node string) error {
		config := rest.CopyConfig(cluster.client.Config)
		if user != "" {
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
		}
		as, err := kubernetes.NewForConfig(config)
		require.NoError(s.t, err)
		patch := []byte(`{"metadata":{"annotations":{"` + contract.ConfirmedAnnotation + `":"{}"}}}`)
		_, err = as.CoreV1().Pods(s.namespace).Patch(s.t.Context(), bound.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	const refused = "only the node agent of a pod's node"
	assert.ErrorContains(s.t, confirm("", ""), refused, "an administrator")
	require.Eventually(s.t, func() bool { return strings.Contains(fmt.Sprint(confirm(agents, "another")), refused) }, settled, 100*time.Millisecond, "the right is in force a little later")
	assert.NoError(s.t, confirm(agents, bound.Spec.NodeName))
}

// awaitUnprotected waits until records may be forged again.
func awaitUnprotected(ctx context.Context, s *testCluster) {
	s.t.Helper()
	pod := s.forge("late", "nowhere")
	pod.Namespace = metav1.NamespaceDefault
	assert.Eventually(s.t, func() bool {
		_, err := api().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil || !strings.Contains(err.Error(), recordRefused)
	}, settled, 100*time.Millisecond, "a policy that is gone is in force a little longer")
}

// Where no policy stands before it, the scheduler itself keeps to the record that it has
// seen first: nobody gets GPUs that are in use, and an event says so.
func TestAlteredRecordDoesNotCount(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.submit(topologyGang("runs", 2, 4))
	for i, pod := range s.awaitBound("runs") {
		altered := map[string]any{contract.AllocationAnnotation: nil}
		if i > 0 {
			altered[contract.AllocationAnnotation] = fmt.Sprintf(`{"version":1,"node":%q,"gpus":[]}`, pod.Spec.NodeName)
		}
		require.NoError(t, s.annotate(pod.Name, altered))
		require.Eventually(t, func() bool { return len(s.events(t.Context(), pod.Name, "AllocationAltered")) == 1 },
			settled, 100*time.Millisecond, "an event says so")
	}
	s.submit(topologyGang("next", 1, 1))
	s.awaitReason("next", "1 node has no free GPU left")
	s.remove("runs")
	s.awaitBound("next")
}
