package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// Of what admission makes of a job's pods a plan says by what nobody keeps to it.
func TestAdmissionFindings(t *testing.T) {
	size := func(minimum string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels[contract.LightGangMinLabel] = minimum }
	}
	const because = "The API server's admission (a webhook or a policy) "
	for name, test := range map[string]struct {
		minimum int32
		change  func(*corev1.Pod)
		warning bool
		says    string // "" for nothing
	}{
		"nothing of that":   {0, func(p *corev1.Pod) { p.Labels["team"] = "a" }, false, ""},
		"another scheduler": {0, func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }, true, because + "gives the pods of role worker of job default/j the scheduler volcano instead of gpuplan-scheduler"},
		"a gate": {0, func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		}, true, "the scheduling gate kueue.x-k8s.io/admission"},
		"another gang": {0, func(p *corev1.Pod) { p.Labels[contract.LightGangLabel] = "k" }, true, because +
			"changes the labels of the pods of role worker of job default/j: they are in gang default/k then, and in gang default/j by the configuration"},
		"no gang":             {0, func(p *corev1.Pod) { delete(p.Labels, contract.LightGangLabel) }, true, "they are in no gang then"},
		"more than there are": {0, size("5"), false, because + "changes the labels of the pods of job default/j: its gang needs 5 members then, and 3 by the configuration, of which there are 3. The job waits for ever."},
		"more than it plans":  {2, size("3"), true, "needs 3 members then, and 2 by the configuration, of which there are 3. The job waits until there is room for as many."},
		"fewer than it plans": {0, size("1"), true, "needs 1 members then, and 3 by the configuration, of which there are 3. The job may start in part."},
	} {
		t.Run(name, func(t *testing.T) {
			spec := job.Spec{
				Namespace: "default", Name: "j", Framework: job.Batch, Mode: job.Default, Gang: true, Minimum: test.minimum, SchedulerName: contract.SchedulerName,
				Roles: map[string]job.Role{"worker": {Replicas: 3, Image: "x", GPUs: 1}},
			}.Complete()
			sample, err := spec.Sample()
			require.NoError(t, err)
			admission := job.Admission{}
			for _, pod := range sample {
				made := pod.DeepCopy()
				test.change(made)
				admission[job.RoleOf(pod)] = job.Admitted{Predicted: pod, Pod: made}
			}
			findings := admissionFindings(spec, admission)
			if test.says == "" {
				assert.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			assert.Contains(t, findings[0].Detail, test.says)
			assert.Equal(t, test.warning, findings[0].Warning)
		})
	}
}
