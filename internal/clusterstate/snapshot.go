package clusterstate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Snapshot is a cluster at one moment, for those who look at it at their leisure while
// the state of it goes on. Its objects are shared with the state: read them only.
type Snapshot struct {
	// View is the planner's view, an independent copy.
	View *snapshot.View

	tree      *quota.Tree
	bar       *inventory.Bar
	gangs     map[string][]inventory.Member
	podGroups map[string]*unstructured.Unstructured
	fences    fences
	// pods are the pods that hold resources, by their ID in the view.
	pods map[string]*corev1.Pod
}

// Snapshot returns the cluster as it is known now. Whatever is computed from it minds no change
// that comes after.
func (s *State) Snapshot() *Snapshot {
	s.SetMinimums()
	snapshot := &Snapshot{
		View:      s.View.Clone(),
		tree:      s.tree,
		bar:       s.bar,
		gangs:     make(map[string][]inventory.Member, len(s.gangs)),
		podGroups: maps.Clone(s.podGroups),
		fences:    maps.Clone(s.fences),
		pods:      make(map[string]*corev1.Pod, len(s.pods)),
	}
	for key := range s.gangs {
		snapshot.gangs[key] = s.restricted(key)
	}
	for _, pod := range s.pods {
		if pod.Charged() {
			p := pod.Now()
			snapshot.pods[inventory.PodID(p)] = p
		}
	}
	return snapshot
}

// Keys returns the keys of all gangs ([inventory.PlanKey]), sorted.
func (s *Snapshot) Keys() []string { return slices.Sorted(maps.Keys(s.gangs)) }

// Gang returns a gang by its key; ok is false when it has no pods.
func (s *Snapshot) Gang(key string) (state inventory.GangState, ok bool) {
	state, ok = inventory.StateOf(s.gangs[key], s.podGroups[key], s.tree, s.bar, s.gpusOf)
	return s.fences.of(key, state, ok)
}

// GangStatus says how far a gang is.
func (s *Snapshot) GangStatus(key string) inventory.GangStatus {
	members := s.gangs[key]
	found := inventory.CountMembers(members, s.podGroups[key])
	return s.fences.status(key, inventory.StatusOf(key, members, found, s.tree, s.bar), found)
}

// Find returns the keys of the gangs that a name stands for in a namespace: the gang
// of that name, else the gang of the pod of that name, else the gangs of the job's pods; the job may be one of the Jobs
// that a JobSet is made of.
func (s *Snapshot) Find(namespace, name string) []string {
	if _, ok := s.gangs[namespace+"/"+name]; ok {
		return []string{namespace + "/" + name}
	}
	var ofPod, ofJob []string
	for _, key := range s.Keys() {
		for _, m := range s.gangs[key] {
			if m.Pod.Namespace != namespace {
				break
			}
			if m.Pod.Name == name {
				ofPod = append(ofPod, key)
			}
			maker := metav1.GetControllerOfNoCopy(m.Pod)
			if (inventory.JobName(m.Pod) == name || maker != nil && maker.Name == name) && !slices.Contains(ofJob, key) {
				ofJob = append(ofJob, key)
			}
		}
	}
	if len(ofPod) > 0 {
		return ofPod
	}
	return ofJob
}

// Pod returns the pod that holds resources under an ID of the view, nil when there is none.
func (s *Snapshot) Pod(id string) *corev1.Pod { return s.pods[id] }

// Model returns the product name of a node's GPUs, "" when nobody knows.
func (s *Snapshot) Model(node string) string {
	n, ok := s.View.Node(node)
	if !ok || n.GPUs == nil {
		return ""
	}
	if model := n.GPUs.Machine().Model; model != "" {
		return model
	}
	return n.Labels[contract.GPUModelLabel]
}

func (s *Snapshot) gpusOf(node string) *gpu.Table {
	n, _ := s.View.Node(node)
	return n.GPUs
}
