package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	assert.Equal(t, 1, worker.Request.Cards)
	assert.Equal(t, [][]placement.Requirement{{{Key: "gpuplan.dev/pool", Operator: "In", Values: []string{"v100"}}}}, worker.Affinity)

	gang, err = shared().PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, 2, gang.Minimum)
	assert.Equal(t, "vision", gang.Leaf)
	assert.False(t, gang.Preemptible)
	assert.Equal(t, placement.ModeCoreMem, gang.Roles[0].Request.Mode)
	assert.Equal(t, int64(25), gang.Roles[0].Request.CorePercent)
	assert.Equal(t, 2, gang.Roles[1].Request.Cards)
	assert.Equal(t, int64(8), gang.Roles[1].Request.MemoryGiB)

	gang, err = plain().PlannerGang(nil)
	require.NoError(t, err)
	assert.Equal(t, "default/plain", gang.ID, "pods without gang labels are planned under the job's name")
}
