package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func ownedBy(uid types.UID) change {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "PyTorchJob", Name: "job", UID: uid, Controller: &yes}}
	}
}

// succeeded is what the informer of succeeded pods keeps of a pod.
func succeeded(t *testing.T, p *corev1.Pod, changes ...change) *metav1.PartialObjectMetadata {
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
	placed := recorded(contract.Allocation{GPUs: []int{1}})
	const missing = "1 more pod of gang ns/job must appear before it can start"
	for name, test := range map[string]struct {
		change []change
		want   string
	}{
		"a member":                      {change: []change{placed}},
		"a launcher":                    {want: missing},
		"a member of the job before it": {change: []change{placed, ownedBy("before")}, want: missing},
		"a member of another gang":      {change: []change{placed, label(contract.TopologyGroupLabel, "other")}, want: missing},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			pods := workers(4, label(contract.TopologyGroupLabel, "job"), label(contract.TopologyReplicasLabel, "4"), ownedBy("now"))
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
			c.RemoveSucceeded(succeeded(t, pods[3], test.change...))
			assert.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
		})
	}
}

// The two watches of pods come in any order.
func TestSucceededMemberIsCountedOnce(t *testing.T) {
	c := newCache(t, "a")
	pods := gangOf(4)
	for _, p := range pods {
		onNode("a")(p)
		c.SetPod(p)
	}
	c.SetSucceeded(succeeded(t, pods[0], recorded(contract.Allocation{GPUs: []int{1}})))
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

func TestWhatCountsOfSucceededPods(t *testing.T) {
	alone := newPod("alone", label("app", "web"))
	alone.Annotations = map[string]string{"a": "b"}
	assert.Equal(t, metav1.ObjectMeta{Namespace: "ns", Name: "alone", UID: alone.UID}, succeeded(t, alone).ObjectMeta)
	assert.Equal(t, Change{}, NewCache().SetSucceeded(succeeded(t, alone)))
	member := gangOf(1)[0]
	kept := succeeded(t, member, recorded(contract.Allocation{GPUs: []int{1}}))
	assert.Equal(t, member.Labels, kept.Labels)
	assert.Equal(t, map[string]string{contract.AllocationAnnotation: ""}, kept.Annotations)
}
