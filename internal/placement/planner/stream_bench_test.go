package planner_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// BenchmarkStream places gangs one after the other, as the scheduler does.
func BenchmarkStream(b *testing.B) {
	for _, s := range []struct{ gangs, members, gpus int }{{4_000, 1, 1}, {1_000, 4, 1}, {100, 16, 1}, {500, 2, 8}} {
		b.Run(fmt.Sprintf("gangs=%d/members=%d/gpus=%d", s.gangs, s.members, s.gpus), func(b *testing.B) {
			empty := placementtest.Training(b, 1_000)
			for b.Loop() {
				b.StopTimer()
				v := empty.Clone()
				b.StartTimer()
				for i := range s.gangs {
					g := placementtest.Job(i, s.members, s.gpus)
					result := planner.Plan(v, g)
					require.NotNil(b, result.Placement)
					v.Apply(g, *result.Placement)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*s.gangs), "µs/gang")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*s.gangs*s.members), "µs/member")
		})
	}
}

// BenchmarkInfeasibleGangs plans a gang again and again that does not fit, while pods come and go.
func BenchmarkInfeasibleGangs(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			v := placementtest.Training(b, nodes)
			for i := range nodes {
				g := placementtest.Job(i, 1, 7)
				v.Apply(g, *planner.Plan(v, g).Placement)
			}
			g := placementtest.Job(nodes, 4, 8)
			pod := placement.Pod{ID: "x", Node: "n7", Request: placement.Request{Resources: placement.Resources{MilliCPU: 100}}}
			for b.Loop() {
				v.AddPod(pod)
				require.Nil(b, planner.Plan(v, g).Placement)
				v.RemovePod(pod.ID)
			}
		})
	}
}
