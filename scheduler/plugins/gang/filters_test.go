package gang

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// refuseOn makes another plugin refuse a node.
func refuseOn(name string) func(*corev1.Pod, fwk.NodeInfo) *fwk.Status {
	return func(_ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
		if node.Node().Name != name {
			return nil
		}
		return fwk.NewStatus(fwk.Unschedulable, "its volume is elsewhere").WithPlugin("Volumes")
	}
}

// Nobody is evicted from a node that another plugin refuses.
func TestRejectedNodeIsNotReserved(t *testing.T) {
	b := newBench(t, "a", "b")
	first, second := b.runs("first", "a", 2, 4, 0), b.runs("second", "b", 2, 4, 0)
	big := b.urgent("big", 2, 4)
	b.submit(big)
	b.handle.rejects = refuseOn("a")

	_, status := b.cycle(big[1])
	assert.Contains(t, status.Message(), "evicted for it: gang ns/second")
	b.work()
	for i := range 2 {
		assert.NotNil(t, b.live(first[i]))
		assert.Nil(t, b.live(second[i]))
	}
}

// When every node is refused, nobody is evicted, and the verdict says who refuses.
func TestNothingIsReservedInVain(t *testing.T) {
	b := newBench(t, "a")
	low := b.runs("low", "a", 1, 8, 0)
	big := b.urgent("big", 1, 8)
	b.submit(big)
	b.handle.rejects = refuseOn("a")

	_, status := b.cycle(big[0])
	assert.Contains(t, status.Message(), "1 node refused by Volumes: its volume is elsewhere.")
	b.work()
	assert.NotNil(t, b.live(low[0]))
	assert.Empty(t, b.live(big[0]).Status.NominatedNodeName, "nor is the place reserved for a gang that has waited too long")

	b.handle.rejects = nil
	assert.Contains(t, b.elapse(), minBackoff)
	_, status = b.cycle(big[0])
	assert.Contains(t, status.Message(), "Reserved: waits for gang ns/low")
}

// A dry run sees the nodes as they are once victims have gone and the members before
// have come.
func TestFilterDryRun(t *testing.T) {
	b := newBench(t, "a")
	b.runs("low", "a", 1, 4, 0)
	b.runs("stays", "a", 2, 2, 4)
	big := b.urgent("big", 2, 2)
	b.submit(big)
	var seen [][]string
	b.handle.rejects = func(pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
		names := []string{pod.Name}
		for _, other := range node.GetPods() {
			names = append(names, other.GetPod().Name)
		}
		slices.Sort(names)
		seen = append(seen, names)
		return nil
	}
	_, status := b.cycle(big[0])
	require.Contains(t, status.Message(), "Reserved: waits for gang ns/low")
	assert.Equal(t, [][]string{{"big-0", "stays-0", "stays-1"}, {"big-0", "big-1", "stays-0", "stays-1"}}, seen)
	assert.Equal(t, 1, b.handle.dryRuns, "once for the members of a role")
}

// Members that are assumed are looked at in their own cycles; only a gang that was
// refused a node is tried in a dry run before it takes others.
func TestFiltersDryRunAfterARejection(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	pods := b.gangPods("job", 1, 1)
	b.submit(pods)
	state := framework.NewCycleState()
	_, status := b.plugin.PreFilter(t.Context(), state, pods[0], nil)
	require.True(t, status.IsSuccess())
	assert.Zero(t, b.handle.dryRuns)
	nodes := framework.NewDefaultNodeToStatus()
	nodes.Set("a", fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its volume is elsewhere").WithPlugin("Volumes"))
	b.plugin.PostFilter(t.Context(), state, pods[0], nodes)
	assert.Equal(t, []time.Duration{retryDelay}, b.elapse())

	b.handle.rejects = func(pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
		if node.Node().Name == "c" {
			return nil
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its volume is elsewhere").WithPlugin("Volumes")
	}
	node, status := b.cycle(pods[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "c", node)
	assert.Equal(t, 2, b.handle.dryRuns, "nodes that refuse it whatever runs there are found at once")
}

// A node that takes one member and refuses the next is a limit, not an exclusion; the
// verdict names who refuses, and proposes no pool size.
func TestRejectionIsALimit(t *testing.T) {
	b := newBench(t, "a", "b")
	b.runs("first", "a", 2, 4, 0)
	b.runs("second", "b", 2, 4, 0)
	b.handle.rejects = func(pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
		for _, other := range node.GetPods() {
			if other.GetPod().Labels["job"] == pod.Labels["job"] && pod.Labels["job"] != "" {
				return fwk.NewStatus(fwk.Unschedulable, "it has as many volumes as it can").WithPlugin("Volumes")
			}
		}
		return nil
	}
	limited := func(name string, members int) []*corev1.Pod {
		pods := b.urgent(name, members, 2)
		for _, pod := range pods {
			pod.Labels["job"] = name
		}
		b.submit(pods)
		return pods
	}
	big := limited("big", 3)
	_, status := b.cycle(big[0])
	assert.Contains(t, status.Message(), "2 nodes refused beyond 1 member by Volumes: it has as many volumes as it can.")
	assert.NotContains(t, status.Message(), "pool size")

	pair := limited("pair", 2)
	_, status = b.cycle(pair[0])
	assert.Contains(t, status.Message(), "evicted for it: gang ns/first, gang ns/second", "one member on each node")
}

// The place of a nominated pod that is planned is held in the view: on its node it takes
// no room beside those who leave it.
func TestNominatedMembersTakeNoRoomTwice(t *testing.T) {
	b := newBench(t, "a")
	planned, other := b.gangPods("job", 1, 4)[0], &corev1.Pod{}
	other.Name, other.UID = "other", "other"
	b.submit([]*corev1.Pod{planned})
	info := framework.NewNodeInfo()
	for i, pod := range []*corev1.Pod{planned, other} {
		added, err := framework.NewPodInfo(pod)
		require.NoError(t, err)
		info.AddPodInfo(added)
		assert.True(t, b.plugin.PreFilterExtensions().AddPod(t.Context(), framework.NewCycleState(), nil, added, info).IsSuccess())
		assert.Len(t, info.GetPods(), i)
	}
}

// Members of one name may mount what others do not: where a volume cannot be attached, one without it can be.
func TestRejectionIsOfThoseThatMountTheSame(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 2, 8)
	pods[0].Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	b.handle.rejects = func(pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
		if len(pod.Spec.Volumes) > 0 && node.Node().Name == "a" {
			return fwk.NewStatus(fwk.Unschedulable, "it has as many volumes as it can").WithPlugin("Volumes")
		}
		return nil
	}
	b.submit(pods)
	for i, want := range []string{"b", "a"} {
		node, status := b.cycle(pods[i])
		require.False(t, status.IsRejected(), status.Message())
		assert.Equal(t, want, node)
	}
}

// What a node lacks for good while another member is there may be what that one has taken.
func TestRejectionBesideAnotherMemberIsOfBoth(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 2)
	pods[1].Labels[contract.JobReplicaTypeLabel] = "master"
	b.submit(pods)
	for range 2 { // the first time may be a cache that is behind
		_, status := b.cycle(pods[0])
		require.True(t, status.IsWait(), status.Message())
		b.refuse(pods[1])
		b.plugin.Unreserve(t.Context(), b.states[pods[0].UID], pods[0], "a")
		b.elapse()
	}
	rejected, _ := b.plugin.rejectedFor("ns/job")
	assert.Contains(t, rejected.String(), "1 node refused beyond 1 member")
}

// Devices that pods ask for by an extended resource are another plugin's to allocate: it is asked before members are assumed.
func TestDevicesOfExtendedResourcesAreAskedFor(t *testing.T) {
	b := newBench(t, "a", "b")
	extended := "example.com/foo"
	pods := b.gangPods("job", 1, 2)
	r := &pods[0].Spec.Containers[0].Resources
	r.Requests[corev1.ResourceName(extended)] = resource.MustParse("1")
	b.handle.rejects = refuseOn("a")
	b.submit(pods)
	_, status := b.cycle(pods[0])
	assert.Contains(t, status.Message(), "too little example.com/foo")
	b.cache.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "foo"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &extended}})
	b.plugin.work.add(clusterstate.Change{Freed: true})
	b.work()
	node, status := b.cycle(pods[0])
	require.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "b", node)
}

// Where a member takes what one on another node lacks, a volume of its zone say, the one that was refused comes first, and the other goes elsewhere.
func TestMemberTakesWhatAnotherNodeNeeds(t *testing.T) {
	zones := map[string]string{"a": "z1", "b": "z0", "c": "z1"} // each has one volume left
	for name, sizes := range map[string][]int64{"the small one first": {2, 4}, "the large one first": {4, 2}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b", "c")
			b.runs("on-a", "a", 1, 6, 0)
			b.runs("on-b", "b", 1, 6, 0)
			pods := b.gangPods("job", 2, 1)
			for i, pod := range pods {
				pod.Labels[contract.JobReplicaTypeLabel] = []string{"first", "second"}[i]
				pod.Spec.Containers[0].Resources.Requests[contract.ResourceTopologyGPU] = *resource.NewQuantity(sizes[i], resource.DecimalSI)
			}
			b.submit(pods)
			place := map[string]string{}
			try := func(pod *corev1.Pod) {
				state := framework.NewCycleState()
				result, status := b.plugin.PreFilter(t.Context(), state, pod, nil)
				nodes := framework.NewDefaultNodeToStatus()
				if status.IsSuccess() {
					node := result.NodeNames.UnsortedList()[0]
					taken := slices.ContainsFunc(slices.Collect(maps.Values(place)), func(other string) bool { return zones[other] == zones[node] })
					if !taken && b.plugin.Reserve(t.Context(), state, pod, node).IsSuccess() {
						b.plugin.Permit(t.Context(), state, pod, node)
						place[pod.Name], b.states[pod.UID], b.handle.waiting[pod.UID] = node, state, &fakeWaiting{}
						return
					}
					nodes.Set(node, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "no volume is left in its zone").WithPlugin("VolumeBinding"))
				}
				b.plugin.PostFilter(t.Context(), state, pod, nodes)
			}
			for range 100 {
				if len(place) == len(pods) {
					break
				}
				b.work()
				activated := b.handle.takeActivated()
				for _, pod := range pods {
					if slices.Contains(activated, pod.Name) && place[pod.Name] == "" && b.plugin.PreEnqueue(t.Context(), pod).IsSuccess() {
						try(pod)
					}
					if waits := b.handle.waiting[pod.UID]; waits != nil && waits.rejected {
						b.plugin.Unreserve(t.Context(), b.states[pod.UID], pod, place[pod.Name])
						delete(place, pod.Name)
						delete(b.handle.waiting, pod.UID)
					}
				}
				b.elapse()
			}
			assert.ElementsMatch(t, []string{"b", "c"}, slices.Collect(maps.Values(place)), b.says(pods[0]))
		})
	}
}
