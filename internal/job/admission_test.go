package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Whatever admission changes of a pod of each role, all pods of the role have.
func TestAdmission(t *testing.T) {
	record, err := contract.PlannedPlacement{Nodes: []contract.PlannedNode{{Node: "n", Members: map[string][]int{"worker-0": {0}}}}}.Text()
	require.NoError(t, err)
	spec := Spec{
		Namespace: "default", Name: "j", Framework: PyTorch, Mode: Topology, Gang: true, SchedulerName: contract.SchedulerName,
		NodeSelector: map[string]string{"rack": "a"}, Planned: record,
		Roles: map[string]Role{"worker": {Replicas: 3, Image: "x", GPUs: 1, CPU: resource.MustParse("2")}},
	}.Complete()
	configured, err := spec.PlannerGang(nil)
	require.NoError(t, err)
	only := func(g placement.Gang) placement.Role {
		require.Len(t, g.Roles, 1, "the members are alike")
		return g.Roles[0]
	}
	for name, test := range map[string]struct {
		change     func(*corev1.Pod)
		text       string
		attributes []string
		check      func(*testing.T, placement.Gang)
	}{
		"nothing": {func(*corev1.Pod) {}, "", nil, func(t *testing.T, g placement.Gang) { assert.Equal(t, configured, g) }},
		"what every pod gets": {func(p *corev1.Pod) {
			for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)})
			}
			p.Spec.Priority, p.Spec.ServiceAccountName = ptr.To[int32](0), "default"
		}, "", nil, func(t *testing.T, g placement.Gang) { assert.Equal(t, configured, g) }},
		"requests": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("50")
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		}, "cpu 50 instead of 2, ephemeral-storage 1Gi (role worker)", []string{"cpu"}, func(t *testing.T, g placement.Gang) {
			assert.EqualValues(t, 50000, only(g).Request.MilliCPU)
			assert.Equal(t, configured.Planned, g.Planned)
			assert.Equal(t, configured.Roles[0].Members, only(g).Members)
		}},
		"overhead": {func(p *corev1.Pod) {
			p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
		}, "memory 256Mi (role worker)", []string{"memory"}, func(t *testing.T, g placement.Gang) {
			assert.EqualValues(t, 256<<20, only(g).Request.MemoryBytes)
		}},
		"where it may run": {func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"rack": "b"}
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists})
		}, "another node selector, other tolerations (role worker)", nil, func(t *testing.T, g placement.Gang) {
			assert.Equal(t, map[string]string{"rack": "b"}, only(g).NodeSelector)
			assert.Len(t, only(g).Tolerations, 1)
		}},
		"its priority": {func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = "high", ptr.To[int32](7), ptr.To(corev1.PreemptNever)
		}, "the priority class high (role worker)", nil, func(t *testing.T, g placement.Gang) {
			assert.EqualValues(t, 7, g.Priority)
			assert.True(t, g.NeverPreempts)
		}},
		"its quota": {func(p *corev1.Pod) { p.Labels[contract.QuotaLabel] = "vision" }, "other labels (role worker)", nil,
			func(t *testing.T, g placement.Gang) { assert.Equal(t, "vision", g.Leaf) }},
		"its gang": {func(p *corev1.Pod) { delete(p.Labels, contract.LightGangMinLabel) }, "other labels (role worker)", nil,
			func(t *testing.T, g placement.Gang) { assert.Equal(t, configured.Roles[0].Members, only(g).Members) }},
		"its scheduler": {func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }, "the scheduler other (role worker)", nil,
			func(t *testing.T, g placement.Gang) { assert.Equal(t, configured, g) }},
	} {
		t.Run(name, func(t *testing.T) {
			sample, err := spec.Sample()
			require.NoError(t, err)
			require.Len(t, sample, 1)
			made := sample[0].DeepCopy()
			test.change(made)
			admission := Admission{RoleOf(made): {Predicted: sample[0], Pod: made}}
			text, attributes := admission.Added()
			assert.Equal(t, test.text, text)
			assert.Equal(t, test.attributes, attributes)
			gang, err := spec.AdmittedGang(nil, admission, nil)
			require.NoError(t, err)
			test.check(t, gang)
		})
	}
}
