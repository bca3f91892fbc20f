package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestPlannerGang(t *testing.T) {
	gang, err := vgg16().PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, "default/pytorch-topo-4-vgg16", gang.ID)
	assert.Equal(t, 4, gang.Minimum)
	require.Len(t, gang.Roles, 2)
	launcher, worker := gang.Roles[0], gang.Roles[1]
	assert.True(t, launcher.Late)
	assert.Nil(t, launcher.Affinity, "the launcher may run anywhere")
	assert.Equal(t, []string{"worker-0", "worker-1", "worker-2", "worker-3"}, worker.Members)
	assert.Equal(t, placement.ModeTopology, worker.Request.Mode)
	assert.Equal(t, 1, worker.Request.GPUs)
	assert.Equal(t, [][]placement.Requirement{{{Key: "gpuplan.dev/pool", Operator: "In", Values: []string{"v100"}}}}, worker.Affinity)

	gang, err = shared().PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, 2, gang.Minimum)
	assert.Equal(t, "vision", gang.Leaf)
	assert.False(t, gang.Preemptible)
	assert.Equal(t, placement.ModeCoreMem, gang.Roles[0].Request.Mode)
	assert.Equal(t, int64(25), gang.Roles[0].Request.CorePercent)
	assert.Equal(t, 2, gang.Roles[1].Request.GPUs)
	assert.Equal(t, int64(8), gang.Roles[1].Request.MemoryGiB)

	gang, err = plain().PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, "default/plain", gang.ID, "pods without gang labels are planned under the job's name")
}

// The plan travels on the pods of one role, from which the scheduler reads it, and is no
// part of what the user has written.
func TestPlannedPlacementTravels(t *testing.T) {
	s := distNCCL()
	record := contract.PlannedPlacement{Nodes: []contract.PlannedNode{
		{Node: "v100[0]", Members: map[string][]int{"master-0": {0, 1}, "worker-0": {4}}, RingGBps: 50, NVLinkRings: 2},
		{Node: "v100[1]", Members: map[string][]int{"worker-1": {}}},
	}}
	text, err := record.Text()
	require.NoError(t, err)
	s.Planned = text
	obj, err := s.Render()
	require.NoError(t, err)
	pods, err := Pods(obj)
	require.NoError(t, err)
	for _, p := range pods {
		_, carries := p.Annotations[contract.PlannedPlacementAnnotation]
		assert.Equal(t, p.Labels[contract.JobReplicaTypeLabel] == contract.ReplicaMaster, carries, p.Name)
	}
	gang, err := s.PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, []placement.Planned{
		{Member: "master-0", Node: "v100[0]", GPUs: []int{0, 1}, RingGBps: 50}, {Member: "worker-0", Node: "v100[0]", GPUs: []int{4}, RingGBps: 50}, {Member: "worker-1", Node: "v100[1]", GPUs: []int{}},
	}, gang.Planned)
	parsed, err := Parse(obj)
	require.NoError(t, err)
	assert.True(t, same(s, parsed))
}

// Of a JobSet all members must run, and the planner knows that their number alone can change that.
func TestGangOfAJobSetIsWhole(t *testing.T) {
	spec := plain()
	for framework, whole := range map[Framework]bool{JobSet: true, PyTorch: false} {
		spec.Framework, spec.Gang = framework, true
		gang, err := spec.PlannerGang(nil)
		require.NoError(t, err)
		assert.Equal(t, whole, gang.Whole, framework)
	}
}

// The minima of roles reach the planner; a gang without a minimum of its own needs what they
// need together, and of roles without one all.
func TestMinimaOfRoles(t *testing.T) {
	spec := shared()
	spec.Minimum = 0
	worker := spec.Roles["worker"]
	worker.Replicas, worker.Minimum = 4, 2
	spec.Roles["worker"] = worker
	gang, err := spec.PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, 3, gang.Minimum)
	assert.Equal(t, []placement.Subgroup{
		{Name: "master", Roles: []string{"master"}, Minimum: 1}, {Name: "worker", Roles: []string{"worker"}, Minimum: 2},
	}, gang.Subgroups)
	obj, err := spec.Render()
	require.NoError(t, err)
	again, err := Parse(obj)
	require.NoError(t, err)
	assert.True(t, same(spec, again))
}
