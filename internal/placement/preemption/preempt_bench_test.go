package preemption_test

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// packed is a training cluster whose GPUs all are in the hands of gangs of one leaf, with one
// GPU per member, that started in random order. All of them borrow what another leaf is
// entitled to.
func packed(tb testing.TB, nodes, members, entitled int) *snapshot.View {
	v := placementtest.Training(tb, nodes)
	gpus := func(n int) quota.Resources { return quota.Resources{"aliyun.com/gpu": int64(n)} }
	placementtest.SetQuota(tb, v, quota.Spec{Min: gpus(8 * nodes), Max: gpus(8 * nodes), Children: []quota.Spec{
		{Name: "borrower", Min: gpus(8*nodes - entitled), Max: gpus(8 * nodes)},
		{Name: "owner", Min: gpus(entitled), Max: gpus(8 * nodes)},
	}})
	request := placementtest.Job(0, 1, 1).Roles[0].Request
	started := rand.New(rand.NewSource(1)).Perm(8 * nodes / members)
	for i := range 8 * nodes {
		gang := fmt.Sprintf("ml/job-%d", i/members)
		v.AddPod(placement.Pod{
			ID: fmt.Sprintf("%s/worker-%d", gang, i%members), Node: fmt.Sprintf("n%d", i/8), Own: gpu.SetOf(i % 8), Request: request,
			Namespace: "ml", Gang: gang, Leaf: "borrower", Preemptible: true, StartedAt: int64(1 + started[i/members]),
		})
	}
	return v
}

// BenchmarkReclaim finds victims for a gang that is entitled to GPUs of a full cluster.
func BenchmarkReclaim(b *testing.B) {
	for _, s := range []struct{ nodes, members, perMember, wanted int }{
		{250, 4, 8, 64}, {500, 4, 8, 128}, {1_000, 4, 8, 256}, {1_000, 1, 1, 64}, {1_000, 1, 8, 64}, {5_000, 4, 8, 256},
	} {
		b.Run(fmt.Sprintf("nodes=%d/gangs=%d/wanted=%dx%d", s.nodes, 8*s.nodes/s.members, s.wanted/s.perMember, s.perMember), func(b *testing.B) {
			v := packed(b, s.nodes, s.members, s.wanted)
			g := placementtest.Job(-1, s.wanted/s.perMember, s.perMember)
			g.Leaf, g.Preemptible = "owner", true
			for b.Loop() {
				result := preemption.Plan(v, g)
				require.NotNil(b, result.Reservation, result.Verdict)
				b.ReportMetric(float64(len(result.Victims)), "victims")
			}
		})
	}
}

// BenchmarkReclaimRefused finds no victims for a gang that is entitled to GPUs of a full cluster: a
// disruption budget lets too few of those go that borrow them.
func BenchmarkReclaimRefused(b *testing.B) {
	for _, nodes := range []int{250, 1_000, 5_000} {
		b.Run(fmt.Sprintf("nodes=%d/gangs=%d/wanted=32x8", nodes, 2*nodes), func(b *testing.B) {
			v := packed(b, nodes, 4, 256)
			v.SetBudget("ml/budget", 64)
			for _, pod := range v.Cluster().Pods {
				pod := *pod
				pod.Budgets = []string{"ml/budget"}
				v.AddPod(pod)
			}
			g := placementtest.Job(-1, 32, 8)
			g.Leaf, g.Preemptible = "owner", true
			for b.Loop() {
				v.SetBudget("ml/budget", 64) // forgets the verdict
				require.Nil(b, preemption.Plan(v, g).Placement)
			}
		})
	}
}
