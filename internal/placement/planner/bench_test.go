package planner_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// racks returns a view of n nodes of 4 CPU in 50 racks of label "rack", the shape of
// Kubernetes' own topology-aware gang benchmark (scheduler_perf, podgroup/tas).
func racks(n int) *snapshot.View {
	v := snapshot.NewView()
	for i := range n {
		v.SetNode(placement.Node{
			Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"rack": fmt.Sprintf("r%d", i*50/n)},
			Allocatable: placement.Resources{MilliCPU: 4000, MemoryBytes: 32 << 30, Pods: 110},
		})
	}
	return v
}

func small() placement.Request {
	return placement.Request{Resources: placement.Resources{MilliCPU: 100, MemoryBytes: 100 << 20}}
}

func BenchmarkRequiredRack(b *testing.B) {
	for _, nodes := range []int{500, 5_000, 50_000} {
		for _, members := range []int{1, 10, 100, 1_000, 10_000} {
			if members*50 > nodes*40 {
				continue
			}
			b.Run(fmt.Sprintf("nodes=%d/members=%d", nodes, members), func(b *testing.B) {
				v := racks(nodes)
				g := placementtest.Gang("bench/gang", members, small())
				g.RequiredDomain = "rack"
				for b.Loop() {
					require.NotNil(b, planner.Plan(v, g).Placement)
				}
			})
		}
	}
}

func BenchmarkEightGPUMembers(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000} {
		b.Run(fmt.Sprintf("nodes=%d/members=512", nodes), func(b *testing.B) {
			v := placementtest.TopologyView(nodes)
			g := placementtest.Gang("bench/gang", 512, placementtest.WholeGPUs(8))
			for b.Loop() {
				require.NotNil(b, planner.Plan(v, g).Placement)
			}
		})
	}
}

func BenchmarkInfeasible(b *testing.B) {
	b.Run("GPUs/nodes=5000/members=45000", func(b *testing.B) {
		v := placementtest.TopologyView(5_000)
		g := placementtest.Gang("bench/gang", 45_000, placementtest.WholeGPUs(1))
		for b.Loop() {
			require.Nil(b, planner.Plan(v, g).Placement)
		}
	})
	b.Run("eight GPUs/nodes=5000/members=5001", func(b *testing.B) {
		v := placementtest.TopologyView(5_000)
		g := placementtest.Gang("bench/gang", 5_001, placementtest.WholeGPUs(8))
		for b.Loop() {
			require.Nil(b, planner.Plan(v, g).Placement)
		}
	})
	b.Run("rack/nodes=5000/members=5000", func(b *testing.B) {
		v := racks(5_000)
		g := placementtest.Gang("bench/gang", 5_000, small())
		g.RequiredDomain = "rack"
		for b.Loop() {
			require.Nil(b, planner.Plan(v, g).Placement)
		}
	})
}

// BenchmarkFragmented plans on nodes that are all in different states.
func BenchmarkFragmented(b *testing.B) {
	v := placementtest.TopologyView(5_000)
	for i := range 5_000 {
		v.AddPod(placement.Pod{ID: fmt.Sprint(i), Node: fmt.Sprintf("n%d", i), Request: placement.Request{
			Resources: placement.Resources{MilliCPU: int64(i)}}})
	}
	g := placementtest.Gang("bench/gang", 1_000, placementtest.WholeGPUs(3))
	for b.Loop() {
		require.NotNil(b, planner.Plan(v, g).Placement)
	}
}

func BenchmarkApply(b *testing.B) {
	v := placementtest.TopologyView(1_000)
	g := placementtest.Gang("bench/gang", 512, placementtest.WholeGPUs(8))
	p := *planner.Plan(v, g).Placement
	for b.Loop() {
		v.Apply(g, p)()
	}
}
