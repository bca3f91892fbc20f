package inventory

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// spellings mark pods as a gang that needs so many members.
var spellings = map[string]func(minimum int) (change, *unstructured.Unstructured){
	"topology": func(minimum int) (change, *unstructured.Unstructured) {
		return labelled(contract.TopologyGroupLabel, contract.TopologyReplicasLabel, minimum), nil
	},
	"light": func(minimum int) (change, *unstructured.Unstructured) {
		return labelled(contract.LightGangLabel, contract.LightGangMinLabel, minimum), nil
	},
	"PodGroup": func(minimum int) (change, *unstructured.Unstructured) {
		return label(contract.PodGroupLabel, "job"), newGroup(minimum)
	},
	"PodGroup of an operator": func(minimum int) (change, *unstructured.Unstructured) {
		group := newGroup(minimum)
		yes := true
		group.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: "TFJob", Name: "job", UID: "1", Controller: &yes}})
		return label(contract.PodGroupLabel, "job"), group
	},
}

func labelled(name, count string, minimum int) change {
	return func(p *corev1.Pod) { p.Labels[name], p.Labels[count] = "job", strconv.Itoa(minimum) }
}

func newGroup(minimum int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": "job"}, "spec": map[string]any{"minMember": int64(minimum)},
	}}
}

// Pods that ask for no card are members where the gang needs more than ask for cards, in
// each spelling; launchers never are.
func TestMembersWithoutCards(t *testing.T) {
	card := asks(contract.ResourceTopologyCard, 1)
	launcher := map[string]change{
		"by the training operator": label(contract.JobReplicaTypeLabel, "launcher"),
		"by the MPI operator":      label(contract.JobRoleLabel, "launcher"),
		"by arena":                 label(contract.ArenaMPIRoleLabel, "launcher"),
	}
	for name, spell := range spellings {
		t.Run(name, func(t *testing.T) {
			census := func(minimum int, pods ...*corev1.Pod) (Standing, map[bool]int) {
				mark, group := spell(minimum)
				c := newCache(t, "a")
				if group != nil {
					c.SetPodGroup(group)
				}
				for _, p := range pods {
					mark(p)
					c.SetPod(p)
				}
				state, ok := c.Gang("ns/job")
				require.True(t, ok)
				late := map[bool]int{}
				for _, role := range state.Gang.Roles {
					late[role.Late] += len(role.Members)
				}
				standing := c.Standing("ns/job", pods[0].UID)
				assert.Equal(t, standing.Late, late[true] > 0, "the first pod is the one without cards")
				assert.Equal(t, c.Scene().Standing("ns/job").Lacks, standing.Lacks)
				return standing, late
			}
			server := newPod("ps-0", label(contract.JobReplicaTypeLabel, "ps"))
			workers := []*corev1.Pod{newPod("worker-0", card), newPod("worker-1", card), newPod("worker-2", card)}

			standing, late := census(4, append([]*corev1.Pod{server}, workers...)...)
			assert.Empty(t, standing.Lacks, "1 pod without and 3 with a card, 4 are needed")
			assert.Equal(t, map[bool]int{false: 4}, late)
			assert.Equal(t, 4, standing.Present)

			standing, late = census(3, append([]*corev1.Pod{newPod("other")}, workers...)...)
			assert.Empty(t, standing.Lacks)
			assert.Equal(t, map[bool]int{false: 3, true: 1}, late, "those with cards are enough")

			for from, is := range launcher {
				standing, late = census(3, append([]*corev1.Pod{newPod("launcher", is)}, workers[:2]...)...)
				if name == "PodGroup of an operator" {
					assert.Empty(t, standing.Lacks, "operators count launchers: %s", from)
				} else {
					assert.Equal(t, "1 more pod of gang ns/job must appear before it can start", standing.Lacks, from)
				}
				assert.Equal(t, map[bool]int{false: 2, true: 1}, late, from)
			}
		})
	}
}

// A pod without cards does not take the place of one with cards that is about to appear.
func TestMembersWithoutCardsWaitForOthers(t *testing.T) {
	c := newCache(t, "a")
	mark := labelled(contract.LightGangLabel, contract.LightGangMinLabel, 3)
	first := newPod("first", mark)
	c.SetPod(first)
	for i := range 2 {
		c.SetPod(newPod("worker-"+strconv.Itoa(i), mark, asks(contract.ResourceTopologyCard, 1)))
	}
	standing := c.Standing("ns/job", first.UID)
	assert.Empty(t, standing.Lacks)
	assert.Equal(t, 1, standing.Expected, "it has a moment to appear")
	c.SetPod(newPod("worker-2", mark, asks(contract.ResourceTopologyCard, 1)))
	standing = c.Standing("ns/job", first.UID)
	assert.True(t, standing.Late)
	assert.Zero(t, standing.Expected)
}
