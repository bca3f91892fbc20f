package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// What a pod holds while it is resized in place is what kube-scheduler thinks that it holds.
func TestRequestOfAPodThatIsResized(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	cpu := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
	requests := func(text string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: cpu(text)}
	}
	granted := func(name, text string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, Resources: requests(text), AllocatedResources: cpu(text)}}
	}
	infeasible := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
	}
	sidecar := func(asks, has string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: &always, Resources: *requests(asks)}}
			p.Status.InitContainerStatuses = granted("sidecar", has)
		}
	}
	container := func(asks, has string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = *requests(asks)
			p.Status.ContainerStatuses = granted("main", has)
		}
	}
	whole := func(asks, has string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Spec.Resources = requests(asks)
			p.Status.Resources, p.Status.AllocatedResources = requests(has), cpu(has)
		}
	}
	for name, test := range map[string]struct {
		changes []podtest.Change
		want    int64 // in thousandths of a CPU
	}{
		"a container shrinks":          {[]podtest.Change{container("1", "3")}, 3000},
		"a container grows":            {[]podtest.Change{container("3", "1")}, 3000},
		"a container cannot grow":      {[]podtest.Change{container("3", "1"), infeasible}, 1000},
		"a sidecar shrinks":            {[]podtest.Change{sidecar("1", "3")}, 4000},
		"a sidecar cannot grow":        {[]podtest.Change{sidecar("3", "1"), infeasible}, 2000},
		"the pod as a whole shrinks":   {[]podtest.Change{whole("2", "5")}, 5000},
		"the pod as a whole grows":     {[]podtest.Change{whole("5", "2")}, 5000},
		"the pod as a whole cannot":    {[]podtest.Change{whole("5", "2"), infeasible}, 2000},
		"nothing is granted to it yet": {[]podtest.Change{func(p *corev1.Pod) { p.Spec.Resources = requests("5") }}, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.New("pod", append([]podtest.Change{podtest.OnNode("a")}, test.changes...)...)
			info, err := framework.NewPodInfo(pod)
			require.NoError(t, err)
			got, _ := requestOf(pod)
			assert.Equal(t, test.want, got.MilliCPU)
			assert.Equal(t, info.CalculateResource().Resource.GetMilliCPU(), got.MilliCPU, "kube-scheduler's own")
		})
	}
}
