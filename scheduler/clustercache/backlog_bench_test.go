package clustercache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// BenchmarkBacklog looks at every gang of a long queue on a full cluster, as the scheduler
// does when a GPU is freed: of 500 nodes with eight GPUs, all in use.
func BenchmarkBacklog(b *testing.B) {
	for _, waiting := range []int{100, 3_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c := New()
			for i := range 500 {
				_, err := c.SetNode(podtest.Node(fmt.Sprint("n", i), 8))
				require.NoError(b, err)
			}
			for i := range 4_000 {
				c.SetPod(podtest.New(fmt.Sprint("running-", i), podtest.Asks(contract.ResourceTopologyGPU, 1), podtest.OnNode(fmt.Sprint("n", i/8)),
					podtest.Recorded(contract.Allocation{Version: 1, GPUs: []int{i % 8}})))
			}
			var keys []string
			for i := range waiting {
				p := podtest.New(fmt.Sprint("waiting-", i), podtest.Asks(contract.ResourceTopologyGPU, 2))
				c.SetPod(p)
				key, _ := inventory.PlanKey(p)
				keys = append(keys, key)
			}
			i := 0
			for b.Loop() {
				name := fmt.Sprint("running-", i%4_000)
				c.RemovePod(types.UID("uid-" + name))
				for _, key := range keys {
					d, _ := c.Consider(key, Limits{})
					require.Nil(b, d.Result.Placement)
				}
				b.StopTimer()
				c.SetPod(podtest.New(name, podtest.Asks(contract.ResourceTopologyGPU, 1), podtest.OnNode(fmt.Sprint("n", i%4_000/8)),
					podtest.Recorded(contract.Allocation{Version: 1, GPUs: []int{i % 8}})))
				i++
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*waiting), "µs/gang")
		})
	}
}
