package clusterstate

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// spellings mark pods as a gang that needs so many members.
var spellings = map[string]func(minimum int) (podtest.Change, *unstructured.Unstructured){
	"topology": func(minimum int) (podtest.Change, *unstructured.Unstructured) {
		return labelled(contract.TopologyGroupLabel, contract.TopologyReplicasLabel, minimum), nil
	},
	"light": func(minimum int) (podtest.Change, *unstructured.Unstructured) {
		return labelled(contract.LightGangLabel, contract.LightGangMinLabel, minimum), nil
	},
	"PodGroup": func(minimum int) (podtest.Change, *unstructured.Unstructured) {
		return podtest.Label(contract.PodGroupLabel, "job"), newGroup(minimum)
	},
	"PodGroup of an operator": func(minimum int) (podtest.Change, *unstructured.Unstructured) {
		group := newGroup(minimum)
		yes := true
		group.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: "TFJob", Name: "job", UID: "1", Controller: &yes}})
		return podtest.Label(contract.PodGroupLabel, "job"), group
	},
}

func labelled(name, count string, minimum int) podtest.Change {
	return func(p *corev1.Pod) { p.Labels[name], p.Labels[count] = "job", strconv.Itoa(minimum) }
}

func newGroup(minimum int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": "job"}, "spec": map[string]any{"minMember": int64(minimum)},
	}}
}

// Pods that ask for no GPU are members where the gang needs more than ask for GPUs, in
// each spelling; launchers never are.
func TestMembersWithoutGPUs(t *testing.T) {
	gpu := podtest.Asks(contract.ResourceTopologyGPU, 1)
	launcher := map[string]podtest.Change{
		"by the training operator": podtest.Label(contract.JobReplicaTypeLabel, "launcher"),
		"by the MPI operator":      podtest.Label(contract.JobRoleLabel, "launcher"),
		"by arena":                 podtest.Label(contract.ArenaMPIRoleLabel, "launcher"),
	}
	for name, spell := range spellings {
		t.Run(name, func(t *testing.T) {
			counts := func(minimum int, pods ...*corev1.Pod) (inventory.GangStatus, map[bool]int) {
				mark, group := spell(minimum)
				s := newState(t, "a")
				if group != nil {
					s.SetPodGroup(group)
				}
				for _, p := range pods {
					mark(p)
					s.SetPod(p)
				}
				state, ok := s.Gang("ns/job")
				require.True(t, ok)
				late := map[bool]int{}
				for _, role := range state.Gang.Roles {
					late[role.Late] += len(role.Members)
				}
				status := statusOf(s, "ns/job", pods[0].UID)
				assert.Equal(t, status.Late, late[true] > 0, "the first pod is the one without GPUs")
				assert.Equal(t, s.Snapshot().GangStatus("ns/job").MissingText, status.MissingText)
				return status, late
			}
			server := podtest.New("ps-0", podtest.Label(contract.JobReplicaTypeLabel, "ps"))
			workers := []*corev1.Pod{podtest.New("worker-0", gpu), podtest.New("worker-1", gpu), podtest.New("worker-2", gpu)}

			status, late := counts(4, append([]*corev1.Pod{server}, workers...)...)
			assert.Empty(t, status.MissingText, "1 pod without and 3 with a GPU, 4 are needed")
			assert.Equal(t, map[bool]int{false: 4}, late)
			assert.Equal(t, 4, status.Present)

			status, late = counts(3, append([]*corev1.Pod{podtest.New("other")}, workers...)...)
			assert.Empty(t, status.MissingText)
			assert.Equal(t, map[bool]int{false: 3, true: 1}, late, "those with GPUs are enough")

			for from, is := range launcher {
				status, late = counts(3, append([]*corev1.Pod{podtest.New("launcher", is)}, workers[:2]...)...)
				if name == "PodGroup of an operator" {
					assert.Empty(t, status.MissingText, "operators count launchers: %s", from)
				} else {
					assert.Equal(t, "1 more pod of gang ns/job must appear before it can start", status.MissingText, from)
				}
				assert.Equal(t, map[bool]int{false: 2, true: 1}, late, from)
			}
		})
	}
}

// A pod without GPUs does not take the place of one with GPUs that is about to appear, nor does one that has stayed when
// those were evicted.
func TestMembersWithoutGPUsWaitForOthers(t *testing.T) {
	mark := labelled(contract.LightGangLabel, contract.LightGangMinLabel, 3)
	for name, first := range map[string]*corev1.Pod{
		"new":        podtest.New("first", mark),
		"has stayed": podtest.New("first", mark, podtest.OnNode("a")),
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "a")
			s.SetPod(first)
			for i := range 2 {
				s.SetPod(podtest.New("worker-"+strconv.Itoa(i), mark, podtest.Asks(contract.ResourceTopologyGPU, 1)))
			}
			status := statusOf(s, "ns/job", first.UID)
			assert.Empty(t, status.MissingText)
			assert.Equal(t, 1, status.Expected, "it has a moment to appear")
			s.SetPod(podtest.New("worker-2", mark, podtest.Asks(contract.ResourceTopologyGPU, 1)))
			status = statusOf(s, "ns/job", first.UID)
			assert.True(t, status.Late)
			assert.Zero(t, status.Expected)
		})
	}
}
