package clusterstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// Beside a minimum, the replica label says how many members there are in all.
func TestExpectedMembers(t *testing.T) {
	s := newState(t, "a")
	pods := podtest.Workers(4, podtest.Label(contract.LightGangLabel, "job"), podtest.Label(contract.LightGangMinLabel, "2"), podtest.Label(contract.TopologyReplicasLabel, "4"))
	for i, want := range []int{3, 2, 1, 0} {
		s.SetPod(pods[i])
		status := statusOf(s, "ns/job", "")
		assert.Equal(t, want, status.Expected)
		assert.Equal(t, i+1, status.Present)
		assert.Equal(t, i == 0, status.MissingText != "")
	}
	s.RemovePod(pods[3].UID)
	podtest.OnNode("a")(pods[0])
	s.SetPod(pods[0])
	assert.Zero(t, statusOf(s, "ns/job", "").Expected, "a gang that runs in part is not kept waiting")
}

// What an earlier run of a job has left behind is no member of the next one; a member that is
// being deleted of the same job is, as long as it holds its place.
func TestGangLeavesOutAnEarlierRun(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string // controllers, "" for none
		alone         bool   // nobody else is there
		running       int
	}{
		"of the same job":      {before: "a", after: "a", running: 1},
		"of the job before it": {before: "a", after: "b"},
		"of no controller":     {},
		"and nobody is new":    {before: "a", alone: true, running: 1},
	} {
		t.Run(name, func(t *testing.T) {
			pods, now := podtest.Gang(4), metav1.Now()
			for i, p := range pods {
				if owner := types.UID(test.after); owner != "" {
					podtest.OwnedBy(owner)(p)
				}
				if i == 0 {
					podtest.OnNode("a")(p)
					p.DeletionTimestamp, p.OwnerReferences = &now, nil
					if owner := types.UID(test.before); owner != "" {
						podtest.OwnedBy(owner)(p)
					}
				}
			}
			if test.alone {
				pods = pods[:1]
			}
			s := newState(t, "a")
			for _, p := range pods {
				s.SetPod(p)
			}
			state, ok := s.Gang("ns/job")
			require.True(t, ok)
			assert.Len(t, state.Gang.Running, test.running)
			assert.Equal(t, test.running, state.Running)
			if !test.alone {
				assert.Equal(t, test.running == 0, state.MissingText != "", state.MissingText)
				assert.Equal(t, state.MissingText, statusOf(s, "ns/job", "").MissingText)
				assert.Equal(t, state.MissingText, s.Snapshot().GangStatus("ns/job").MissingText)
			}
			pod, _ := s.View.Pod(string(pods[0].UID))
			assert.Equal(t, "a", pod.Node, "it holds what it has")
		})
	}
}
