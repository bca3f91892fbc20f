package clusterstate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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
// being deleted of the same job is, as long as it holds its place and others run on.
func TestGangLeavesOutAnEarlierRun(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string // controllers, "" for none
		alone         bool   // nobody else is there
		others        int    // that run
		running       int
	}{
		"of the same job":      {before: "a", after: "a", others: 1, running: 2},
		"of the same job, all": {before: "a", after: "a"},
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
				if i <= test.others {
					podtest.OnNode("a")(p)
				}
				if i == 0 {
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

// Members that have scheduling gates, or that another scheduler places, are as if they were not
// there, for whoever places the others.
func TestGatedMembers(t *testing.T) {
	gate := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}} }
	foreign := func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }
	minimum := func(n string) podtest.Change { return podtest.Label(contract.LightGangMinLabel, n) }
	for name, test := range map[string]struct {
		minimum podtest.Change
		gated   podtest.Change
		count   int // of four
		running bool
		missing string
		members int
	}{
		"all are needed, one has a gate":   {minimum("4"), gate, 1, false, "gang ns/job cannot start: pod job-worker-0 has the scheduling gate example.com/hold", 3},
		"one is another scheduler's":       {minimum("4"), foreign, 1, false, "gang ns/job cannot start: pod job-worker-0 names the scheduler other", 3},
		"more are missing than have gates": {minimum("6"), gate, 1, false, "3 more pods of gang ns/job must appear before it can start", 3},
		"enough are left":                  {minimum("2"), gate, 2, false, "", 2},
		"too few are left":                 {minimum("2"), gate, 3, false, "gang ns/job cannot start: pod job-worker-0 has the scheduling gate example.com/hold", 1},
		"it does not say how many":         {func(*corev1.Pod) {}, gate, 1, false, "gang ns/job cannot start: pod job-worker-0 has the scheduling gate example.com/hold", 3},
		"the others run":                   {minimum("3"), gate, 1, true, "", 3},
		"all have gates":                   {minimum("4"), gate, 4, false, "gang ns/job cannot start: pod job-worker-0 has the scheduling gate example.com/hold", 0},
		"all are another scheduler's":      {minimum("4"), foreign, 4, false, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "a")
			ours := func(p *corev1.Pod) { p.Spec.SchedulerName = contract.SchedulerName }
			pods := podtest.Workers(4, podtest.Label(contract.LightGangLabel, "job"), test.minimum, ours)
			for i, p := range pods {
				switch {
				case i < test.count:
					test.gated(p)
				case test.running:
					podtest.OnNode("a")(p)
				}
				s.SetPod(p)
			}
			state, _ := s.Gang("ns/job")
			assert.Equal(t, test.missing, state.MissingText)
			assert.Equal(t, test.missing, statusOf(s, "ns/job", "").MissingText)
			members := 0
			for _, role := range state.Gang.Roles {
				members += len(role.Members)
			}
			assert.Equal(t, test.members, members)
			whole, _ := s.Snapshot().Gang("ns/job")
			require.Len(t, whole.Gang.Roles, 1)
			assert.Len(t, whole.Gang.Roles[0].Members, 4, "who asks what would be counts all")
		})
	}
}

// A member that a plugin refuses whatever the node is as if it was not there, until the plugin lets it by, or it is bound all the same.
func TestRefusedMembers(t *testing.T) {
	const missing = "gang ns/job cannot start: pod job-worker-0: no device"
	for minimum, missing := range map[string]string{"3": missing, "2": ""} {
		s := newState(t, "a")
		pods := podtest.Workers(3, podtest.Label(contract.LightGangLabel, "job"), podtest.Label(contract.LightGangMinLabel, minimum))
		for _, p := range pods {
			s.SetPod(p)
		}
		for i, why := range []string{"no volume", "no device", "no device"} {
			assert.Equal(t, i == 0, s.Refuse(pods[0].UID, why), "whether nobody did before")
		}
		state, _ := s.Gang("ns/job")
		assert.Equal(t, map[types.UID]string{pods[0].UID: "no device"}, statusOf(s, "ns/job", "").Refusals)
		assert.Equal(t, missing, state.MissingText)
		require.Len(t, state.Gang.Roles, 1)
		assert.Equal(t, []string{"worker-1", "worker-2"}, state.Gang.Roles[0].Members)
		for i, p := range pods {
			assert.Equal(t, i == 0, statusOf(s, "ns/job", p.UID).Refused)
		}

		s.SetPod(pods[0].DeepCopy())
		assert.True(t, statusOf(s, "ns/job", pods[0].UID).Refused, "an update of the pod changes nothing")
		s.Allow(pods[0].UID)
		state, _ = s.Gang("ns/job")
		assert.Empty(t, state.MissingText)
		assert.Len(t, state.Gang.Roles[0].Members, 3)

		s.Refuse(pods[0].UID, "no device")
		bound := pods[0].DeepCopy()
		podtest.OnNode("a")(bound)
		s.SetPod(bound)
		assert.False(t, statusOf(s, "ns/job", pods[0].UID).Refused)
		assert.False(t, s.Refuse(pods[0].UID, "no device"))
		assert.False(t, s.Refuse("another", "no device"))
	}
}

// What is missing is told by roles: a refused member of one is none of another that lacks some.
func TestRefusedMemberOfAnotherRole(t *testing.T) {
	s := newState(t, "a")
	for name, minimum := range map[string]string{"worker-0": "1", "worker-1": "1", "worker-2": "1", "ps-0": "2"} {
		role, _, _ := strings.Cut(name, "-")
		s.SetPod(podtest.New(name, podtest.Label(contract.LightGangLabel, "job"), podtest.Label(contract.LightGangMinLabel, "3"),
			podtest.Label(contract.RoleLabel, role), podtest.Label(contract.RoleMinLabel, minimum)))
	}
	for pod := range s.PodsOf("ns/job") {
		if pod.Now().Name == "worker-2" {
			s.Refuse(pod.Now().UID, "no device")
		}
	}
	state, _ := s.Gang("ns/job")
	assert.Equal(t, "1 more pod of gang ns/job must appear, 1 of role ps, before it can start", state.MissingText)
}
