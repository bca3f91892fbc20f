package running_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
)

func pod(name, node string, gpus int64, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if gpus > 0 {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{contract.ResourceDefaultGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	if change != nil {
		change(p)
	}
	return p
}

func inGang(p *corev1.Pod) {
	p.Labels[contract.TopologyGroupLabel], p.Labels[contract.TopologyReplicasLabel] = "gang", "2"
}

// madeBy is for pods of a Job that is no training job of the provider's.
func madeBy(name string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, Controller: &yes}}
	}
}

func TestPods(t *testing.T) {
	objects := []corev1.Pod{
		*pod("gang-0", "n1", 1, inGang),
		*pod("gang-1", "n2", 1, inGang),
		*pod("single", "n1", 2, nil),
		*pod("job-worker-0", "n2", 1, func(p *corev1.Pod) { p.Labels[contract.JobNameLabel] = "job" }),
		*pod("job-launcher", "n3", 0, func(p *corev1.Pod) { p.Labels[contract.JobNameLabel] = "job" }),
		*pod("foreign-k4v9r", "n3", 1, madeBy("foreign")),
		*pod("gang-2", "n1", 1, func(p *corev1.Pod) { inGang(p); madeBy("gang-set")(p) }),
		*pod("no-gpus", "n1", 0, nil),
		*pod("pending", "", 1, nil),
		*pod("finished", "n1", 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	}
	pods := running.Pods(objects)
	assert.Equal(t, []string{"default/foreign", "default/gang", "default/job", "default/single"}, running.Owners(pods))
	assert.Equal(t, "default/foreign (on n3), default/gang (on n1, n2), default/job (on n2, n3), default/single (on n1)", running.Describe(pods))
	assert.Equal(t, []string{"default/gang", "default/job"}, running.Owners(running.On(pods, []string{"n2"})))
	assert.Empty(t, running.On(pods, nil))
}

func TestForeign(t *testing.T) {
	ours := func(p *corev1.Pod) { p.Labels["ours"] = "yes" }
	pods := running.Pods([]corev1.Pod{*pod("a", "n1", 1, nil), *pod("b", "n1", 1, ours)})
	foreign := running.Foreign(pods, func(labels map[string]string) bool { return labels["ours"] == "yes" })
	assert.Equal(t, []string{"default/a"}, running.Owners(foreign))
}
