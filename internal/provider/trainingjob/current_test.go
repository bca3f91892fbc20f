package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestCurrent(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC)) }
	pod := func(name, role, index string, phase corev1.PodPhase, created int) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(created), Labels: map[string]string{}}, Status: corev1.PodStatus{Phase: phase}}
		for label, value := range map[string]string{contract.JobReplicaTypeLabel: role, batchv1.JobCompletionIndexAnnotation: index} {
			if value != "" {
				p.Labels[label] = value
			}
		}
		return p
	}
	deleted := func(p *corev1.Pod) *corev1.Pod {
		p.DeletionTimestamp = ptr.To(at(59))
		return p
	}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"none": {nil, nil},
		"one for each": {[]*corev1.Pod{
			pod("c", "worker", "10", corev1.PodRunning, 1), pod("a", "worker", "2", corev1.PodRunning, 1), pod("b", "launcher", "", corev1.PodRunning, 1),
		}, []string{"b", "a", "c"}},
		"made again":           {[]*corev1.Pod{pod("a", "worker", "0", corev1.PodFailed, 1), pod("b", "worker", "0", corev1.PodRunning, 2)}, []string{"b"}},
		"at once":              {[]*corev1.Pod{pod("b", "worker", "0", corev1.PodPending, 1), pod("a", "worker", "0", corev1.PodFailed, 1)}, []string{"b"}},
		"failed twice":         {[]*corev1.Pod{pod("a", "worker", "0", corev1.PodFailed, 1), pod("b", "worker", "0", corev1.PodFailed, 2)}, []string{"b"}},
		"one that ends":        {[]*corev1.Pod{deleted(pod("a", "worker", "0", corev1.PodRunning, 1)), pod("b", "worker", "0", corev1.PodPending, 2)}, []string{"b"}},
		"one that has ended":   {[]*corev1.Pod{pod("a", "worker", "0", corev1.PodSucceeded, 1), pod("b", "worker", "0", corev1.PodFailed, 2)}, []string{"a"}},
		"a launcher, too":      {[]*corev1.Pod{pod("a", "launcher", "", corev1.PodFailed, 1), pod("b", "launcher", "", corev1.PodRunning, 2)}, []string{"b"}},
		"those of no replicas": {[]*corev1.Pod{pod("a", "", "", corev1.PodFailed, 1), pod("b", "", "", corev1.PodRunning, 2)}, []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range current(test.pods) {
				got = append(got, p.Name)
			}
			assert.Equal(t, test.want, got)
		})
	}
}
