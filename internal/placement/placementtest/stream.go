package placementtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Training returns a view of n nodes of eight GPUs as a cluster has them: a pool, its
// labels, a taint, and a little CPU in use by daemons that differs from node to node.
func Training(tb testing.TB, n int) *snapshot.View {
	v := snapshot.NewView()
	t, err := gpu.NewTable(Machine(tb, "hgx-h100"))
	require.NoError(tb, err)
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		v.SetNode(placement.Node{
			Name: name, Pool: fmt.Sprintf("pool-%d", i%4), Mode: placement.ModeTopology, GPUs: t,
			Labels: map[string]string{
				"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
				"topology.kubernetes.io/zone": "a", "rack": fmt.Sprintf("r%d", i/20), "ack.node.gpu.schedule": "topology",
			},
			Taints: []placement.Taint{{Key: "nvidia.com/gpu", Effect: "NoSchedule"}},
			Allocatable: placement.Resources{
				MilliCPU: 192_000, MemoryBytes: 2 << 40, Pods: 110, Extended: map[string]int64{"aliyun/erdma": 400},
			},
		})
		for d := range 3 {
			v.AddPod(placement.Pod{ID: fmt.Sprintf("kube-system/d%d-%d", d, i), Node: name, Request: placement.Request{
				Resources: placement.Resources{MilliCPU: int64(100 + 50*(i%5)), MemoryBytes: 200 << 20}}})
		}
	}
	return v
}

// Job is a gang of members with one GPU each, as a training job asks for them.
func Job(i, members, perMember int) placement.Gang {
	g := Gang(fmt.Sprintf("ml/job-%d", i), members, placement.Request{
		Mode: placement.ModeTopology, GPUs: perMember,
		Resources: placement.Resources{MilliCPU: int64(perMember) * 8_000, MemoryBytes: int64(perMember) * (64 << 30)},
	})
	g.Roles[0].Tolerations = []placement.Toleration{{Key: "nvidia.com/gpu", Operator: "Exists"}}
	g.Roles[0].NodeSelector = map[string]string{"kubernetes.io/os": "linux"}
	return g
}
