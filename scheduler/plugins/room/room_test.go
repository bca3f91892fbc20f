package room

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

func newPod(name string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}},
	}
}

func newNode(name, cpu, gpus string) *corev1.Node {
	offers := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
		contract.ResourceTopologyGPU: resource.MustParse(gpus),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{contract.NodeModeLabel: "topology"}},
		Status:     corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}
}

// Pods without GPUs go where they leave CPU for the GPUs, by what arrives.
func TestScores(t *testing.T) {
	cache := clustercache.New()
	var infos []fwk.NodeInfo
	for _, n := range []*corev1.Node{newNode("scarce", "16", "4"), newNode("ample", "64", "4"), newNode("full", "8", "4"), newNode("none", "32", "0")} {
		_, err := cache.SetNode(n)
		require.NoError(t, err)
		if n.Name != "full" {
			info := framework.NewNodeInfo()
			info.SetNode(n)
			infos = append(infos, info)
		}
	}
	p := &Plugin{cache: cache}
	pod := newPod("web", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")})
	best := func() (names []string, all []int64) {
		state := framework.NewCycleState()
		require.True(t, p.PreScore(t.Context(), state, pod, infos).IsSuccess())
		for _, info := range infos {
			given, status := p.Score(t.Context(), state, pod, info)
			require.True(t, status.IsSuccess())
			all = append(all, given)
			if given == fwk.MaxScore {
				names = append(names, info.Node().Name)
			}
		}
		return names, all
	}
	four := placement.Demand{Mode: placement.ModeTopology, GPUs: 1, MilliCPU: 4000}
	cache.SetWorkload(placement.Workload{four: 10})
	names, all := best()
	assert.Equal(t, []string{"none"}, names)
	assert.Greater(t, all[1], all[0], "on the first it would leave GPUs without CPU")
	infos = infos[:2]
	names, _ = best()
	assert.Equal(t, []string{"ample"}, names)
}

func TestPlannedPodsAreLeftAlone(t *testing.T) {
	p := &Plugin{cache: clustercache.New()}
	pod := newPod("train", corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("1")})
	assert.True(t, p.PreScore(t.Context(), framework.NewCycleState(), pod, nil).IsSkip())
	_, status := p.Score(t.Context(), framework.NewCycleState(), pod, nil)
	assert.Error(t, status.AsError(), "nothing was scored")
}
