package quotatree_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A gang that waits may evict others once a leaf entitles it, or no tree protects them any more, also where the plan
// changes nothing but the tree.
func TestEvictionsThatAChangeOfTheTreeBrings(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	cli := acctest.StartCLI(t)
	const leaves = `    a = { max = { "aliyun.com/gpu" = "8" } }
    b = { max = { "aliyun.com/gpu" = "4" } }`
	cli.Write(t, treeOf(total, leaves, ""))
	cli.Apply(t, 1, 0, 0)
	cloud.Put(t, &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{corev1.LabelInstanceTypeStable: "ecs.gn6v-c10g1.20xlarge", contract.NodeModeLabel: "topology"}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80"), corev1.ResourceMemory: resource.MustParse("300Gi"), corev1.ResourcePods: resource.MustParse("100"), contract.ResourceTopologyGPU: resource.MustParse("8")},
		},
	})
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	in := func(leaf string, p *corev1.Pod) *corev1.Pod {
		p.Spec.SchedulerName, p.Labels[contract.QuotaLabel] = contract.SchedulerName, leaf
		return p
	}
	cloud.Put(t, in("a", acctest.GangPod("low", "low-0", "gpu-1", all...)))
	waits := in("b", acctest.GangPod("high", "high-0", "", all...))
	waits.Annotations, waits.Status.Phase, waits.Spec.Priority = nil, corev1.PodPending, ptr.To[int32](1000)
	cloud.Put(t, waits)

	for name, config := range map[string]string{
		"a leaf gets more":    treeOf(total, `    a = { max = { "aliyun.com/gpu" = "8" } }`+"\n"+`    b = { min = { "aliyun.com/gpu" = "8" }, max = { "aliyun.com/gpu" = "16" } }`, ""),
		"the tree is deleted": "",
	} {
		cli.Write(t, config)
		said := acctest.Unwrapped(cli.Must(t, "plan"))
		assert.Contains(t, said, "Running jobs may be evicted", name)
		assert.Contains(t, said, "Gang default/high waits for room already", name)
	}
	cli.Write(t, treeOf(total, leaves, ""))
	assert.NotContains(t, cli.Must(t, "plan"), "Warning")
}
