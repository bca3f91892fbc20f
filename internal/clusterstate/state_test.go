package clusterstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func newState(t *testing.T, nodes ...string) *State {
	t.Helper()
	s := New(nil)
	for _, name := range nodes {
		_, err := s.SetNode(podtest.Node(name, 8))
		require.NoError(t, err)
	}
	return s
}

// statusOf says how far a gang is from one pod's point of view.
func statusOf(s *State, key string, uid types.UID) inventory.GangStatus {
	status, found := s.Status(key)
	return s.Within(key, uid, status, found)
}

func TestStateKeepsAssumedPods(t *testing.T) {
	s := newState(t, "a")
	pending := podtest.Gang(1)[0]
	s.SetPod(pending)
	bound := pending.DeepCopy()
	podtest.OnNode("a")(bound)
	podtest.Recorded(contract.Allocation{GPUs: []int{3}})(bound)

	s.Assume(bound, nil)
	assert.False(t, s.View.FreeGPUs("a").Has(3))
	assert.True(t, statusOf(s, "ns/job", pending.UID).Partial)

	s.SetPod(pending.DeepCopy()) // an update from before the binding
	assert.False(t, s.View.FreeGPUs("a").Has(3), "a late update must not free the GPU")

	s.SetPod(bound)
	s.Forget(bound.UID)
	assert.False(t, s.View.FreeGPUs("a").Has(3), "a pod that is bound cannot be forgotten")

	done := bound.DeepCopy()
	podtest.InPhase(corev1.PodSucceeded)(done)
	change := s.SetPod(done)
	assert.True(t, change.Freed)
	assert.Equal(t, gpu.Full(8), s.View.FreeGPUs("a"))
}

// A pod that is deleted before it was bound never is, however long a finalizer keeps it.
func TestPodThatIsDeletedWhileItIsBound(t *testing.T) {
	s := newState(t, "a")
	pending := podtest.Gang(1)[0]
	s.SetPod(pending)
	assumed := pending.DeepCopy()
	podtest.OnNode("a")(assumed)
	podtest.Recorded(contract.Allocation{GPUs: []int{3}})(assumed)
	s.Assume(assumed, nil)
	deleted, now := pending.DeepCopy(), metav1.Now()
	deleted.DeletionTimestamp, deleted.Finalizers = &now, []string{"kueue.x-k8s.io/managed"}
	assert.Equal(t, Change{Gang: "ns/job", Freed: true, Departed: true, Departs: "ns/job"}, s.SetPod(deleted))
	assert.Equal(t, gpu.Full(8), s.View.FreeGPUs("a"))
	assert.False(t, statusOf(s, "ns/job", pending.UID).Partial)
}

// What a running pod gives back where it is, others may have.
func TestPodThatIsResized(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	cpu := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
	requests := func(text string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: cpu(text)}
	}
	granted := func(name, text string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Resources: requests(text), AllocatedResources: cpu(text)}
	}
	pending := func(reason string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
		}
	}
	container := func(asks, has string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = *requests(asks)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{granted("main", has)}
		}
	}
	sidecar := func(asks, has string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: &always, Resources: *requests(asks)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{granted("sidecar", has)}
		}
	}
	whole := func(asks, has string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Spec.Resources = requests(asks)
			p.Status.Resources, p.Status.AllocatedResources = requests(has), cpu(has)
		}
	}
	all := func(changes ...podtest.Change) []podtest.Change { return changes }
	for name, test := range map[string]struct {
		before, after []podtest.Change
		frees         bool
	}{
		"nobody has granted it":                     {all(), all(func(p *corev1.Pod) { p.Spec.Containers[0].Resources = *requests("500m") }), true},
		"a container asks for more":                 {all(), all(func(p *corev1.Pod) { p.Spec.Containers[0].Resources = *requests("2") }), false},
		"a container is as before":                  {all(container("1", "1")), all(container("1", "1")), false},
		"a container asks for less, not granted":    {all(container("3", "3")), all(container("1", "3")), false},
		"a container is granted less":               {all(container("1", "3")), all(container("1", "1")), true},
		"a container cannot grow":                   {all(container("3", "1")), all(container("3", "1"), pending(corev1.PodReasonInfeasible)), true},
		"a container must wait to grow":             {all(container("3", "1")), all(container("3", "1"), pending(corev1.PodReasonDeferred)), false},
		"a container may grow after all":            {all(container("3", "1"), pending(corev1.PodReasonInfeasible)), all(container("3", "1")), false},
		"a sidecar asks for less, not granted":      {all(sidecar("3", "3")), all(sidecar("1", "3")), false},
		"a sidecar is granted less":                 {all(sidecar("1", "3")), all(sidecar("1", "1")), true},
		"a sidecar cannot grow":                     {all(sidecar("3", "1")), all(sidecar("3", "1"), pending(corev1.PodReasonInfeasible)), true},
		"the pod as a whole asks for less":          {all(whole("5", "5")), all(whole("2", "5")), false},
		"the pod as a whole is granted less":        {all(whole("2", "5")), all(whole("2", "2")), true},
		"the pod as a whole, nobody has granted it": {all(func(p *corev1.Pod) { p.Spec.Resources = requests("5") }), all(func(p *corev1.Pod) { p.Spec.Resources = requests("2") }), true},
		"the pod as a whole cannot grow":            {all(whole("5", "2")), all(whole("5", "2"), pending(corev1.PodReasonInfeasible)), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "a")
			s.SetPod(podtest.New("pod", append(test.before, podtest.OnNode("a"))...))
			assert.Equal(t, test.frees, s.SetPod(podtest.New("pod", append(test.after, podtest.OnNode("a"))...)).Freed)
		})
	}
}

func TestStateRemovesPods(t *testing.T) {
	s := newState(t, "a")
	p := podtest.Gang(1)[0]
	podtest.OnNode("a")(p)
	podtest.Recorded(contract.Allocation{GPUs: []int{0}})(p)
	s.SetPod(p)
	assert.Equal(t, gpu.Full(8)&^gpu.SetOf(0), s.View.FreeGPUs("a"))
	assert.Equal(t, Change{Gang: "ns/job", Freed: true, Departed: true, Departs: "ns/job"}, s.RemovePod(p.UID))
	assert.Equal(t, gpu.Full(8), s.View.FreeGPUs("a"))
	_, ok := s.Gang("ns/job")
	assert.False(t, ok)
	assert.Equal(t, Change{}, s.RemovePod(p.UID))
}

// A pod departs when someone begins to delete it, once, and not to make room.
func TestDepartures(t *testing.T) {
	leaving := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	evicted := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	}
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	for name, test := range map[string]struct {
		before []podtest.Change
		after  []podtest.Change // nil: the pod is gone
		want   bool
	}{
		"deleted":                 {nil, []podtest.Change{leaving}, true},
		"gone at once":            {nil, nil, true},
		"gone after its deletion": {[]podtest.Change{leaving}, nil, false},
		"seen again":              {[]podtest.Change{leaving}, []podtest.Change{leaving}, false},
		"evicted":                 {nil, []podtest.Change{evicted, leaving}, false},
		"evicted, gone at once":   {[]podtest.Change{evicted}, nil, false},
		"ended":                   {nil, []podtest.Change{failed}, true},
		"deleted after it failed": {[]podtest.Change{failed}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "a")
			p := podtest.New("pod", append(test.before, podtest.OnNode("a"))...)
			s.SetPod(p)
			change := Change{}
			if test.after == nil {
				change = s.RemovePod(p.UID)
			} else {
				change = s.SetPod(podtest.New("pod", append(test.after, podtest.OnNode("a"))...))
			}
			assert.Equal(t, test.want, change.Departed)
		})
	}
}

func TestStateTakesHardwareFromGPUNode(t *testing.T) {
	s := newState(t)
	hardware := &contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: contract.GPUNodeStatus{
		GPUs:  []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 2, Health: contract.Healthy}},
		Links: []string{"X PIX", "PIX X"},
	}}
	_, err := s.SetGPUNode(hardware)
	require.NoError(t, err)
	p := podtest.Gang(1)[0]
	podtest.OnNode("a")(p)
	podtest.Recorded(contract.Allocation{GPUs: []int{2}})(p)
	s.SetPod(p) // before its node
	change, err := s.SetNode(podtest.Node("a", 8))
	require.NoError(t, err)
	assert.True(t, change.Freed)
	assert.Equal(t, gpu.SetOf(0), s.View.FreeGPUs("a"), "index 2 is the second GPU")

	change, err = s.SetNode(podtest.Node("a", 8))
	require.NoError(t, err)
	assert.Equal(t, Change{}, change, "nothing new")

	_, err = s.RemoveGPUNode("a")
	require.NoError(t, err)
	assert.Equal(t, gpu.Full(8)&^gpu.SetOf(2), s.View.FreeGPUs("a"), "the catalogue's machine has eight GPUs")
}

func TestStateSharesTables(t *testing.T) {
	s := newState(t, "a", "b")
	assert.Same(t, s.gpusOf("a"), s.gpusOf("b"))
}

func TestStatePodGroup(t *testing.T) {
	s := newState(t, "a")
	p := podtest.New("pod", podtest.Label(contract.PodGroupLabel, "group"), podtest.Asks(contract.ResourceTopologyGPU, 1))
	s.SetPod(p)
	const groupless = "PodGroup ns/group must appear before its pods can start"
	assert.Equal(t, groupless, statusOf(s, "ns/group", p.UID).MissingText)
	assert.Equal(t, Change{Gang: "ns/group"}, s.SetPodGroup(podtest.PodGroup(3)))
	assert.Contains(t, statusOf(s, "ns/group", p.UID).MissingText, "2 more pods")
	assert.Equal(t, Change{Gang: "ns/group"}, s.RemovePodGroup("ns", "group"))
	assert.Equal(t, groupless, statusOf(s, "ns/group", p.UID).MissingText)
	p = p.DeepCopy()
	p.Spec.NodeName = "a"
	s.SetPod(p)
	assert.Empty(t, statusOf(s, "ns/group", p.UID).MissingText, "what runs goes on without its PodGroup")
}

// Whatever someone does to the record of a pod that runs, the GPUs that it was bound with
// stay taken, and each change is told once.
func TestStateKeepsTheFirstRecord(t *testing.T) {
	s := newState(t, "a")
	p := podtest.Gang(1)[0]
	podtest.OnNode("a")(p)
	podtest.Recorded(contract.Allocation{GPUs: []int{0, 1}})(p)
	s.SetPod(p)
	taken := s.View.FreeGPUs("a")

	for name, change := range map[string]func(*corev1.Pod){
		"removed":    func(p *corev1.Pod) { delete(p.Annotations, contract.AllocationAnnotation) },
		"others":     podtest.Recorded(contract.Allocation{GPUs: []int{4}}),
		"unreadable": func(p *corev1.Pod) { p.Annotations[contract.AllocationAnnotation] = "none" },
	} {
		t.Run(name, func(t *testing.T) {
			altered := p.DeepCopy()
			change(altered)
			told := s.SetPod(altered)
			require.NotNil(t, told.Altered)
			assert.False(t, told.Freed)
			assert.Nil(t, s.SetPod(altered.DeepCopy()).Altered, "it was told")
			assert.Equal(t, taken, s.View.FreeGPUs("a"))
			_, err := s.SetNode(podtest.Node("a", 8))
			require.NoError(t, err)
			assert.Equal(t, taken, s.View.FreeGPUs("a"))
			assert.Nil(t, s.SetPod(p).Altered, "it is as it was")
		})
	}

	done := p.DeepCopy()
	podtest.InPhase(corev1.PodSucceeded)(done)
	delete(done.Annotations, contract.AllocationAnnotation)
	assert.True(t, s.SetPod(done).Freed)
	assert.Equal(t, gpu.Full(8), s.View.FreeGPUs("a"))
}

// A gate that is taken away is news to the gang: the framework's queue may have asked before the state saw it.
func TestPodsThatAskForSomethingElse(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"a gate less": func(p *corev1.Pod) { p.Spec.SchedulingGates = nil },
		"tolerates": func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}
		},
		"other nodes":  func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} },
		"other labels": func(p *corev1.Pod) { p.Labels["a"] = "b" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "a")
			pod := podtest.Gang(1)[0]
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			s.SetPod(pod)
			same := pod.DeepCopy()
			same.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
			assert.Empty(t, s.SetPod(same), "its status alone is no news")
			changed := same.DeepCopy()
			change(changed)
			assert.Equal(t, Change{Gang: "ns/job"}, s.SetPod(changed))
		})
	}
}

// A pod that gets another gang leaves nothing behind in the one that it had.
func TestPodThatChangesItsGang(t *testing.T) {
	s := newState(t, "a")
	pod := podtest.Gang(1)[0]
	s.SetPod(pod)
	s.View.AddReservation(placement.Reservation{Gang: placement.Gang{ID: "ns/job"}, Evicts: true})
	require.Len(t, s.View.Reservations(), 1)
	moved := pod.DeepCopy()
	for label, value := range moved.Labels {
		if value == "job" {
			moved.Labels[label] = "other"
		}
	}
	change := s.SetPod(moved)
	assert.Equal(t, Change{Gang: "ns/other", Left: "ns/job", RolledBack: true}, change)
	assert.Empty(t, s.View.Reservations())
}

// The API server may show a pod on another node than the one that it was planned for.
func TestPodIsOnOneNode(t *testing.T) {
	s := newState(t, "a", "b")
	pending := podtest.Gang(1)[0]
	s.SetPod(pending)
	assumed := pending.DeepCopy()
	podtest.OnNode("b")(assumed)
	s.Assume(assumed, nil)
	bound := pending.DeepCopy()
	podtest.OnNode("a")(bound)
	s.SetPod(bound)
	on := func(node string) (n int) {
		for range s.PodsOn(node) {
			n++
		}
		return n
	}
	assert.Equal(t, []int{1, 0}, []int{on("a"), on("b")})
	assert.Equal(t, gpu.Full(8), s.View.FreeGPUs("b"))
}
