package clustercache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// succeeded is what the informer of succeeded pods keeps of a pod.
func succeeded(t *testing.T, p *corev1.Pod, changes ...podtest.Change) *metav1.PartialObjectMetadata {
	t.Helper()
	p = p.DeepCopy()
	for _, change := range changes {
		change(p)
	}
	kept, err := whatCounts(&metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta})
	require.NoError(t, err)
	return kept.(*metav1.PartialObjectMetadata)
}

// kube-scheduler does not show finished pods; those that have succeeded count all the same.
func TestSucceededMembersCount(t *testing.T) {
	placed := podtest.Recorded(contract.Allocation{GPUs: []int{1}})
	const missing = "1 more pod of gang ns/job must appear before it can start"
	for name, test := range map[string]struct {
		change []podtest.Change
		want   string
	}{
		"a member":                      {change: []podtest.Change{placed}},
		"a launcher":                    {want: missing},
		"a member of the job before it": {change: []podtest.Change{placed, podtest.OwnedBy("before")}, want: missing},
		"a member of another gang":      {change: []podtest.Change{placed, podtest.Label(contract.TopologyGroupLabel, "other")}, want: missing},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			pods := podtest.Workers(4, podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"), podtest.OwnedBy("now"))
			for _, p := range pods[:3] {
				c.SetPod(p)
			}
			require.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
			change := c.SetSucceeded(succeeded(t, pods[3], test.change...))
			assert.NotEmpty(t, change.Gang)
			assert.Equal(t, test.want, c.GangStatus("ns/job", "").MissingText)
			state, ok := c.Gang("ns/job")
			require.True(t, ok)
			assert.Equal(t, test.want, state.MissingText)
			assert.Equal(t, test.want, c.Snapshot().GangStatus("ns/job").MissingText)
			assert.Len(t, state.Pods, 3, "it has no place any more")
			c.RemoveSucceeded(pods[3].UID)
			assert.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
		})
	}
}

// The two watches of pods come in any order.
func TestSucceededMemberIsCountedOnce(t *testing.T) {
	c := newCache(t, "a")
	pods := podtest.Gang(4)
	for _, p := range pods {
		podtest.OnNode("a")(p)
		c.SetPod(p)
	}
	c.SetSucceeded(succeeded(t, pods[0], podtest.Recorded(contract.Allocation{GPUs: []int{1}})))
	c.RemovePod(pods[1].UID)
	assert.False(t, c.GangStatus("ns/job", "").Runs, "three run, and one of them is said to have succeeded")
	c.RemovePod(pods[0].UID)
	assert.False(t, c.GangStatus("ns/job", "").Runs, "one has succeeded, two run")
	c.SetPod(pods[1])
	assert.True(t, c.GangStatus("ns/job", "").Runs)
	for _, p := range pods[1:] {
		c.RemovePod(p.UID)
	}
	_, ok := c.Gang("ns/job")
	assert.False(t, ok, "nothing is left to be planned")
}

// The roles of a JobSet are Jobs of their own: one that has ended counts for the run of the others.
func TestRoleOfAJobSetThatHasSucceeded(t *testing.T) {
	const missing = "3 more pods of gang ns/job must appear before it can start"
	for name, test := range map[string]struct {
		attempt string
		leaves  bool
		want    string
	}{
		"of this run":            {attempt: "1"},
		"of the run before":      {attempt: "0", want: missing},
		"of one that is leaving": {attempt: "1", leaves: true, want: missing},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			of := func(role, attempt string) podtest.Change {
				return func(p *corev1.Pod) {
					podtest.OwnedBy(types.UID("job-" + role + attempt))(p)
					p.Labels[contract.JobSetNameLabel], p.Labels[contract.JobSetRoleLabel], p.Labels[contract.JobSetAttemptLabel] = "job", role, attempt
				}
			}
			pods := podtest.Workers(4, podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"))
			of("learner", "1")(pods[0])
			c.SetPod(pods[0])
			require.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
			for _, p := range pods[1:] {
				of("actor", test.attempt)(p)
				if test.leaves {
					p.DeletionTimestamp = new(metav1.Now())
				}
				c.SetSucceeded(succeeded(t, p, podtest.Recorded(contract.Allocation{GPUs: []int{1}})))
			}
			assert.Equal(t, test.want, c.GangStatus("ns/job", "").MissingText)
		})
	}
}

// A gang loses a member that has succeeded with the label that made it one.
func TestSucceededMemberChangesItsGang(t *testing.T) {
	c := newCache(t, "a")
	pods := podtest.Gang(4)
	for _, p := range pods[:3] {
		podtest.OnNode("a")(p)
		c.SetPod(p)
	}
	placed := podtest.Recorded(contract.Allocation{GPUs: []int{1}})
	require.False(t, c.GangStatus("ns/job", "").Runs)
	assert.Equal(t, clusterstate.Change{Gang: "ns/job"}, c.SetSucceeded(succeeded(t, pods[3], placed)))
	require.True(t, c.GangStatus("ns/job", "").Runs)

	other := podtest.Label(contract.TopologyGroupLabel, "other")
	assert.Equal(t, clusterstate.Change{Gang: "ns/other", Left: "ns/job"}, c.SetSucceeded(succeeded(t, pods[3], placed, other)))
	assert.False(t, c.GangStatus("ns/job", "").Runs)

	none := pods[3].DeepCopy()
	none.Labels = nil
	assert.Equal(t, clusterstate.Change{Left: "ns/other"}, c.SetSucceeded(succeeded(t, none, placed)))
	assert.Equal(t, clusterstate.Change{}, c.RemoveSucceeded(pods[3].UID))
}

func TestWhatCountsOfSucceededPods(t *testing.T) {
	alone := podtest.New("alone", podtest.Label("app", "web"))
	alone.Annotations = map[string]string{"a": "b"}
	assert.Equal(t, metav1.ObjectMeta{Namespace: "ns", Name: "alone", UID: alone.UID}, succeeded(t, alone).ObjectMeta)
	assert.Equal(t, clusterstate.Change{}, New().SetSucceeded(succeeded(t, alone)))
	member := podtest.Gang(1)[0]
	kept := succeeded(t, member, podtest.Recorded(contract.Allocation{GPUs: []int{1}}))
	assert.Equal(t, member.Labels, kept.Labels)
	assert.Equal(t, map[string]string{contract.AllocationAnnotation: ""}, kept.Annotations)
}
