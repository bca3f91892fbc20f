package displacement_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/displacement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

func TestDisplaced(t *testing.T) {
	v := placementtest.TopologyView(2)
	placementtest.SetQuota(t, v, placementtest.Halves())
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 6, placementtest.WholeGPUs(1)), "left", 5))
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(8)), "left", 1))
	v.AddPod(placement.Pod{ID: "kube-system/agent", Node: "n1", Request: placement.Request{Resources: placement.Resources{MilliCPU: 1000}}})
	degraded := placementtest.V100().Machine()
	degraded.GPUs = append([]gpu.GPU(nil), degraded.GPUs...)
	degraded.GPUs[0].Unhealthy = "XID 79"
	lost, err := gpu.NewTable(degraded)
	require.NoError(t, err)
	change := func(name string, change func(*placement.Node)) func(*snapshot.View) {
		return func(w *snapshot.View) {
			n, _ := w.Node(name)
			change(&n)
			w.SetNode(n)
		}
	}
	cases := map[string]struct {
		change func(*snapshot.View)
		want   map[string]string
	}{
		"nothing":            {func(*snapshot.View) {}, map[string]string{}},
		"a node goes":        {func(w *snapshot.View) { w.RemoveNode("n1") }, map[string]string{"ml/b": "node n1 is gone", "kube-system/agent": "node n1 is gone"}},
		"a node is cordoned": {change("n0", func(n *placement.Node) { n.Unschedulable = true }), map[string]string{}},
		"another mode":       {change("n0", func(n *placement.Node) { n.Mode = placement.ModeDefault }), map[string]string{"ml/a": "node n0 offers its GPUs in mode default"}},
		"a shared mode":      {change("n1", func(n *placement.Node) { n.Mode = placement.ModeShare }), map[string]string{"ml/b": "node n1 offers its GPUs in mode share"}},
		"a lost GPU":         {change("n1", func(n *placement.Node) { n.GPUs = lost }), map[string]string{"ml/b": "node n1 has lost GPU 0"}},
		"less CPU":           {change("n1", func(n *placement.Node) { n.Allocatable.MilliCPU = 500 }), map[string]string{"kube-system/agent": "node n1 is too small"}},
		"fewer pods":         {change("n0", func(n *placement.Node) { n.Allocatable.Pods = 5 }), map[string]string{"ml/a": "node n0 is too small"}},
		"a lower max": {func(w *snapshot.View) {
			s := placementtest.Halves()
			s.Children[0].Max = quota.Resources{"aliyun.com/gpu": 8}
			placementtest.SetQuota(t, w, s)
		}, map[string]string{"ml/b": "quota root/left: max of aliyun.com/gpu is 8, 14 is used"}},
		"no such leaf": {func(w *snapshot.View) { placementtest.SetQuota(t, w, quota.Spec{}) }, map[string]string{
			"ml/a": "quota leaf left is gone", "ml/b": "quota leaf left is gone"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			changed := v.Clone()
			c.change(changed)
			got := map[string]string{}
			for _, s := range displacement.Of(v, changed) {
				got[s.Gang] = s.Why
				assert.NotEmpty(t, s.Pods)
			}
			assert.Equal(t, c.want, got)
		})
	}
	changed := v.Clone()
	change("n0", func(n *placement.Node) { n.Allocatable.Pods = 5 })(changed)
	displaced := displacement.Of(v, changed)
	require.Len(t, displaced, 1)
	assert.Equal(t, []string{"ml/a/worker-5"}, displaced[0].Pods)
	assert.Equal(t, "node n0 is too small", displaced[0].Why)
}

// Who loses a place is told the next one, or why there is none; the first in line gets it first.
func TestDisplacedGangsGoElsewhere(t *testing.T) {
	v := placementtest.TopologyView(4)
	victim := placementtest.Node("spare", "spare", placement.ModeTopology, placementtest.V100())
	victim.Taints = []placement.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
	v.SetNode(victim)
	urgent, patient := placementtest.Gang("ml/urgent", 2, placementtest.WholeGPUs(4)), placementtest.Gang("ml/patient", 2, placementtest.WholeGPUs(4))
	urgent.Priority = 1
	fixed := placementtest.Gang("ml/fixed", 1, placementtest.WholeGPUs(4))
	placementtest.Place(t, v, fixed)
	placementtest.Place(t, v, patient)
	placementtest.Place(t, v, urgent)
	urgent.Roles[0].Tolerations = []placement.Toleration{{Key: "team", Operator: "Exists"}}
	patient.Roles[0].Tolerations = urgent.Roles[0].Tolerations
	changed := v.Clone()
	changed.RemoveNode("n3")
	changed.RemoveNode("n0")
	changed.RemoveNode("n1")
	changed.RemoveNode("n2")

	elsewhere := func(displaced []displacement.Gang) map[string]string {
		got := map[string]string{}
		for _, s := range displaced {
			got[s.Gang] = s.Elsewhere.Verdict.String()
			if p := s.Elsewhere.Placement; p != nil {
				got[s.Gang] = fmt.Sprint(len(p.Assignments), " on ", p.Assignments[0].Node)
			}
		}
		return got
	}
	got := elsewhere(displacement.Of(v, changed, urgent, patient))
	assert.Equal(t, "2 on spare", got["ml/urgent"], "%v", got)
	assert.Contains(t, got["ml/patient"], "0 of 2 members fit: 1 node has no free GPU left")
	assert.Contains(t, got["ml/fixed"], "0 of 1 members fit: 1 node has the taint team=a:NoSchedule, which is not tolerated")

	part := v.Clone()
	part.RemoveNode("n2")
	lone := displacement.Of(v, part)
	require.Len(t, lone, 1, "%+v", lone)
	require.NotNil(t, lone[0].Elsewhere.Placement)
	assert.Len(t, lone[0].Elsewhere.Placement.Assignments, len(lone[0].Pods), "only what lost its place moves")
}

func TestDisplacedOnSmallerGPUs(t *testing.T) {
	sized := func(gib int64) *gpu.Table {
		m := placementtest.Machine(t, "ack-sample-4xv100")
		for i := range m.GPUs {
			m.GPUs[i].MemoryMiB = gib << 10
		}
		table, err := gpu.NewTable(m)
		require.NoError(t, err)
		return table
	}
	v := snapshot.NewView()
	n := placementtest.Node("s", "s", placement.ModeShare, sized(32))
	n.Allocatable.Extended = map[string]int64{"aliyun/erdma": 2}
	v.SetNode(n)
	placementtest.Place(t, v, placementtest.Gang("ml/a", 1, placement.Request{Mode: placement.ModeShare, MemoryGiB: 20}))
	placementtest.Place(t, v, placementtest.Gang("ml/b", 1, placement.Request{Mode: placement.ModeShare, MemoryGiB: 12, Resources: placement.Resources{Extended: map[string]int64{"aliyun/erdma": 2}}}))
	changed := v.Clone()
	n.GPUs = sized(16)
	changed.SetNode(n)
	displaced := displacement.Of(v, changed)
	require.Len(t, displaced, 1, "%v", displaced)

	changed = v.Clone()
	n.GPUs = sized(32)
	n.Allocatable.Extended = map[string]int64{"aliyun/erdma": 1}
	changed.SetNode(n)
	displaced = displacement.Of(v, changed)
	require.Len(t, displaced, 1)
	assert.Equal(t, []string{"ml/b/worker-0"}, displaced[0].Pods)
	assert.Equal(t, "node s is too small", displaced[0].Why)
	assert.Contains(t, displaced[0].Elsewhere.Verdict.String(), "too little aliyun/erdma")

	d := snapshot.NewView()
	m := placementtest.Node("d", "d", placement.ModeDefault, placementtest.V100())
	d.SetNode(m)
	placementtest.Place(t, d, placementtest.Gang("ml/c", 8, placement.Request{Mode: placement.ModeDefault, GPUs: 1}))
	changed = d.Clone()
	m.GPUs = sized(16) // four GPUs
	changed.SetNode(m)
	assert.Equal(t, []string{"ml/c/worker-4", "ml/c/worker-5", "ml/c/worker-6", "ml/c/worker-7"}, displacement.Of(d, changed)[0].Pods)
}
