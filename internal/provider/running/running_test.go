package running_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
)

func put(t *testing.T, server *kubetest.Server, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	server.Put(&unstructured.Unstructured{Object: content})
}

func pod(name, node string, cards int64, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if cards > 0 {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{contract.ResourceDefaultCard: *resource.NewQuantity(cards, resource.DecimalSI)}
	}
	if change != nil {
		change(p)
	}
	return p
}

func inGang(p *corev1.Pod) {
	p.Labels[contract.TopologyGroupLabel], p.Labels[contract.TopologyReplicasLabel] = "gang", "2"
}

func ownedBy(name string) func(*corev1.Pod) {
	controller := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "uid", Controller: &controller}}
	}
}

func TestPods(t *testing.T) {
	objects := []corev1.Pod{
		*pod("gang-0", "n1", 1, inGang),
		*pod("gang-1", "n2", 1, inGang),
		*pod("single", "n1", 2, nil),
		*pod("job-worker-0", "n2", 1, func(p *corev1.Pod) { p.Labels[contract.JobNameLabel] = "job" }),
		*pod("no-cards", "n1", 0, nil),
		*pod("pending", "", 1, nil),
		*pod("finished", "n1", 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	}
	pods := running.Pods(objects)
	assert.Equal(t, []string{"default/gang", "default/job", "default/single"}, running.Owners(pods))
	assert.Equal(t, "default/gang (on n1, n2), default/job (on n2), default/single (on n1)", running.Describe(pods))
	assert.Equal(t, []string{"default/gang", "default/job"}, running.Owners(running.On(pods, []string{"n2"})))
	assert.Empty(t, running.On(pods, nil))
}

func TestForeign(t *testing.T) {
	for name, test := range map[string]struct {
		owner   *corev1.ConfigMap // stands for the job's object
		change  func(*corev1.Pod)
		foreign bool
	}{
		"no owner":        {nil, nil, true},
		"owner is gone":   {nil, ownedBy("job"), true},
		"another's":       {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, ownedBy("job"), true},
		"this provider's": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "job", Labels: map[string]string{contract.ManagedByLabel: contract.ManagedByValue}}}, ownedBy("job"), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.Start(t)
			client, err := kube.New(server.Config())
			require.NoError(t, err)
			if test.owner != nil {
				test.owner.TypeMeta, test.owner.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, "default"
				put(t, server, test.owner)
			}
			pods := running.Pods([]corev1.Pod{*pod("p", "n1", 1, test.change)})
			foreign, err := running.Foreign(t.Context(), client, pods)
			require.NoError(t, err)
			assert.Equal(t, test.foreign, len(foreign) == 1)
		})
	}
}
