package nodepool_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A gang that waits may evict others once a pool has what it lacked beside them, also where the plan changes nothing but
// the pool.
func TestEvictionsThatAChangeOfAPoolBrings(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Apply(t, 1, 0, 0)
	low := acctest.GangPod("low", "low-0", "cn-hangzhou.10.0.1.1", 0, 1, 2, 3, 4, 5, 6, 7)
	low.Spec.SchedulerName = contract.SchedulerName
	cloud.Put(t, low)
	wait := func(gang string, selector map[string]string, names ...string) {
		for _, name := range names {
			p := acctest.GangPod(gang, name, "", 0, 1, 2, 3, 4, 5, 6, 7)
			p.Annotations, p.Status.Phase = nil, corev1.PodPending
			p.Spec.SchedulerName, p.Spec.Priority, p.Spec.NodeSelector = contract.SchedulerName, ptr.To[int32](1000), selector
			p.Labels[contract.TopologyReplicasLabel] = map[bool]string{true: "1", false: "2"}[len(names) == 1]
			cloud.Put(t, p)
		}
	}
	wait("large", nil, "large-0", "large-1")
	wait("blue", map[string]string{"color": "blue"}, "blue-0")
	for name, test := range map[string]struct{ change, evicts string }{
		"it grows":                   {"size = 2", "Gang default/large waits for room already"},
		"its nodes get a label":      {`labels = { color = "blue" }`, "Gang default/blue waits for room already"},
		"a label that nobody awaits": {`labels = { color = "red" }`, ""},
	} {
		cli.Write(t, poolWith(test.change))
		said := acctest.Unwrapped(cli.Must(t, "plan"))
		if test.evicts == "" {
			assert.NotContains(t, said, "Warning", name)
			continue
		}
		assert.Contains(t, said, "Running jobs may be evicted", name)
		assert.Contains(t, said, test.evicts, name)
		assert.Contains(t, said, "the scheduler may then evict for it: default/low (1 pod, priority 0).", name)
	}
}
