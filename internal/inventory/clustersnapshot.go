package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Snapshot is a cluster at one moment, for those who look at it at their leisure while
// the cache goes on. Its objects are shared with the cache: read them only.
type Snapshot struct {
	// View is the planner's view, an independent copy.
	View *placement.View

	tree      *quota.Tree
	bar       *Bar
	gangs     map[string][]member
	podGroups map[string]*unstructured.Unstructured
	// pods are the pods that hold resources, by their ID in the view.
	pods map[string]*corev1.Pod
}

// Snapshot returns the cluster as the cache knows it now. Decisions wait for the
// time of a copy; whatever is computed from the snapshot needs no lock.
func (c *Cache) Snapshot() *Snapshot {
	c.planning.Lock()
	defer c.planning.Unlock()
	c.setMinimums()
	s := &Snapshot{
		View:      c.view.Clone(),
		tree:      c.tree,
		bar:       c.bar,
		gangs:     make(map[string][]member, len(c.gangs)),
		podGroups: maps.Clone(c.podGroups),
		pods:      make(map[string]*corev1.Pod, len(c.pods)),
	}
	for key := range c.gangs {
		s.gangs[key] = c.members(key)
		c.volumes.restrict(s.gangs[key])
	}
	for _, state := range c.pods {
		if state.charged() {
			p := state.now()
			s.pods[podID(p)] = p
		}
	}
	return s
}

// Keys returns the keys of all gangs ([PlanKey]), sorted.
func (s *Snapshot) Keys() []string { return slices.Sorted(maps.Keys(s.gangs)) }

// Gang returns a gang by its key; ok is false when it has no pods.
func (s *Snapshot) Gang(key string) (state GangState, ok bool) {
	members := slices.Clone(s.gangs[key])
	if len(members) == 0 {
		return GangState{}, false
	}
	state = stateOf(members, s.podGroups[key], s.tree, s.gpusOf)
	found, _ := count(members, s.podGroups[key])
	state.bar(heldBack(s.bar, current(members), found, s.tree))
	return state, true
}

// GangStatus says how far a gang is.
func (s *Snapshot) GangStatus(key string) GangStatus {
	found, _ := count(s.gangs[key], s.podGroups[key])
	status := found.status(key)
	status.MissingText = cmp.Or(heldBack(s.bar, current(s.gangs[key]), found, s.tree), status.MissingText)
	return status
}

// Find returns the keys of the gangs that a name stands for in a namespace: the gang
// of that name, else the gang of the pod of that name, else the gangs of the job's pods.
func (s *Snapshot) Find(namespace, name string) []string {
	if _, ok := s.gangs[namespace+"/"+name]; ok {
		return []string{namespace + "/" + name}
	}
	var ofPod, ofJob []string
	for _, key := range s.Keys() {
		for _, m := range s.gangs[key] {
			if m.pod.Namespace != namespace {
				break
			}
			if m.pod.Name == name {
				ofPod = append(ofPod, key)
			}
			if jobName(m.pod) == name && !slices.Contains(ofJob, key) {
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

// stateOf describes the gang that the members make; it sorts them.
func stateOf(members []member, podGroup *unstructured.Unstructured, tree *quota.Tree, gpus func(node string) *gpu.Table) GangState {
	members = current(members)
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.pod.Name, b.pod.Name) })
	state := GangState{PodGroup: podGroup, Pods: make(map[string]*corev1.Pod, len(members))}
	state.Gang, state.Problems = gang(members, podGroup, tree, gpus)
	found, _ := count(members, podGroup)
	state.Missing, state.MissingText = found.missing(), found.missingText(placement.NameOf(state.Gang.ID))
	state.Running = found.running
	pods := make([]*corev1.Pod, len(members))
	for i, m := range members {
		pods[i] = m.pod
	}
	for i, name := range MemberNames(pods) {
		if !gone(pods[i]) {
			state.Pods[name] = pods[i]
		}
	}
	return state
}
